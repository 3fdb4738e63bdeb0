"""Test which findings fire.

One cause is one firing, a board's strongest sign explains the others, and a second step is news.
"""

import msgspec
import numpy as np
import pytest

from edgemeter.agent.ledger.presence import DevicePresence
from edgemeter.collector.alerts.check import settled
from edgemeter.collector.alerts.firing import FiringContext, common_facts, firings, page_address
from edgemeter.collector.alerts.rules import AlertRule
from tests.fixtures.comparison_factory import history_of
from tests.fixtures.record_factory import violating
from tests.fixtures.rows import table_row
from tests.fixtures.series_factory import DAY_NS, FIRST_DAY, make_days, noisy

STEPPED = noisy(100, 70, step_at=55, step_ratio=1.09)
STEP = AlertRule(name="step", kind="step", metrics=("energy_gross_mj",))
LOST = AlertRule(name="lost", kind="device-lost", hours=1.0)
STOPPED = AlertRule(name="stopped", kind="outbox-stopped")
MISSING = AlertRule(name="missing", kind="missing", metrics=("energy_gross_mj",))
LIMIT = AlertRule(name="limit", kind="limit", metrics=("energy_gross_mj",))
OUTLYING = AlertRule(name="outlying", kind="outlying-board", metrics=("energy_gross_mj",))


@pytest.fixture(scope="module")
def fleet():
    """Return the runs of eight boards over 90 days.

    One board draws 40% more and ends 20 days before the others.
    """
    days = {unit: 70 if unit == 4 else 90 for unit in range(8)}
    return [
        run
        for unit, count in days.items()
        for run in make_days(
            noisy(140 if unit == 4 else 100, count, seed=60 + unit), device=f"pi-{unit}"
        )
    ]


def presence(device, state, day):
    """Return the state of a device that it has had since a day of the series."""
    changed_ns = (FIRST_DAY + day) * DAY_NS
    return DevicePresence("lab", device, state, 1, None, changed_ns)


def fired(rules, runs, day, *devices):
    return firings(rules, FiringContext(history_of(runs), (), devices, (FIRST_DAY + day) * DAY_NS))


def titles(fired_now):
    return [alert.title for alert in fired_now if not alert.is_explained]


def test_a_rule_fires_on_what_it_names_as_long_as_that_is_news():
    """A rule fires on a step, a level beyond its limit, or a drift.

    A step is news for two months; less energy by nine per cent fires where both directions are
    asked for.
    """
    stepped, better = make_days(STEPPED), make_days(noisy(100, 70, step_at=55, step_ratio=0.91))
    drifting = make_days(np.array(noisy(100, 100, seed=3)) * np.exp(np.linspace(0, 0.08, 100)))
    both = msgspec.structs.replace(STEP, direction="both")
    step, drift = (f"{kind}: energy of tiny-detector fp32 on pi-1" for kind in ("step", "drift"))
    for rule, runs, day, expected in (
        (STEP, stepped, 70, [step]),
        (STEP, stepped, 71, [step]),
        (STEP, stepped, 116, []),
        (STEP, better, 70, []),
        (both, better, 70, [step]),
        (msgspec.structs.replace(both, at_least=20.0), better, 70, []),
        (
            msgspec.structs.replace(LIMIT, above=105.0),
            stepped,
            70,
            ["limit: energy of tiny-detector fp32 on pi-1"],
        ),
        (msgspec.structs.replace(LIMIT, above=120.0), stepped, 70, []),
        (
            msgspec.structs.replace(LIMIT, metrics=("accuracy_value",), below=0.7),
            stepped,
            70,
            ["limit: accuracy of tiny-detector fp32 on pi-1"],
        ),
        (AlertRule(name="drift", kind="drift", metrics=STEP.metrics), drifting, 100, [drift]),
    ):
        with table_row(rule, day):
            assert titles(fired((rule,), runs, day)) == expected


