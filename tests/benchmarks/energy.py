"""How near our energy comes to the truth, and how often its interval holds it, beside the rules that other tools integrate by.

Synthetic loads of known energy are read by synthetic sensors: steps, noise, jitter, lost readings, averaging, counters; the gain and
offset of every sensor are drawn as its description says that they may be.

The rivals read the same load through the same sensor: `rectangle` adds power times time at ten regular reads a second; `halving` keeps
(new + old) / 2 once a second and takes its mean; `every_15_s` multiplies one reading by the 15 s before it.
"""

import math
import os
import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np

from edgemeter.agent.energy.per_inference import assess
from tests.benchmarks.burst_loads import Array, Bursts, Load, Meter, Sensor, run_of
from tests.benchmarks.comparison import Comparison, against, covered

TRIALS = 1000
MEAN_ERROR_RATIO = 0.01


@dataclass(frozen=True, slots=True)
class Case:
    """A load, a sensor, and whether the times of the queries are known; in a closed loop one follows the other without a pause.

    `wide` names why its intervals are wider than need be.
    """

    name: str
    bursts: Bursts
    meter: Meter
    knows_queries: bool = True
    closed_loop: bool = False
    wide: str | None = None


SHORT = {"timed_s": 20.0, "idle_s": 10.0}
COARSE = "steps that nothing dithers: the error is one of a kind, not of chance"
LATE = "a reading may be late by up to a period: that these are not cannot be known"
BOUNDED = "rounding is bounded: twice its standard uncertainty holds it nearly always"
SLOW = "the sensor follows the bursts: part of the scatter of its readings is the load's, not an error"
CASES = (
    Case("5 fps, 1 Hz", Bursts(5), Meter(1), wide=LATE),
    Case("30 fps, 1 Hz", Bursts(30), Meter(1), wide=LATE),
    Case("100 fps, 1 Hz", Bursts(100), Meter(1), wide=LATE),
    Case("5 fps, 10 Hz", Bursts(5), Meter(10)),
    Case("30 fps, 10 Hz", Bursts(30), Meter(10)),
    Case("100 fps, 10 Hz", Bursts(100), Meter(10)),
    Case("30 fps in a closed loop, 1 Hz", Bursts(30), Meter(1), closed_loop=True),
    Case("30 fps in a closed loop, 10 Hz", Bursts(30), Meter(10), closed_loop=True),
    Case("30 fps in a closed loop, 100 Hz", Bursts(30, **SHORT), Meter(100), closed_loop=True),
    Case("30 fps, 10 Hz, steps of 40 mW", Bursts(30), Meter(10, step_w=0.04), wide=BOUNDED),
    Case("30 fps, 10 Hz, 2% lost", Bursts(30), Meter(10, dropped_ratio=0.02)),
    Case("30 fps, 10 Hz, averages 100 ms", Bursts(30), Meter(10, averages_s=0.1)),
    Case("5 fps, 100 Hz", Bursts(5, **SHORT), Meter(100)),
    Case("30 fps, 100 Hz", Bursts(30, **SHORT), Meter(100)),
    Case("100 fps, 100 Hz", Bursts(100, **SHORT), Meter(100)),
    Case("30 fps, counter read at 10 Hz", Bursts(30), Meter(10, counter_step_mj=0.061)),
    Case("30 fps, counter of 1 J steps", Bursts(30), Meter(10, counter_step_mj=1000.0), wide=BOUNDED),
    Case("5 fps, 1 Hz, queries unknown", Bursts(5), Meter(1), knows_queries=False),
    Case("30 fps, 1 Hz, queries unknown", Bursts(30), Meter(1), knows_queries=False),
    Case("30 fps, 10 Hz, queries unknown", Bursts(30), Meter(10), knows_queries=False),
    Case("30 fps, 10 Hz, 2% lost, queries unknown", Bursts(30), Meter(10, dropped_ratio=0.02), knows_queries=False),
    Case("30 fps, 10 Hz, 300 s, queries unknown", Bursts(30, timed_s=300.0), Meter(10), knows_queries=False),
    Case("30 fps, 100 Hz, queries unknown", Bursts(30, **SHORT), Meter(100), knows_queries=False, wide=SLOW),
    Case("5 fps, 100 Hz, queries unknown", Bursts(5, **SHORT), Meter(100), knows_queries=False, wide=SLOW),
    Case("30 fps, 10 Hz, steps of 400 mW", Bursts(30), Meter(10, step_w=0.4), wide=COARSE),
    Case("30 fps, 1 Hz, averages 1 s", Bursts(30), Meter(1, averages_s=1.0), wide=LATE),
)


def rectangle(load: Load, sensor: Sensor, phase: float) -> float:
    """Return the mean power that ten regular reads a second make of it, each taken to have held since the one before, W."""
    return float(sensor.read_w(np.arange(load.begin + phase * 0.1, load.end, 0.1)).mean())


