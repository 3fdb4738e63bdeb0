import numpy as np
import pytest

from edgemeter.agent.contract import samples
from edgemeter.agent.contract.record_conditions import Condition
from edgemeter.agent.contract.record_figures import CurvePoint
from edgemeter.agent.energy import window
from edgemeter.agent.energy.sampler import SensorTrace
from edgemeter.agent.engine import schedule
from edgemeter.agent.engine.scenarios import scenario, steady
from edgemeter.agent.power import Description, Reading
from edgemeter.agent.session import sustained
from tests.fixtures.measured_factory import measured
from tests.fixtures.record_factory import make_generation
from tests.fixtures.timing_world import World, plan

START_NS = 5_000_000_000
QUERY_NS = 50_000_000


def half_an_hour(slower_after_s=None, ratio=1.25):
    """Return a run of 30 minutes of 50 ms queries on a compressed clock.

    After `slower_after_s` the queries take `ratio` times as long.
    """
    latency, starts, now = [], [], 0
    while now < 1_800_000_000_000:
        starts.append(now)
        latency.append(
            int(QUERY_NS * ratio)
            if slower_after_s is not None and now >= slower_after_s * 1e9
            else QUERY_NS
        )
        now += latency[-1]
    series = (
        samples.pack("latency", "ns", np.array(latency)),
        samples.pack("query_start", "ns", np.array(starts)),
    )
    return measured(samples=series, timed=window.Window(START_NS, START_NS + now))


def curve_of(run, conditions, traces):
    return sustained.sustained_of(run, run.timed, conditions, traces)


def looks(clock_hz, temperature_c):
    """Return what a watcher saw every 2 s, by functions of the time in seconds."""
    return [
        (
            START_NS + int(t_s * 1e9),
            Condition(
                when="during",
                clock_hz=clock_hz(t_s),
                temperatures_c={"cpu": temperature_c(t_s), "board": 20.0},
            ),
        )
        for t_s in np.arange(0.25, 1800, 2.0)
    ]


def test_a_steady_run_never_throttles():
    """The curve has 180 points of 10 s, each with its median; no sensor and no clock give null."""
    curve = curve_of(half_an_hour(), [], [])
    assert (len(curve.points), curve.interval_s) == (180, pytest.approx(10.0, rel=1e-3))
    assert {point.p50_ms for point in curve.points} == {50.0}
    assert (curve.level_p50_ms, curve.throttled_after_s, curve.throttled_by) == (50.0, None, ())
    assert (curve.points[3].clock_hz, curve.points[3].temperature_c, curve.points[3].power_w) == (
        None,
        None,
        None,
    )


def test_a_latency_that_steps_up_is_dated():
    """A step of a quarter after 700 s is found there, with its numbers."""
    curve = curve_of(half_an_hour(700), [], [])
    assert curve.throttled_after_s == pytest.approx(700, abs=10)
    assert curve.throttled_by == ("latency",)


def test_a_clock_that_falls_is_dated_and_temperature_is_the_hottest_sensor():
    """The clock drops from 2.4 to 1.8 GHz after 500 s while the latency stays.

    The latency may stay because, for example, the model waits for memory.
    """
    conditions = looks(lambda t_s: 2.4e9 if t_s < 500 else 1.8e9, lambda t_s: 40 + t_s / 60)
    curve = curve_of(half_an_hour(), conditions, [])
    assert curve.throttled_after_s == pytest.approx(500, abs=10)
    assert curve.throttled_by == ("clock",)
    assert curve.points[120].temperature_c == pytest.approx(60.0, abs=0.3)


def test_power_is_that_of_the_widest_sensor_by_interval():
    """The trace is the wall meter's and not the package's: 5 W, then 8 W."""
    readings = tuple(
        Reading(START_NS + s * 1_000_000_000, power_w=5.0 if s < 900 else 8.0) for s in range(1801)
    )
    narrow = tuple(Reading(reading.taken_ns, power_w=1.0) for reading in readings)
    traces = [
        SensorTrace("a", Description("a", "cpu-package", (), "power", 1000.0, 0.1, None), narrow),
        SensorTrace("b", Description("b", "wall-ac", (), "power", 1000.0, 0.1, None), readings),
    ]
    points = curve_of(half_an_hour(), [], traces).points
    assert (points[10].power_w, points[170].power_w) == (pytest.approx(5.0), pytest.approx(8.0))


def test_a_short_slowness_is_no_throttling():
    """Two slow intervals in a row are too few, and an interval without a query is skipped."""
    values = [5.0] * 20 + [9.0, 9.0] + [5.0] * 10 + [9.0, None, 9.0] + [5.0] * 10
    points = tuple(CurvePoint(p50_ms=value) for value in values)
    assert sustained.judged(points, 10.0).throttled_after_s is None