def test_of_the_signs_of_a_failing_board_the_strongest_is_told(fleet):
    """A lost board explains its high power draw and its missing results.

    A channel that is not told of the loss hears the other signs.
    """
    rules = (OUTLYING, MISSING, LOST, STOPPED)
    lost = fired(rules, fleet, 80, presence("pi-4", "lost", 79))
    assert titles(lost) == ["device lost: pi-4"]
    assert len(lost) == 3
    assert common_facts(lost[-1].findings) == {"fleet": "lab", "device": "pi-4"}
    assert page_address(lost[-1].findings) == {"view": "device", "fleet": "lab", "device": "pi-4"}
    assert titles(fired(rules, fleet, 80, presence("pi-4", "online", 60))) == [
        "outbox stopped: pi-4"
    ]
    to_pager = msgspec.structs.replace(LOST, channels=("pager",))
    to_chat = msgspec.structs.replace(OUTLYING, channels=("chat",))
    assert len(titles(fired((to_chat, to_pager), fleet, 80, presence("pi-4", "lost", 79)))) == 2


def test_a_second_step_opens_an_alert_of_its_own_however_its_first_day_was_estimated():
    """Two near steps are two alerts although the estimated first day wanders between them.

    They are eight per cent on day 50 and fifteen more on day 60.
    """
    values = np.array(noisy(100, 70, seed=3, noise_ratio=0.02, step_at=50, step_ratio=1.08))
    values[60:] *= 1.15
    alerts, opened = {}, []
    for day in range(54, 70):
        changes = settled(
            list(alerts.values()),
            fired((STEP,), make_days(values[:day]), day),
            (FIRST_DAY + day) * DAY_NS,
        )
        alerts |= {alert.number: alert for _, alert in changes}
        opened += [alert.number for event, alert in changes if event == "opened"]
    assert opened == [1, 2]
    (alert,) = [alert for alert in alerts.values() if alert.closed_ns is None]
    (finding,) = alert.findings
    assert (alert.number, abs(finding.day - FIRST_DAY - 60) <= 1) == (2, True)


def test_one_firmware_on_four_boards_is_one_alert_from_its_first_finding_on():
    """The first finding becomes part of the event, which has the facts of all findings.

    There are two metrics of four boards.
    """
    firmwares = ["a"] * 60 + ["b"] * 20
    runs = [
        run
        for unit in (1, 2, 3, 4)
        for run in make_days(
            noisy(100, 80, seed=unit + 50, step_at=60, step_ratio=1.08),
            device=f"pi-{unit}",
            firmwares=firmwares,
        )
    ]
    rule = AlertRule(name="step", kind="step", metrics=("energy_gross_mj", "latency_p50_ms"))
    alerts, events = {}, []
    for day in (62, 63, 64, 66, 79):
        lately = [run for run in runs if run.started_at_ns < (FIRST_DAY + day) * DAY_NS]
        changes = settled(
            list(alerts.values()), fired((rule,), lately, day), (FIRST_DAY + day) * DAY_NS
        )
        alerts |= {alert.number: alert for _, alert in changes}
        events += [event for event, _ in changes if event in ("opened", "closed")]
    assert events == ["opened"]
    (alert,) = alerts.values()
    assert len(alert.findings) == 8
    assert "changed with it: firmware a to b" in alert.text
    fields = page_address(alert.findings)
    assert (fields["view"], fields["model"], "device" in fields) == (
        "trend",
        "tiny-detector",
        False,
    )


def test_a_change_too_small_for_each_board_is_found_on_their_type_and_reported_once():
    """A change of 4.5% at 5% of noise is no step of a board, but two of the type.

    There are two cases of twelve boards.
    """
    runs = []
    for unit in range(12):
        for case in (0, 1):
            values = noisy(
                100, 80, seed=unit + 100 * case, noise_ratio=0.05, step_at=60, step_ratio=1.045
            )
            runs += make_days(
                values, device=f"pi-{unit}", precision=("fp32", "int8")[case], seq=1000 * case
            )
    assert titles(fired((STEP,), runs, 80)) == ["fleet, worse: all Raspberry Pi 5 Model B Rev 1.0"]


def test_a_verdict_that_went_invalid_fires_until_a_valid_run():
    """The rule fires for two invalid runs and no longer after a valid one."""
    rule = AlertRule(name="invalid", kind="invalid", runs=2)
    runs = make_days(noisy(100, 10)) + make_days(
        [None] * 10 + [100.0, 100.0], seq=10, verdict=violating("invalid", "answers")
    )
    assert len(fired((rule,), runs, 12)) == 1
    assert fired((rule,), runs + make_days([None] * 12 + [100.0], seq=20), 13) == []