def halving(load: Load, sensor: Sensor, phase: float) -> float:
    """Return the mean of a running average that is halved once a second since long before, W."""
    averages, average = [], None
    for at, power_w in zip(ticks := np.arange(phase, load.end, 1.0), sensor.read_w(ticks), strict=True):
        average = power_w if average is None else (power_w + average) / 2
        if at >= load.begin:
            averages.append(average)
    return float(np.mean(averages))


def every_15_s(load: Load, sensor: Sensor, phase: float) -> float:
    """Return the mean power that a reading every 15 s makes of it, each taken to have held for the 15 s before, W."""
    ticks: Array = np.arange(load.begin + 15 * (1 - phase), load.end + 15, 15.0)
    return float(sensor.read_w(np.minimum(ticks, load.end - 1e-6)).mean())


RIVALS: tuple[Callable[[Load, Sensor, float], float], ...] = (rectangle, halving, every_15_s)


def judged(case: Case, trials: int, seed: int = 1) -> dict[str, object]:
    """Return what came of a case: mean errors (of all, signed too) and the share of intervals that hold the truth."""
    draw = np.random.default_rng([seed, *case.name.encode()])
    errors: list[float] = []
    holds: dict[str, list[bool]] = {"gross": [], "net": []}
    rival_errors: dict[str, list[float]] = {rival.__name__: [] for rival in RIVALS}
    refusals: list[str] = []
    widths: list[float] = []
    suffices: list[float] = []
    # Each trial has a gain from a part of the distribution of its own: what is left to chance is what is looked at.
    gains = [statistics.NormalDist().inv_cdf((rank + 0.5) / trials) for rank in draw.permutation(trials)]
    for gain_z in gains:
        load = Load(case.bursts, draw)
        sensor = Sensor(case.meter, load, draw, gain_z)
        run = run_of(load, knows_queries=case.knows_queries, closed_loop=case.closed_loop)
        energy, reason = assess(sensor.trace(), run)
        if energy is None or energy.gross_u_mj is None or energy.net_mj is None or energy.net_u_mj is None:
            refusals.append(reason or "no net energy: too many readings of an idle stretch were lost")
            continue
        truth_w = load.mean_w()
        per_w = energy.window_ms / energy.inferences
        errors.append(energy.gross_mj / (truth_w * per_w) - 1)
        holds["gross"].append(abs(energy.gross_mj - truth_w * per_w) <= energy.gross_u_mj)
        holds["net"].append(abs(energy.net_mj - (truth_w - case.bursts.idle_w) * per_w) <= energy.net_u_mj)
        widths.append(energy.gross_u_mj / energy.gross_mj)
        suffices.append((energy.sufficient_window_s or math.inf) * 1000 / energy.window_ms)
        if case.meter.counter_step_mj is None:
            for rival in RIVALS:
                rival_errors[rival.__name__].append(rival(load, sensor, draw.random()) / truth_w - 1)
    return {
        "case": case.name,
        "trials": len(errors),
        "refused": len(refusals),
        "mean_error_ratio": _mean_size(errors),
        "bias_ratio": statistics.fmean(errors),
        "coverage_gross": statistics.fmean(holds["gross"]),
        "coverage_net": statistics.fmean(holds["net"]),
        "gross_u_ratio": statistics.median(widths),
        "window_suffices": statistics.median(suffices) <= 1,
        "wide": case.wide,
        "rivals_mean_error_ratio": {name: _mean_size(rival_sizes) for name, rival_sizes in rival_errors.items() if rival_sizes},
    }


def _mean_size(errors: list[float]) -> float:
    return statistics.fmean(map(abs, errors))


def comparisons() -> Iterator[Comparison]:
    """Yield for each case our mean error beside the best rival's, its and its coverage."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for result in pool.map(judged, CASES, [TRIALS] * len(CASES)):
            yield from lines(result)


def lines(result: dict[str, object]) -> Iterator[Comparison]:
    """Yield the lines of one case: the mean error beside the best rival, and how often the intervals hold the truth."""
    error_ratio, rivals = float(str(result["mean_error_ratio"])), result["rivals_mean_error_ratio"]
    if isinstance(rivals, dict) and rivals:
        best = min(rivals, key=lambda name: float(rivals[name]))
        limit = "mean error <= 1%" if result["window_suffices"] else "no limit: the record says that the window is too short for 1%"
        is_met = error_ratio <= MEAN_ERROR_RATIO or not result["window_suffices"]
        peer = f"{best} rule", rivals[best]
        yield against(f"energy: {result['case']}: mean error", "of the energy", error_ratio, peer, limit, met=is_met)
    for which in ("gross", "net"):
        reason = str(result["wide"]) if result["wide"] else None
        name = f"energy: {result['case']}: {which} intervals that hold the truth"
        yield covered(name, float(str(result[f"coverage_{which}"])), reason)
