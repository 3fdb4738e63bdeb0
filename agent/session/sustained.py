"""A long run over time, and when it left the level of its first minute.

Latency, clock, temperature and power are given by intervals. A run throttles from the first of
three consecutive intervals in which the median latency exceeds the level by more than 5% and four
times the scatter of the level, or the clock is more than 5% below it. Of 2,000 seeded series of 180
intervals whose medians scatter by 1%, 2%, 3% and 5% around one level, 0, 0.15%, 2.1% and 4.5% count
as throttled. A step up by 20% in the middle is found in 100%, 100%, 98% and 81%, nearly always in
its interval.
"""

import statistics
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.contract import samples
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_conditions import Condition
from edgemeter.agent.contract.record_figures import CurvePoint, Steady, Sustained
from edgemeter.agent.energy.curve import Curve
from edgemeter.agent.energy.sampler import SensorTrace
from edgemeter.agent.energy.window import Window
from edgemeter.agent.engine.job import MeasuredRun
from edgemeter.agent.engine.scenarios import steady
from edgemeter.agent.engine.scenarios.generation_statistics import MOMENTS, TokenMoments, tpot_ns
from edgemeter.agent.power.detect import scope_rank

INTERVALS = 180
SHORTEST_S = 1.0
LEVEL_S = 60.0
LEVEL_SHARE = 3
FEWEST_LEVEL = 3
IN_A_ROW = 3
LEFT_RATIO = 0.05
SCATTERS = 4.0
# From the median absolute deviation to the standard deviation of a normal distribution.
NORMAL = 1.4826

# Conditions of the machine, each with its time, monotonic ns.
TimedConditions = Sequence[tuple[int, Condition]]


