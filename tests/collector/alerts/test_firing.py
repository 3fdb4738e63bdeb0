"""Facts about what fires: the signs of one failing board are one alert, a second step is news, throttling reads as a sentence."""

import numpy as np
import pytest

from edgemeter.agent.ledger.presence import DevicePresence
from edgemeter.collector.alerts import lifecycle
from edgemeter.collector.alerts.firing import FiringContext, firings, page_address
from edgemeter.collector.alerts.rules import AlertRule
from edgemeter.collector.trend.history import RunHistory
from edgemeter.collector.trend.watch_file import WatchFile
from tests.fixtures.series_factory import DAY_NS, FIRST_DAY, make_days, noisy

HOUR_NS = 3_600_000_000_000
STEP = AlertRule(name="step", kind="step", metrics=("energy_gross_mj",))
LOST = AlertRule(name="lost", kind="device-lost", hours=1.0)
STOPPED = AlertRule(name="stopped", kind="outbox-stopped")
MISSING = AlertRule(name="missing", kind="missing", metrics=("energy_gross_mj",))
OUTLYING = AlertRule(name="outlying", kind="outlying-board", metrics=("energy_gross_mj",))


@pytest.fixture
def file(tmp_path):
    """Return a watch file."""
    with WatchFile(tmp_path / "w") as opened:
        yield opened


@pytest.fixture(scope="module")
def fleet():
    """Return the runs of eight boards of 90 days, of which one draws 40% more and ends 20 days before the others."""
    days = {unit: 70 if unit == 4 else 90 for unit in range(8)}
    return [
        run
        for unit, count in days.items()
        for run in make_days(noisy(140 if unit == 4 else 100, count, seed=60 + unit), device=f"pi-{unit}")
    ]


def presence(device, state, day):
    """Return the state of a device that it has had since a day of the series."""
    changed_ns = (FIRST_DAY + day) * DAY_NS
    return DevicePresence("lab", device, state, 1, None, changed_ns)


def check(file, rules, runs, day, *devices):
    """Return the events of a check on a day of the series, with the number of their alert."""
    now_ns = (FIRST_DAY + day) * DAY_NS
    fired = firings(rules, FiringContext(RunHistory(runs), (), devices, now_ns))
    return [(change.event, change.alert.number) for change in lifecycle.settle_alerts(file, fired, now_ns)]


def test_the_signs_of_a_failing_board_are_one_alert_that_lists_them(file, fleet):
    """It draws too much, its results are missing, its connection is lost: one alert, as severe as the most severe of its rules."""
    severe = AlertRule(name="lost", kind="device-lost", hours=1.0, severity="critical")
    assert check(file, (OUTLYING, MISSING, severe, STOPPED), fleet, 80, presence("pi-4", "lost", 79)) == [("opened", 1)]
    (alert,) = lifecycle.read_alerts(file)
    assert (alert.firing.rule, alert.firing.severity) == ("lost", "critical")
    assert alert.firing.facts == {"fleet": "lab", "device": "pi-4"}
    assert alert.firing.title == "needs attention: pi-4: outlying board, results missing, device lost"
    assert len(alert.firing.members) == 3
    assert page_address(alert.firing) == ("device", {"fleet": "lab", "device": "pi-4"})


def test_a_sign_that_joins_or_leaves_neither_opens_nor_closes_an_alert(file, fleet):
    """First it sends nothing, then it is lost, then it is back without results; the alert closes when the last sign is gone."""
    rules = (LOST, STOPPED, MISSING)
    assert check(file, rules, fleet, 72, presence("pi-4", "online", 60)) == [("opened", 1)]
    # Lost, where it was online: no sign of the first check is left.
    assert check(file, rules, fleet, 73, presence("pi-4", "lost", 72)) == [("updated", 1)]
    assert check(file, rules, fleet, 80, presence("pi-4", "lost", 72)) == [("updated", 1)]
    assert check(file, (LOST, MISSING), fleet, 81, presence("pi-4", "online", 81)) == [("updated", 1)]
    (alert,) = lifecycle.read_alerts(file)
    assert alert.firing.rule == "missing"
    assert check(file, (LOST,), fleet, 82, presence("pi-4", "online", 81)) == [("closed", 1)]


def test_a_joining_sign_that_is_as_severe_leaves_the_rule_as_it_is(file, fleet):
    """The rule is a label of Alertmanager and gives the channels: a label that changes would be another alert there."""
    rules = (STOPPED, OUTLYING, MISSING, LOST)
    check(file, rules[3:], fleet, 72, presence("pi-4", "lost", 71))
    assert check(file, rules, fleet, 80, presence("pi-4", "lost", 71)) == [("updated", 1)]
    (alert,) = lifecycle.read_alerts(file)
    assert (alert.firing.rule, len(alert.firing.members)) == ("lost", 3)
    with file.reading() as connection:
        assert connection.execute("SELECT rule FROM alerts").fetchall() == [("lost",)]


def test_rules_with_other_channels_keep_alerts_of_their_own(file, fleet):
    """Whoever gets only the lost boards hears of one, also if others know already that it draws too much."""
    to_others = AlertRule(name="lost", kind="device-lost", hours=1.0, channels=("pager",))
    assert check(file, (OUTLYING,), fleet, 80) == [("opened", 1)]
    assert check(file, (OUTLYING, to_others), fleet, 80, presence("pi-4", "lost", 79)) == [("opened", 2)]


def test_a_second_step_opens_an_alert_of_its_own_however_its_first_day_was_estimated(file):
    """Eight per cent on day 50, fifteen more on day 60: while both are near, the estimated first day wanders from one to the other."""
    values = np.array(noisy(100, 70, seed=3, noise_ratio=0.02, step_at=50, step_ratio=1.08))
    values[60:] *= 1.15
    events = [event for day in range(54, 70) for event in check(file, (STEP,), make_days(values[:day]), day)]
    assert [event for event in events if event[0] == "opened"] == [("opened", 1), ("opened", 2)]
    (alert,) = lifecycle.read_alerts(file)
    assert (alert.number, abs(alert.firing.day - FIRST_DAY - 60) <= 1) == (2, True)
