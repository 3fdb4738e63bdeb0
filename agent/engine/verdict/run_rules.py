"""Rules on the measured run itself: its outputs, its latencies, and whether its threads got a core when they wanted one."""

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.engine.verdict.rule import Facts, Rule

# Twice the change that is worth speaking of between two devices (3 %), rounded down: below it drift cannot turn a comparison.
DRIFT_RATIO = 0.05
# Two-sided p = 1e-4 of the rank sum: with three pairs of thirds, and queries that are not quite independent, false alarms stay rare.
DRIFT_Z = 3.9
FEWEST_IN_THIRD = 7
BOUND_RATIO = 0.10
# On a quiet machine threads wait below 0.1 % of the time. Where they waited this much, latency is longer by about as much.
WAITED_RATIO = 0.03


def _outputs_differ(facts: Facts) -> str | None:
    check = facts.measured.output_check
    if check.differing == 0:
        return None
    return f"{check.differing} of {check.compared} outputs kept while timing differ from those for the same input later"


def _too_few(facts: Facts) -> str | None:
    latency = facts.measured.latency
    return None if latency.p50_ms is not None else f"{latency.count} queries do not support a median: it needs {latency.refused['p50']}"


def _not_steady(facts: Facts) -> str | None:
    warm = facts.measured.warm_up
    return None if warm.steady else f"the median latency had not settled after {warm.queries} queries ({warm.duration_ms / 1000:.1f} s)"


def _drift(facts: Facts) -> str | None:
    """Compare the fastest and the slowest third: more than chance, and more than matters."""
    thirds = np.array_split(facts.latency_ms(), 3)
    if thirds[-1].size < FEWEST_IN_THIRD:
        return None
    medians = [float(np.median(third)) for third in thirds]
    low, high = int(np.argmin(medians)), int(np.argmax(medians))
    change = medians[high] / medians[low] - 1 if medians[low] > 0 else 0.0
    if change <= DRIFT_RATIO or rank_sum_z(thirds[low], thirds[high]) < DRIFT_Z:
        return None
    shown = ", ".join(f"{median:.4g}" for median in medians)
    return f"median latency of the three thirds was {shown} ms: {change:.0%} apart"


def rank_sum_z(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return by how many standard errors `second` ranks above `first`; equal values share their rank.

    Source: Mann and Whitney's U, normal approximation with the correction for ties (Lehmann, Nonparametrics, section 1.4).
    """
    together = np.concatenate([first, second])
    _, place, counts = np.unique(together, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    n, m = first.size, second.size
    ties = float(np.sum(counts.astype(np.float64) ** 3 - counts)) / ((n + m) * (n + m - 1))
    variance = n * m / 12 * (n + m + 1 - ties)
    above = float(ranks[n:].sum()) - m * (n + m + 1) / 2
    return above / float(np.sqrt(variance)) if variance > 0 else 0.0


def _wide_bounds(facts: Facts) -> str | None:
    latency = facts.measured.latency
    if latency.p50_ms is None or latency.p50_low_ms is None or latency.p50_high_ms is None:
        return None
    width = (latency.p50_high_ms - latency.p50_low_ms) / latency.p50_ms
    return None if width <= BOUND_RATIO else f"the 95 % bounds of p50 are {width:.0%} of it apart: time more queries (a longer mode)"


def _waited(facts: Facts) -> str | None:
    """Say how long threads waited for a core; a run with more threads than cores waits for itself."""
    seen = facts.measured.scheduling
    threads = facts.measured.runtime.threads
    if seen is None or seen.waited_ms is None or seen.window_ms <= 0 or threads > seen.cores:
        return None
    share = seen.waited_ms / (seen.window_ms * min(threads, seen.cores))
    if share <= WAITED_RATIO:
        return None
    return f"its threads waited {seen.waited_ms:,.1f} ms for a core, {share:.0%} of the {seen.window_ms:,.1f} ms that were timed"


def _rate_not_sustained(facts: Facts) -> str | None:
    load = facts.measured.load
    if load is None or load.is_sustained is not False:
        return None
    unserved = f", {load.unserved} were given up on" if load.unserved else ""
    return f"{load.target_per_s:g} queries a second arrived, {load.achieved_per_s:.4g} were answered{unserved}: lower the rate"


RULES: tuple[Rule, ...] = (
    Rule(
        "rate-not-sustained",
        "invalid",
        "an open loop keeps up with the rate at which queries arrive",
        _rate_not_sustained,
        "beyond that the queue grows as long as one measures, and so does the latency: it is a figure of the length of the run",
    ),
    Rule(
        "outputs-differ",
        "invalid",
        "outputs of timed queries equal those for the same inputs afterwards: within 0.1 % of each channel's largest, or in all boxes",
        _outputs_differ,
        "what was fast has to be what was right (the intent of MLPerf's TEST01); float kernels may only sum in another order",
    ),
    Rule(
        "too-few-queries",
        "invalid",
        "there are at least 11 queries",
        _too_few,
        "fewer do not support a median with 99 % confidence (MLPerf's early stopping)",
    ),
    Rule(
        "not-steady",
        "suspect",
        "latency had settled before timing began",
        _not_steady,
        "what is timed while caches fill and clocks rise is not what the model costs later",
    ),
    Rule(
        "drift",
        "suspect",
        "the medians of the three thirds lie within 5 %, or not further apart than chance (rank sum, z < 3.9)",
        _drift,
        "twice a difference that matters (3 %) is too much to come from one run; chance alone moves 21 queries by that",
    ),
    Rule(
        "wide-bounds",
        "suspect",
        "the 95 % bounds of p50 are at most 10 % of it apart",
        _wide_bounds,
        "a median that is not known to 5 % either way cannot be compared",
    ),
    Rule(
        "waited-for-core",
        "suspect",
        "its threads waited for a free core in at most 3 % of the timed part (not asked with more threads than cores)",
        _waited,
        "the kernel counts this in ns, so that it shows even in 64 queries of 0.2 ms; quiet machines stay below 0.1 %",
    ),
)
