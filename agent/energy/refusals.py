"""Reasons why readings give no energy, each a sentence with its remedy."""

import numpy as np

from edgemeter.agent.base.nanoseconds import NS_PER_MS
from edgemeter.agent.base.number_text import count
from edgemeter.agent.energy import idle_power
from edgemeter.agent.energy.curve import Curve, equal_chance
from edgemeter.agent.energy.queries import Array, Queries
from edgemeter.agent.energy.sampler import SensorTrace
from edgemeter.agent.energy.window import Window
from edgemeter.agent.power import Description

# The fewest new values of the sensor that give an energy.
FEWEST_NEW_VALUES = 10
# The longest gap between readings: this many spacings of the sensor's values, or this share of the
# block if that is longer.
GAP_SPACINGS, GAP_RATIO = 5.0, 0.1
FEWEST_STUCK = 5
# A value hangs if it would stay so long by chance with less than this probability.
BY_CHANCE = 0.01
CLIPPED_RATIO, FINE_CHANCE = 0.2, 0.05
NOTHING_RATIO = 0.01
# Scopes that always draw power; others may show none while idle.
WHOLE = ("wall-ac", "board-input", "module")
# If there are more readings than this for each new value, the sensor has its own clock.
OWN_CLOCK_RATIO = 1.15
# Queries may be in step with a clock of at most four ticks a query, if their phases agree more than
# this (1: all equal).
TICKS_PER_QUERY, IN_STEP = 4.0, 0.35
# A sensor that is later than this many ticks of its clock averages over its past.
AVERAGING_TICKS = 2.0


def shortest_window_s(description: Description) -> float:
    """Return the shortest block for which a sensor gives an energy."""
    return FEWEST_NEW_VALUES * description.period_ms / 1000


def shortest_idle_s(description: Description) -> float:
    """Return the shortest idle stretch that gives an idle power.

    It has the tail of the load, then enough new values.
    """
    return (2 + idle_power.FEWEST_NEW_VALUES + 1) * description.period_ms / 1000 + 3 * (
        description.delay_ms or 0.0
    ) / 1000


def fault(curve: Curve, timed: Window, idle: list[Window], description: Description) -> str | None:
    """Return that the sensor shows nothing, hangs or is clipped; None if it does not."""
    if curve.went_back:
        return "its energy counter went backwards, as after a restart: measure again"
    stretches = [timed, *(idle if description.scope in WHOLE else [])]
    shown_w = np.concatenate([curve.seen_w[curve.inside(window)] for window in stretches])
    nothing = int(np.sum(shown_w <= 0))
    if min(curve.mean_w(window) for window in stretches) <= 0 or (
        description.scope in WHOLE and nothing > NOTHING_RATIO * shown_w.size
    ):
        return (
            f"it shows 0 W or less in {nothing} of {shown_w.size} readings, which no running "
            "machine draws: its shunt or clamp is "
            "reversed, its contact is lost, or the load is below what it can show"
        )
    return (
        None
        if curve.is_counter
        else _hangs(curve, timed, idle) or _is_clipped(curve.seen_w[curve.inside(timed)])
    )


def _hangs(curve: Curve, timed: Window, idle: list[Window]) -> str | None:
    """Return the reason if a value stays longer than by chance.

    The last value of the load may also stay through the idle stretch after it.
    """
    loaded_w, times_ns = curve.seen_w[curve.inside(timed)], curve.times_ns[curve.inside(timed)]
    after_w = (
        curve.seen_w[curve.inside(idle[-1])]
        if idle and idle[-1].start_ns >= timed.end_ns
        else np.zeros(0)
    )
    if after_w.size >= FEWEST_STUCK and np.all(after_w == loaded_w[-1]):
        return (
            f"it shows {loaded_w[-1]:.4g} W from the load to the end of the idle after it: it "
            "hangs, or its steps are too coarse"
        )
    begins = np.concatenate(([0], np.flatnonzero(np.diff(loaded_w)) + 1))
    stays_ns = np.diff(times_ns[begins], append=timed.end_ns)
    longest = int(np.argmax(stays_ns))
    longest_ns, usual_ns = float(stays_ns[longest]), float(np.median(stays_ns))
    # Values before it may be a rise to it.
    later_w = loaded_w[begins[longest + 1] :] if longest + 1 < begins.size else loaded_w[:0]
    value_w = loaded_w[begins[longest]]
    if later_w.size < FEWEST_NEW_VALUES or longest_ns <= max(
        GAP_SPACINGS * usual_ns, GAP_RATIO * timed.length_ns
    ):
        return None
    others_w = np.concatenate((loaded_w[: begins[longest]], later_w))
    if others_w.size * (others_w == value_w).mean() ** (longest_ns / usual_ns - 1) > BY_CHANCE:
        return None
    return f"it shows {value_w:.4g} W for {longest_ns / 1e9:.3g} s: it hangs, restart it"