@pytest.mark.parametrize(
    ("scatter_ratio", "false_alarms", "detections", "series"),
    [
        (0.02, 0.05, 0.95, 20),
        *[
            pytest.param(*rates, 400, marks=pytest.mark.nightly)
            for rates in ((0.01, 0.002, 0.99), (0.02, 0.01, 0.98), (0.03, 0.04, 0.95))
        ],
    ],
)
def test_false_alarms_are_rare_and_a_fifth_slower_is_found(
    scatter_ratio, false_alarms, detections, series
):
    """The rates of the docstring hold on 400 seeded series each."""
    draw = np.random.default_rng(21)

    def throttles(level):
        medians = 5 * level * (1 + scatter_ratio * draw.standard_normal(180))
        points = tuple(CurvePoint(p50_ms=float(value)) for value in medians)
        return sustained.judged(points, 10.0).throttled_after_s is not None

    step = np.where(np.arange(180) < 90, 1.0, 1.2)
    assert np.mean([throttles(np.ones(180)) for _ in range(series)]) <= false_alarms
    assert np.mean([throttles(step) for _ in range(series)]) >= detections


def test_a_language_model_has_its_tpot_by_interval():
    """Queries of 1 s, for ten minutes, have 100 ms to the first token and then 9 steps.

    The steps take 50% longer from half-time on.
    """
    steps_ns = np.repeat([100_000_000, 150_000_000], 300)
    token = (100_000_000 + steps_ns[:, None] * np.arange(10)).ravel()
    latency = 100_000_000 + 9 * steps_ns
    starts = np.concatenate(([0], np.cumsum(latency)[:-1]))
    run = measured(
        generation=make_generation(output_tokens=10),
        samples=(
            samples.pack("latency", "ns", latency),
            samples.pack("query_start", "ns", starts),
            samples.pack("first_token", "ns", np.full(600, 100_000_000)),
            samples.pack("token", "ns", token),
            samples.pack("output_tokens", "tokens", np.full(600, 10)),
        ),
        timed=window.Window(0, int(latency.sum())),
    )
    points = curve_of(run, [], []).points
    assert points[0].tpot_ms == pytest.approx(100.0)
    assert points[-1].tpot_ms == pytest.approx(150.0)
    assert curve_of(half_an_hour(), [], []).points[0].tpot_ms is None


def frames_run(script, **changes):
    """Return a run of frames that was played: 15 a second for ten minutes.

    Calls take the nanoseconds that the script gives by their number.
    """
    world = World(script)
    settings = {
        "queries": 1,
        "seconds": 600.0,
        "rate_per_s": 15.0,
        "deadline_ns": 60_000_000,
        "expected_ns": 40_000_000,
    } | changes
    timed = schedule.run_steady(world.ticking_watch(), plan(**settings))
    frames = window.Window(timed.begin_ns, timed.end_ns)
    series = scenario.time_series(timed, frames.start_ns)
    return timed, measured(
        samples=series,
        timed=frames,
        steady=steady.steady_of(timed),
        load=scenario.load_of_timed(timed, 1, 15.0),
    )


def test_frames_that_are_missed_after_throttling_are_dated():
    """Calls of 50 ms from 300 s on throttle; calls of 70 ms from 400 s on miss frames.

    Until 300 s calls take 40 ms. Frames are missed from the interval of 400 s on.
    """
    _, run = frames_run(lambda call: (40 if call < 4500 else 50 if call < 6000 else 70) * 1_000_000)
    curve = curve_of(run, [], [])
    assert run.is_long_schedule
    assert len(curve.points) == 180
    assert curve.throttled_after_s == pytest.approx(300, abs=3.4)
    assert curve.level_p50_ms == pytest.approx(40, rel=0.01)
    assert (
        sum(point.missed for point in curve.points) == run.steady.dropped + run.steady.late == 3000
    )
    assert {
        point.missed
        for number, point in enumerate(curve.points)
        if (number + 1) * curve.interval_s < 400
    } == {0}
    # 50 frames in each interval of ten thirds of a second, and the last answer comes a little after
    # the schedule.
    assert {
        point.missed
        for number, point in enumerate(curve.points)
        if number * curve.interval_s >= 400
    } <= {49, 50, 51}


def test_less_than_a_minute_of_frames_has_no_curve():
    """899 frames at 15 a second are one short of a minute.

    Other loads have a curve in mode sustained only.
    """
    assert not frames_run(lambda _: 1_000_000, seconds=899 / 15)[1].is_long_schedule
    assert frames_run(lambda _: 1_000_000, seconds=60.0)[1].is_long_schedule
    assert not half_an_hour().is_long_schedule
