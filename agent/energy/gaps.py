"""The gaps between the queries: nobody timed what ran there, so it is bounded, not measured.

A server empties its cache there, or the machine waits. Readings do not show it apart where a sensor is slow, so it is taken to draw
something between idle power and the highest power of the load, as a rectangular distribution. Source: GUM 4.3.7.
"""

import math

from edgemeter.agent.base.nanoseconds import NS_PER_MS
from edgemeter.agent.energy.sensor_run import SensorRun


def between_term(whole_energy_mj: float, whole_ms: float, own_ms: float, idle_w: float, highest_w: float) -> tuple[float, float]:
    """Return the energy of the queries without what ran between them, and the standard uncertainty that this leaves, mJ."""
    between_ms = whole_ms - own_ms
    own_energy_mj = whole_energy_mj - between_ms * (idle_w + highest_w) / 2
    return own_energy_mj, between_ms * abs(highest_w - idle_w) / math.sqrt(12)


def own_ms(case: SensorRun) -> float:
    """Return how long the queries took by themselves: those of a language model, or the timed part without its random pauses."""
    if (queries := case.run.long_queries) is not None:
        return float(queries.durations_ns.sum()) / NS_PER_MS
    paused_ns = 0 if case.run.queries is None else case.run.queries.paused_ns
    return (case.run.timed.length_ns - paused_ns) / NS_PER_MS


def highest_w(case: SensorRun, energy_mj: float, idle_w: float) -> float:
    """Return the highest power between the queries: that of the load without gaps, or what a server draws at most, whatever it does.

    If the gaps draw idle power, the queries draw the rest. A late or averaging sensor never shows that power, a fast one shows more.
    """
    whole_ms, queries_ms = case.run.timed.length_ns / NS_PER_MS, own_ms(case)
    without_gaps_w = (energy_mj - idle_w * (whole_ms - queries_ms)) / queries_ms
    return without_gaps_w if case.run.long_queries is None else max(without_gaps_w, case.curve.highest_w(case.run.timed))
