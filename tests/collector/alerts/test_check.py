import numpy as np
import pytest

from edgemeter.agent.contract.messages import DeviceState
from edgemeter.agent.ledger.presence import PresenceChange
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.alerts import lifecycle
from edgemeter.collector.alerts.check import check_alerts
from edgemeter.collector.alerts.rules import AlertRule, AlertRules, Channel
from edgemeter.collector.index.history import LedgerHistory
from edgemeter.collector.trend.history import RunHistory
from edgemeter.collector.trend.watch_file import WatchFile, read_annotations
from tests.fixtures.ledgers import arrival
from tests.fixtures.record_factory import violating
from tests.fixtures.series_factory import DAY_NS, FIRST_DAY, make_days, noisy

STEPPED = noisy(100, 70, step_at=55, step_ratio=1.09)


def rules_of(kind, *metrics, **settings):
    """Return the one rule of a kind, by default about the energy."""
    return AlertRules(rule=(AlertRule(name=kind, kind=kind, metrics=metrics or ("energy_gross_mj",), **settings),))


@pytest.fixture
def file(tmp_path):
    """Return a watch file."""
    with WatchFile(tmp_path / "w") as opened:
        yield opened


def at(runs, rules, file, *, day, is_dry=False):
    """Return what a check on a day (of the series) does with these runs."""
    return check_alerts(RunHistory(runs), "runs.json", file, rules, (FIRST_DAY + day) * DAY_NS, is_dry=is_dry)


def titles(result):
    """Return event and title of what happened."""
    return [(change.event, change.alert.firing.title) for change in result.changes]


def test_a_confirmed_step_alerts_once_and_closes_when_it_is_history(file):
    """Open on day 70, silent on day 71, closed when the step is two months old."""
    rules, runs = rules_of("step"), make_days(STEPPED)
    assert titles(at(runs, rules, file, day=70)) == [("opened", "step: energy of tiny-detector fp32 on pi-1")]
    assert titles(at(runs, rules, file, day=71)) == []
    assert [event for event, _ in titles(at(runs, rules, file, day=55 + 61))] == ["closed"]


def test_an_improvement_alerts_only_where_both_are_asked_for(file):
    """Nine per cent less energy is no bad news."""
    better = make_days(noisy(100, 70, step_at=55, step_ratio=0.91))
    for settings, count in (({"direction": "worse"}, 0), ({"direction": "both"}, 1), ({"direction": "both", "at_least": 20.0}, 0)):
        assert len(titles(at(better, rules_of("step", **settings), file, day=70, is_dry=True))) == count, settings


def updated(*units):
    """Return 80 days of boards whose firmware was changed on day 60, from when on they are slower and draw more."""
    firmwares = ["a"] * 60 + ["b"] * 20
    values = [noisy(100, 80, seed=unit + 50, step_at=60, step_ratio=1.08) for unit in units]
    return [
        run
        for unit, values_of_unit in zip(units, values, strict=True)
        for run in make_days(values_of_unit, device=f"pi-{unit}", firmwares=firmwares)
    ]


STEPS = rules_of("step", "energy_gross_mj", "latency_p50_ms")


def test_an_event_opens_one_alert_while_its_members_are_found_day_by_day(file):
    """Four boards in two metrics: what is found first becomes part of the event, and nothing is said to be over before it is."""
    runs = updated(1, 2, 3, 4)
    events = []
    for day in (62, 63, 64, 66, 79):
        lately = [run for run in runs if run.started_at_ns < (FIRST_DAY + day) * DAY_NS]
        events += [event for event, _ in titles(at(lately, STEPS, file, day=day)) if event != "updated"]
    assert events == ["opened"]
    (alert,) = lifecycle.read_alerts(file, with_closed=True)
    assert len(alert.firing.members) == 8
    assert alert.firing.facts == {"fleet": "lab", "cause": "firmware a to b"}


def test_a_change_too_small_for_each_board_is_found_on_their_type_and_reported_once(file):
    """Two cases of twelve boards, by 4.5% at 5% of noise: no step of a board, two of the type."""
    runs = []
    for unit in range(12):
        for case in (0, 1):
            values = noisy(100, 80, seed=unit + 100 * case, noise_ratio=0.05, step_at=60, step_ratio=1.045)
            runs += make_days(values, device=f"pi-{unit}", precision=("fp32", "int8")[case], seq=1000 * case)
    result = at(runs, rules_of("step"), file, day=80, is_dry=True)
    assert [title for _, title in titles(result)] == ["fleet, worse: all Raspberry Pi 5 Model B Rev 1.0"]


