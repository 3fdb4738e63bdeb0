"""The rhythm of the load, which explains a part of each power reading by its phase.

It is the times of the queries, and the phase is that of the reading in a query.

A sensor that reads ten times a second sees bursts of inference at random phases, which cause most
of the scatter of its readings. The agent knows the phase of every reading. It fits the dependence
on the phase (some harmonics of the cycle from query to query, and whether a query was running) and
subtracts it. The fit integrates to zero over whole queries, so the energy stays the same and its
uncertainty falls several times. In the theory of sampling this is regression on a control variate.
Source: Cochran, Sampling Techniques, 3rd edition, chapter 7.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.contract import samples
from edgemeter.agent.contract.record import Series

MOST_HARMONICS = 6
# The fewest readings within pauses that show the power there.
FEWEST_PAUSED = 5
READINGS_PER_PARAMETER = 15
# If queries take less of the time than this, or leave less of it free, there are no bursts to fit.
ALWAYS_RATIO = 0.02
# A reading that determines a parameter alone shows nothing of its scatter.
MOST_LEVERAGE = 0.9
SERIES = frozenset({"query_start", "latency", "arrival", "pause_start", "pause_end"})
# A rhythm that explains less of the variance than this may be chance.
LEAST_EXPLAINED = 0.25

Array = NDArray[np.float64]
Times = NDArray[np.int64]


def no_pauses() -> Times:
    """Return the pauses of queries without any, int64 [0, 2]."""
    return np.empty((0, 2), np.int64)


@dataclass(frozen=True, slots=True)
class Queries:
    """The timed queries in order of time, int64 [n] each; `end_ns` is the end of the timed part.

    `pauses_ns` are the beginning and end of each random pause, int64 [m, 2]. All times are
    monotonic.
    """

    starts_ns: Times
    durations_ns: Times
    end_ns: int
    pauses_ns: Times = field(default_factory=no_pauses)

    @property
    def paused_ns(self) -> int:
        return int(np.diff(self.pauses_ns).sum())

    def are_paused(self, times_ns: Times) -> NDArray[np.bool_]:
        """Return whether each of these times lies in a pause, bool [n]."""
        # Beginnings and ends alternate: after an odd number of them the time lies in a pause.
        return np.equal(np.searchsorted(self.pauses_ns.ravel(), times_ns, "right") % 2, 1)

    def without_pauses(self, times_ns: Times) -> Times:
        """Return these times on a clock that stands still during pauses, int64 [n]."""
        if not self.pauses_ns.size:
            return times_ns
        ends = np.cumsum(np.diff(self.pauses_ns))
        paused = np.interp(
            times_ns,
            self.pauses_ns.ravel(),
            np.stack((np.append(0, ends[:-1]), ends), axis=1).ravel(),
        )
        running_ns: Times = times_ns - paused.astype(np.int64)
        return running_ns


@dataclass(frozen=True, slots=True)
class Steadied:
    """Powers without the part that follows from the rhythm.

    `apart_w` has each reading at its distance from the fit to all others. So its scatter shows the
    uncertainty of the energy even where the fit is poor. Source: the jackknife of a regression
    estimator, Cochran, Sampling Techniques, 3rd edition, section 7.
    """

    powers_w: Array
    apart_w: Array


def queries_of(series: Iterable[Series], timed_start_ns: int, timed_end_ns: int) -> Queries | None:
    """Return the queries in the raw samples of a run.

    None where they are absent, inconsistent or overlap.

    Raises:
        ConfigError: the samples are damaged.
    """
    by_name = {entry.name: entry for entry in series if entry.name in SERIES}
    if not {"query_start", "latency"} <= set(by_name):
        return None
    starts, durations = (
        samples.unpack(by_name["query_start"]).astype(np.int64),
        samples.unpack(by_name["latency"]).astype(np.int64),
    )
    if starts.size != durations.size or starts.size < 2 or np.any(np.diff(starts) <= 0):
        return None
    if "arrival" in by_name:
        # In an open loop the latency of a query begins at its arrival, but its power at its start.
        arrivals = samples.unpack(by_name["arrival"]).astype(np.int64)
        if arrivals.size != starts.size:
            return None
        durations = durations - (starts - arrivals)
    if _overlap([starts], [starts + durations]):
        # A server answers queries at the same time, so a reading belongs to several of them.
        return None
    pauses = [
        samples.unpack(by_name[name]).astype(np.int64)
        for name in ("pause_start", "pause_end")
        if name in by_name
    ]
    if (
        len(pauses) != 2
        or pauses[0].size != pauses[1].size
        or _overlap((starts, *pauses[:1]), (starts + durations, *pauses[1:]))
    ):
        return Queries(starts + timed_start_ns, durations, timed_end_ns)
    return Queries(
        starts + timed_start_ns, durations, timed_end_ns, np.stack(pauses, axis=1) + timed_start_ns
    )


def _overlap(begins: Sequence[Times], ends: Sequence[Times]) -> bool:
    """Return whether any two of these stretches of time overlap."""
    begins_ns, ends_ns = np.concatenate(begins), np.concatenate(ends)
    order = np.lexsort((ends_ns, begins_ns))
    return bool(np.any(begins_ns[order][1:] < ends_ns[order][:-1]))


def without_rhythm(times_ns: Times, powers_w: Array, queries: Queries) -> Steadied | None:
    """Return the powers (float64 [n]) without the part that follows from the queries' rhythm.

    None where that part is small.
    """
    begin, end = np.searchsorted(times_ns, (queries.starts_ns[0], queries.end_ns))
    n = int(end - begin)
    basis = _basis(times_ns[begin:end], queries, (n // READINGS_PER_PARAMETER))
    if basis is None:
        return None
    read_w = powers_w[begin:end]
    centred = basis - basis.mean(axis=0)
    # The columns are nearly orthogonal, so the normal equations are accurate.
    inverse = np.linalg.pinv(centred.T @ centred, hermitian=True)
    coefficients = inverse @ centred.T @ (read_w - read_w.mean())
    residuals = read_w - read_w.mean() - centred @ coefficients
    leverage = np.minimum(np.sum(centred @ inverse * centred, axis=1) + 1 / n, MOST_LEVERAGE)
    variance = float(read_w.var(ddof=1))
    residual_variance = float(np.sum(residuals**2)) / max(1.0, n - float(leverage.sum()))
    if not residual_variance < (1 - LEAST_EXPLAINED) * variance:
        return None
    steadied = powers_w.copy()
    # Each function of the basis integrates to zero over the timed part, so the energy stays the
    # same.
    steadied[begin:end] -= basis @ coefficients
    apart = steadied.copy()
    apart[begin:end] += residuals * leverage / (1 - leverage)
    return Steadied(steadied, apart)


def _basis(times_ns: Times, queries: Queries, parameters: int) -> Array | None:
    """Return functions of time whose integral over the timed part is zero, at these times.

    The result is float64 [n, at most `parameters`].
    """
    if parameters < 1 or queries.starts_ns.size < 2:
        return None
    bounds = queries.without_pauses(np.append(queries.starts_ns, queries.end_ns))
    cycles_ns = np.diff(bounds)
    if np.any(cycles_ns <= 0):
        return None
    busy_ns = np.clip(queries.durations_ns, 0, cycles_ns)
    query = np.clip(
        np.searchsorted(queries.starts_ns, times_ns, "right") - 1, 0, cycles_ns.size - 1
    )
    since_ns = queries.without_pauses(times_ns) - bounds[query]
    runs = ~queries.are_paused(times_ns)
    columns: list[NDArray[Any]] = []
    length_ns = float(queries.end_ns - queries.starts_ns[0])
    share = float(busy_ns.sum()) / float(cycles_ns.sum())
    if ALWAYS_RATIO < share < 1 - ALWAYS_RATIO:
        columns.append((runs & (since_ns < busy_ns[query])) - float(busy_ns.sum()) / length_ns)
    if np.count_nonzero(~runs) >= FEWEST_PAUSED and len(columns) < parameters:
        columns.append(runs - float(cycles_ns.sum()) / length_ns)
    phase = 2 * np.pi * since_ns / cycles_ns[query]
    for harmonic in range(1, min(MOST_HARMONICS, (parameters - len(columns)) // 2) + 1):
        columns += [runs * np.cos(harmonic * phase), runs * np.sin(harmonic * phase)]
    return np.stack(columns, axis=1).astype(np.float64) if columns else None
