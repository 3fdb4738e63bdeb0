import numpy as np
import pytest
from msgspec.structs import replace

from edgemeter.agent.ledger.run_row import RUN_COLUMNS, row_of
from edgemeter.collector.trend import watch, watch_file
from edgemeter.collector.trend.watch_file import Annotation
from tests.fixtures.comparison_factory import history_of
from tests.fixtures.record_factory import make_accuracy, make_latency, violating
from tests.fixtures.series_factory import DAY_NS, FIRST_DAY, make_days, noisy


def trend(runs, metric="energy_gross_mj", annotations=()):
    (series_trend,) = watch.trends_of(history_of(runs), annotations, [metric])
    return series_trend


def test_a_step_is_reported_with_size_interval_day_and_what_it_rests_on():
    """The step is five per cent from day 60 on, at 1% noise."""
    (step,) = trend(make_days(noisy(100, 90, step_at=60, step_ratio=1.05))).steps
    assert step.low < 5.0 < step.high
    assert step.high - step.low < 3
    assert step.day_low <= FIRST_DAY + 60 <= step.day_high
    assert (step.state, step.is_worse, step.matters) == ("confirmed", True, True)
    assert (step.days_before + step.days_after, step.runs_before + step.runs_after) == (90, 90)
    assert step.before == pytest.approx(100, rel=0.01)
    assert step.after == pytest.approx(105, rel=0.01)
    assert step.candidates == ()


def test_what_changed_on_that_day_is_named():
    """A firmware, runtime or meter of that day is beside the step, and the series goes on.

    A change on another day is not.
    """
    values = noisy(100, 90, seed=2, step_at=60, step_ratio=1.05)
    same = trend(make_days(values, firmwares=["a"] * 60 + ["b"] * 30))
    other = trend(make_days(values, firmwares=["a"] * 30 + ["b"] * 60))
    assert same.steps[0].candidates == ("firmware a to b",)
    assert same.steps[0].day == FIRST_DAY + 60
    assert other.steps[0].candidates == ()
    early, late = make_days(noisy(100, 60, seed=3)), [None] * 60 + noisy(107, 30, seed=4)
    (by_runtime,) = trend(early + make_days(late, seq=60, version="1.23.0")).steps
    assert by_runtime.candidates == ("runtime onnxruntime 1.22.1 to onnxruntime 1.23.0",)
    metered = [
        replace(run, energy=replace(run.energy, sensor="ina226")) for run in make_days(late, seq=60)
    ]
    (by_meter,) = trend(early + metered).steps
    assert by_meter.candidates == ("meter ina219 to ina226",)


def test_another_scope_is_another_series_of_days():
    """Energies at the wall are not compared with those of the board's input.

    The older kind is left out and counted.
    """
    early = make_days(noisy(100, 40, seed=5))
    late = [
        replace(run, energy=replace(run.energy, scope="wall-ac"))
        for run in make_days([None] * 40 + noisy(140, 40, seed=6), seq=40)
    ]
    result = trend(early + late)
    assert (result.steps, result.left_out, result.points) == ((), 40, 40)


def test_temperature_alone_is_no_finding_and_its_coefficient_is():
    """Half a per cent a degree over a season of sixteen degrees is no finding.

    Without thermometers it would be one.
    """
    draw = np.random.default_rng(7)
    warmth = 45 + 8 * np.sin(np.linspace(0, 5, 110)) + draw.normal(size=110)
    values = 100 * np.exp(0.005 * (warmth - 45) + 0.006 * draw.normal(size=110))
    blind = trend(make_days(values))
    result = trend(make_days(values, temperatures_c=warmth))
    assert blind.steps or blind.drift
    assert (result.steps, result.unconfirmed, result.drift) == ((), None, None)
    assert result.temperature_slope == pytest.approx(0.5, abs=4 * result.temperature_slope_u)


def test_a_drift_is_reported_as_a_drift():
    """The level moves steadily, by six per cent in a hundred days."""
    result = trend(make_days(np.array(noisy(100, 100, seed=8)) * np.exp(np.linspace(0, 0.06, 100))))
    assert result.steps == ()
    assert result.drift.low < 1.8 < result.drift.high
    assert result.drift.is_worse


def test_a_gap_at_the_end_is_missing_until_the_series_is_over():
    """Ten days without a run are a gap, two are none, a hundred are the end of the series."""
    result = trend(make_days(noisy(100, 30, seed=11)))
    last = FIRST_DAY + 29
    assert result.missing(last + 2) is None
    assert result.missing(last + 10).silent_days == 10
    assert result.missing(last + 100) is None


def test_runs_that_are_not_ok_and_energies_that_are_not_resolved_do_not_count():
    """Invalid runs at ten times the energy move nothing.

    A net energy lost in noise is no point, nor is a latency of too few queries.
    """
    good, bad = noisy(100, 60, seed=12), noisy(1000, 7, seed=13)
    runs = make_days(good) + make_days(
        [None] * 60 + bad, seq=60, verdict=violating("invalid", "busy-machine")
    )
    result = trend(runs)
    assert (result.steps, result.points, result.not_ok) == ((), 60, 7)
    lost = [replace(run, energy=replace(run.energy, net_mj=None)) for run in make_days(good)]
    assert watch.trends_of(history_of(lost), (), ["energy_net_mj"]) == []
    assert (
        watch.trends_of(
            history_of([make_days([100.0], latency=make_latency(p50_ms=None, p90_ms=None))[0]]),
            (),
            ["latency_p50_ms"],
        )
        == []
    )


def test_one_wild_day_is_no_step():
    """A single day has twice the energy, as when somebody else used the board."""
    values = noisy(100, 80, seed=14)
    values[70] *= 2
    result = trend(make_days(values))
    assert result.steps == ()