def test_acknowledging_an_event_begins_a_new_level_in_each_of_its_series(file):
    """On the day of each; the next check finds nothing more to alert."""
    at(updated(1, 2), STEPS, file, day=80)
    lifecycle.acknowledge(file, 1, "the new firmware is slower")
    assert len({(annotation.device, annotation.metric) for annotation in read_annotations(file)}) == 4
    assert [event for event, _ in titles(at(updated(1, 2), STEPS, file, day=80))] == ["closed"]


def test_a_limit_alerts_while_the_level_is_beyond_it(file):
    """Above 105 mJ; with a limit of 120 there is silence; an accuracy below is another."""
    runs = make_days(STEPPED)

    for metric, limit, count in (
        ("energy_gross_mj", {"above": 105.0}, 1),
        ("energy_gross_mj", {"above": 120.0}, 0),
        ("accuracy_value", {"below": 0.7}, 1),
    ):
        assert len(titles(at(runs, rules_of("limit", metric, **limit), file, day=70, is_dry=True))) == count, (metric, limit)


def test_a_verdict_that_went_invalid_alerts_and_recovers(file):
    """The two newest runs are invalid; a valid one after them closes the alert."""
    rules = rules_of("invalid", runs=2)
    bad = make_days([None] * 10 + [100.0, 100.0], seq=10, verdict=violating("invalid", "answers"))
    runs = make_days(noisy(100, 10)) + bad
    assert [event for event, _ in titles(at(runs, rules, file, day=12))] == ["opened"]
    runs += make_days([None] * 12 + [100.0], seq=20)
    assert [event for event, _ in titles(at(runs, rules, file, day=13))] == ["closed"]


def test_a_gap_a_drift_and_a_board_with_an_issue_alert_by_their_rules(file):
    """Each kind speaks for itself; two signs of one board are one alert."""
    runs = make_days(np.array(noisy(100, 100, seed=3)) * np.exp(np.linspace(0, 0.08, 100)))
    for unit in range(8):
        runs += make_days(noisy(140 if unit == 4 else 100, 90, seed=60 + unit), device=f"board-{unit}")
    kinds = ("missing", "drift", "outlying-board")
    rules = AlertRules(rule=tuple(AlertRule(name=kind, kind=kind, metrics=("energy_gross_mj",)) for kind in kinds))
    opened = [title for _, title in titles(at(runs, rules, file, day=100, is_dry=True))]
    assert sum(title.startswith("missing") for title in opened) == 7
    assert [title for title in opened if title.startswith("drift")] == ["drift: energy of tiny-detector fp32 on pi-1"]
    assert "needs attention: board-4: results missing, outlying board" in opened


def test_devices_that_are_lost_or_send_nothing_alert(tmp_path, file):
    """By what the ledger heard: a Will two hours ago; a board that is online and sent its last record three days ago."""
    path = tmp_path / "ledger.sqlite"
    runs = make_days(noisy(100, 20), device="pi-1") + make_days(noisy(100, 20), device="pi-2")
    last_ns = (FIRST_DAY + 19) * DAY_NS
    with SqliteLedger(path) as ledger:
        ledger.commit([arrival(run, run.started_at_ns) for run in runs])
        states = [("pi-1", "lost", last_ns + 3 * DAY_NS - 7_200_000_000_000), ("pi-2", "online", last_ns)]
        ledger.commit([], [], [PresenceChange("lab", device, DeviceState(state=state, session=1), when) for device, state, when in states])
    rules = AlertRules(
        rule=(AlertRule(name="lost", kind="device-lost", hours=1.0), AlertRule(name="stopped", kind="outbox-stopped", hours=24.0))
    )
    history = LedgerHistory(path)
    result = check_alerts(history, str(path), file, rules, last_ns + 3 * DAY_NS)
    assert titles(result) == [("opened", "device lost: pi-1"), ("opened", "outbox stopped: pi-2")]
    history.close()


def test_a_dry_run_writes_and_sends_nothing(file):
    """It says what would happen."""
    channel = Channel(name="chat", kind="webhook", url="http://127.0.0.1:1")
    rules = AlertRules(rule=rules_of("step", channels=("chat",)).rule, channel=(channel,))
    result = at(make_days(STEPPED), rules, file, day=70, is_dry=True)
    assert len(result.changes) == 1
    assert result.sent == ()
    assert lifecycle.read_alerts(file, with_closed=True) == []