def sustained_of(
    run: MeasuredRun | RunRecord,
    timed: Window,
    conditions: TimedConditions,
    traces: Sequence[SensorTrace],
) -> Sustained:
    """Return the curve of a run from its raw samples and the readings during it."""
    series = {
        entry.name: samples.unpack(entry)
        for entry in run.samples
        if entry.name in ("query_start", "arrival", *MOMENTS)
    }
    latency_ns = series["latency"]
    if run.steady is not None:
        # The wait of a frame shows the queue, not the model.
        latency_ns = latency_ns - (series["query_start"] - series["arrival"])
    length_s = timed.length_ns / 1e9
    interval_s = max(SHORTEST_S, length_s / INTERVALS)
    places = (series["query_start"] / 1e9 // interval_s).astype(np.int64)
    power = _power(traces)
    points = tuple(
        _point(
            latency_ns[places == number],
            timed.start_ns,
            (number * interval_s, interval_s),
            conditions,
            power,
        )
        for number in range(max(1, round(length_s / interval_s)))
    )
    if run.generation is not None and (moments := TokenMoments.of_series(series)):
        points = _with_tpot(points, places, moments)
    if run.steady is not None:
        points = _with_missed(points, interval_s, run.steady, series["arrival"], series["latency"])
    return judged(points, interval_s)


def _point(
    latency_ns: NDArray[np.int64],
    start_ns: int,
    start_and_length_s: tuple[float, float],
    conditions: TimedConditions,
    power: Curve | None,
) -> CurvePoint:
    t_s, interval_s = start_and_length_s
    window = Window(start_ns + int(t_s * 1e9), start_ns + int((t_s + interval_s) * 1e9))
    conditions_within = [
        condition
        for taken_ns, condition in conditions
        if window.start_ns <= taken_ns < window.end_ns
    ]
    clocks = [
        condition.clock_hz for condition in conditions_within if condition.clock_hz is not None
    ]
    hottest = [
        max(condition.temperatures_c.values())
        for condition in conditions_within
        if condition.temperatures_c
    ]
    return CurvePoint(
        p50_ms=float(np.median(latency_ns)) / 1e6 if latency_ns.size else None,
        clock_hz=statistics.fmean(clocks) if clocks else None,
        temperature_c=statistics.fmean(hottest) if hottest else None,
        power_w=power.mean_w(window) if power else None,
    )


def _with_tpot(
    points: Sequence[CurvePoint], places: NDArray[np.int64], moments: TokenMoments
) -> tuple[CurvePoint, ...]:
    each_ms, where = tpot_ns(moments) / 1e6, places[moments.later_tokens() > 0]
    medians = [
        float(np.median(each_ms[where == number])) if np.any(where == number) else None
        for number in range(len(points))
    ]
    return tuple(
        msgspec.structs.replace(point, tpot_ms=median)
        for point, median in zip(points, medians, strict=True)
    )


def _with_missed(
    points: Sequence[CurvePoint],
    interval_s: float,
    of_run: Steady,
    arrivals_ns: NDArray[np.int64],
    latency_ns: NDArray[np.int64],
) -> tuple[CurvePoint, ...]:
    schedule = steady.schedule_of_record(of_run)
    # A remainder that is too short for an interval is left out, as for queries.
    edges_ns = [round(number * interval_s * 1e9) for number in range(len(points))]
    edges_ns.append(min(round(len(points) * interval_s * 1e9), schedule.length_ns))
    missed = steady.missed_between(
        schedule, steady.in_time(schedule, arrivals_ns, latency_ns), edges_ns
    )
    return tuple(
        msgspec.structs.replace(point, missed=count)
        for point, count in zip(points, missed, strict=True)
    )


def _power(traces: Sequence[SensorTrace]) -> Curve | None:
    """Return the curve of the sensor with the widest scope; None without readings."""
    sensor_readings = [
        (trace.description, trace.readings)
        for trace in traces
        if trace.description and len(trace.readings) > 1
    ]
    if not sensor_readings:
        return None
    description, readings = min(sensor_readings, key=lambda pair: scope_rank(pair[0].scope))
    return Curve(readings, description)


def judged(points: tuple[CurvePoint, ...], interval_s: float) -> Sustained:
    """Return the curve with the levels of its first minute, and the time when it left them.

    In a short curve it is the first third.
    """
    first = max(FEWEST_LEVEL, min(int(LEVEL_S // interval_s), len(points) // LEVEL_SHARE))
    latency, clock = (
        _level(points[:first], lambda point: point.p50_ms),
        _level(points[:first], lambda point: point.clock_hz),
    )
    departures: dict[Literal["latency", "clock"], int | None] = {}
    if latency:
        limit_ms = latency[0] + max(LEFT_RATIO * latency[0], SCATTERS * latency[1])
        beyond = [
            None if point.p50_ms is None else point.p50_ms > limit_ms for point in points[first:]
        ]
        departures["latency"] = _left(beyond)
    if clock:
        limit_hz = clock[0] * (1 - LEFT_RATIO)
        beyond = [
            None if point.clock_hz is None else point.clock_hz < limit_hz
            for point in points[first:]
        ]
        departures["clock"] = _left(beyond)
    left_at = {
        quantity: first + number for quantity, number in departures.items() if number is not None
    }
    return Sustained(
        interval_s=interval_s,
        points=points,
        level_p50_ms=latency[0] if latency else None,
        throttled_after_s=min(left_at.values()) * interval_s if left_at else None,
        throttled_by=tuple(left_at),
    )


def _level(
    points: Sequence[CurvePoint], value: Callable[[CurvePoint], float | None]
) -> tuple[float, float] | None:
    """Return median and scatter of the values; None with fewer than three."""
    values = [number for point in points if (number := value(point)) is not None]
    if len(values) < FEWEST_LEVEL:
        return None
    level = statistics.median(values)
    return level, NORMAL * statistics.median(abs(number - level) for number in values)


def _left(are_beyond: Sequence[bool | None]) -> int | None:
    """Return the number of the first of three consecutive intervals beyond the limit.

    Unknown ones (None) are skipped.
    """
    row: list[int] = []
    for number, is_beyond in enumerate(are_beyond):
        if is_beyond is None:
            continue
        row = [*row, number] if is_beyond else []
        if len(row) == IN_A_ROW:
            return row[0]
    return None