def test_a_step_that_does_not_matter_is_called_small():
    """One per cent at 0.1% noise is certain, and less than the 3% that matter."""
    (step,) = trend(
        make_days(noisy(100, 80, seed=15, noise_ratio=0.001, step_at=50, step_ratio=1.01))
    ).steps
    assert step.matters is False
    assert step.low < 1.0 < step.high


def test_a_step_that_may_matter_waits_for_thirty_days():
    """A step of 2.2% at 1.5% noise may be the 3% that matter, and is unconfirmed until then."""
    values = noisy(100, 130, seed=4, noise_ratio=0.015, step_at=80, step_ratio=1.022)
    early, late = trend(make_days(values[:105])), trend(make_days(values))
    assert (early.steps, early.unconfirmed is not None, len(late.steps), late.unconfirmed) == (
        (),
        True,
        1,
        None,
    )


def test_a_level_that_returns_within_weeks_is_no_step():
    """A rise of 8% for twenty days in the middle of two hundred is no step.

    Where the firmware changed, there are two steps that name it.
    """
    values = np.array(noisy(100, 200, seed=16))
    values[90:110] *= 1.08
    assert trend(make_days(values)).steps == ()
    up, down = trend(make_days(values, firmwares=["a"] * 90 + ["b"] * 20 + ["a"] * 90)).steps
    assert (up.candidates, down.candidates) == (("firmware a to b",), ("firmware b to a",))
    assert (up.is_worse, down.is_worse) == (True, False)


def test_an_annotation_begins_a_new_level_and_history_stays():
    """A new power supply on day 60 is a declared step of -6%, with its size.

    The earlier step of day 25 is still there.
    """
    values = np.array(noisy(100, 100, seed=17, step_at=25, step_ratio=1.1))
    values[60:] *= 0.94
    annotations = [Annotation(FIRST_DAY + 60, "new power supply", device="pi-1")]
    result = trend(make_days(values), annotations=annotations)
    first, second = result.steps
    assert (first.state, second.state, second.candidates) == (
        "confirmed",
        "declared",
        ("new power supply",),
    )
    assert second.low < -6 < second.high
    assert result.begin_day == FIRST_DAY + 60
    for other in (
        Annotation(FIRST_DAY + 60, "of another board", device="pi-2"),
        Annotation(FIRST_DAY + 60, "moved", begins_level=False),
    ):
        assert trend(make_days(values), annotations=[other]).steps == trend(make_days(values)).steps


def test_an_accuracy_that_falls_is_worse_and_one_that_never_changes_has_no_finding():
    """The accuracy falls by ten points, after the same value every day."""
    runs = make_days(noisy(100, 60, seed=18))
    fallen = [
        replace(run, accuracy=make_accuracy(value=0.6 if index < 40 else 0.5))
        for index, run in enumerate(runs)
    ]
    (step,) = trend(fallen, "accuracy_value").steps
    assert (step.day, step.is_worse, step.size) == (
        FIRST_DAY + 40,
        True,
        pytest.approx(-10, abs=0.1),
    )
    assert trend(runs, "accuracy_value").steps == ()


def test_a_board_that_begins_to_throttle_is_found_by_its_share():
    """The board never throttles in 60 days, then in four runs of five."""
    hot = violating("disturbed", "throttled")
    runs = make_days([100.0] * 90, runs_a_day=3)
    runs = [
        replace(run, verdict=hot)
        if run.started_at_ns >= (FIRST_DAY + 60) * DAY_NS and index % 5
        else run
        for index, run in enumerate(runs)
    ]
    (step,) = trend(runs, "is_throttled").steps
    assert abs(step.day - FIRST_DAY - 60) <= 2
    assert (step.before, step.after) == (pytest.approx(0, abs=0.05), pytest.approx(0.8, abs=0.1))


def test_a_run_of_a_device_that_does_not_know_the_time_is_placed_by_its_receipt():
    """The device's own clock is five days behind."""
    run = replace(
        make_days([100.0])[0], started_at_ns=(FIRST_DAY - 5) * DAY_NS, clock_synchronised=False
    )
    index = RUN_COLUMNS.index("at_ns")
    assert row_of(run, FIRST_DAY * DAY_NS + 7).values[index] == FIRST_DAY * DAY_NS + 7
    assert (
        row_of(replace(run, clock_synchronised=True), FIRST_DAY * DAY_NS).values[index]
        == run.started_at_ns
    )


def test_cuts_are_those_of_the_series_and_of_all():
    """An annotation without a device is about every device.

    Another fleet's is about none of these.
    """
    (key,) = history_of(make_days([100.0])).series()
    annotations = [
        Annotation(5, "all"),
        Annotation(5, "mine", device="pi-1"),
        Annotation(7, "theirs", fleet="other"),
        Annotation(9, "ap", metric="accuracy_value"),
    ]
    assert watch_file.cuts(annotations, key, "energy_gross_mj") == {5: "all; mine"}


def test_a_step_that_came_long_ago_has_an_interval_too():
    """A board throttled for a while, then never again.

    A step that is located again stays where it can be detected.
    """
    throttled = {10, 74, 77, 78, 79, 80, 84, 106, 125, 130, 160, 188, 241, 296}
    runs = make_days(noisy(100, 300, seed=1))
    conditions = [
        replace(run.conditions[0], throttled_now=day in throttled) for day, run in enumerate(runs)
    ]
    result = trend(
        [
            replace(run, conditions=(condition,))
            for run, condition in zip(runs, conditions, strict=True)
        ],
        "is_throttled",
    )
    assert result.steps
    assert all(np.isfinite([step.low, step.high]).all() and step.size != 0 for step in result.steps)