def _is_clipped(loaded_w: Array) -> str | None:
    highest_w = loaded_w.max()
    is_highest = loaded_w == highest_w
    # Values before it may be a rise to it.
    others_w = loaded_w[np.argmax(is_highest) :]
    others_w = others_w[others_w < highest_w]
    if (
        is_highest.mean() < CLIPPED_RATIO
        or others_w.size < FEWEST_NEW_VALUES
        or equal_chance(others_w) > FINE_CHANCE
    ):
        return None
    return (
        f"{is_highest.mean():.0%} of its readings show {highest_w:.4g} W, and none shows more: "
        "its range ends there, use a wider one"
    )


def too_little(curve: Curve, trace: SensorTrace, timed: Window, spacing_ns: float) -> str | None:
    """Return the reason if there are too few new values, None if not.

    It is also a reason if readings are missing for too long.
    """
    length_s, read = timed.length_ns / 1e9, curve.times_ns[curve.inside(timed)].size
    gone = f"; {trace.ended}" if trace.ended else ""
    expected = (
        0.0
        if curve.is_counter or trace.description is None
        else 1000 * length_s / trace.description.period_ms
    )
    if read < FEWEST_NEW_VALUES <= expected / 2:
        return (
            f"it gave {count(read, 'reading')} in {length_s:.3g} s{failures(trace)}: find out "
            f"what blocks it{gone}"
        )
    if timed.length_ns <= 0 or timed.length_ns < FEWEST_NEW_VALUES * spacing_ns:
        return (
            f"it gave {timed.length_ns / spacing_ns:.0f} new values in {length_s:.3g} s, but an "
            f"energy needs {FEWEST_NEW_VALUES}: measure "
            f"for {1.1 * FEWEST_NEW_VALUES * spacing_ns / 1e9:.2g} s or longer{failures(trace)}"
        )
    stretches_ns = np.diff(
        np.concatenate(([timed.start_ns], curve.times_ns[curve.inside(timed)], [timed.end_ns]))
    )
    # A counter counts on between two reads, but nothing is known before its first and after its
    # last.
    longest_ns = int(
        max(stretches_ns[0], stretches_ns[-1]) if curve.is_counter else stretches_ns.max()
    )
    if longest_ns > max(GAP_SPACINGS * spacing_ns, GAP_RATIO * timed.length_ns):
        return (
            f"readings are missing for {longest_ns / 1e9:.3g} s of {length_s:.3g} "
            f"s{failures(trace)}: find out what blocks it{gone}"
        )
    return None


def in_step(queries: Queries | None, spacing_ns: float, delay_ns: float) -> str | None:
    """Return that a sensor with its own clock may see the same part of each query (aliasing).

    None if it cannot. A sensor that lags by more than two ticks of its clock averages, so it cannot
    alias.
    """
    if queries is None or delay_ns > AVERAGING_TICKS * spacing_ns:
        return None
    cycle_ns = (queries.end_ns - queries.starts_ns[0]) / queries.starts_ns.size
    # The length of the mean of unit vectors: 1 where all queries start at multiples of the mean
    # cycle, near 0 where they drift.
    phases = 2 * np.pi * (queries.starts_ns - queries.starts_ns[0]) / cycle_ns
    if cycle_ns > TICKS_PER_QUERY * spacing_ns or abs(np.exp(1j * phases).mean()) <= IN_STEP:
        return None
    return (
        f"it renews its value every {spacing_ns / NS_PER_MS:.3g} ms by its own clock, in step "
        "with queries every "
        f"{cycle_ns / NS_PER_MS:.3g} ms, and may see the same part of each: use scenario "
        "poisson, or a sensor that counts energy"
    )


def failures(trace: SensorTrace) -> str:
    """Return the number of failed reads in brackets; empty if there are none."""
    last = f", the last: {trace.failure}" if trace.failure else ""
    return f" ({trace.failures} reads failed{last})" if trace.failures else ""
