"""Statistics of generated text from the moments of its tokens: TTFT, TPOT, inter-token latency, and rates as ratios of sums."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.contract.record_figures import Latency
from edgemeter.agent.engine.scenarios.latency_statistics import BOUND_CONFIDENCE, PERCENTILES, latency_of, queries_needed, summarise_latency
from edgemeter.agent.engine.scenarios.timing import TimedQueries

Times = NDArray[np.int64]

# Gaps within a query depend on each other: their bounds come from resampling whole queries, and from fewer there are none.
FEWEST_RESAMPLED = 11
RESAMPLES = 400
# A resample is one pass over all gaps: of a long run's millions fewer are enough, since their bounds are narrow.
_MOST_PASSED = 100_000_000
_FEWEST_RESAMPLES = 100


# The raw samples of a record by what they are here.
MOMENTS = {"first_token": "first_ns", "latency": "latency_ns", "output_tokens": "output_tokens", "token": "token_ns"}


@dataclass(frozen=True, slots=True)
class TokenMoments:
    """When the tokens of the timed queries came: int64 [queries] each, and `token_ns` int64 [tokens], query after query.

    All moments count from the start of their own query, in an open loop from its scheduled arrival, ns. Tokens that came together have one
    moment.
    """

    first_ns: Times
    latency_ns: Times
    output_tokens: Times
    token_ns: Times

    @classmethod
    def of_series(cls, series: Mapping[str, Times]) -> "TokenMoments | None":
        """Return the moments by the names of the record's samples; None where one of the series is missing."""
        return cls(**{field: series[name] for name, field in MOMENTS.items()}) if set(MOMENTS) <= set(series) else None

    def complete(self, asked_tokens: int) -> NDArray[np.bool_]:
        """Return which queries have all the tokens that were asked for, bool [queries]."""
        return self.output_tokens >= asked_tokens

    def gaps_ns(self, asked_tokens: int) -> tuple[Times, Times]:
        """Return the gaps between the tokens of complete queries, and the query (0, 1, ...) of each."""
        owner = np.repeat(np.arange(self.output_tokens.size), self.output_tokens)
        gaps = np.diff(self.token_ns)
        inside = (np.diff(owner) == 0) & self.complete(asked_tokens)[owner[1:]] if gaps.size else np.zeros(0, bool)
        return gaps[inside], owner[1:][inside]

    def stamped_tokens_max(self) -> int:
        """Return how many tokens came together at most."""
        owner = np.repeat(np.arange(self.output_tokens.size), self.output_tokens)
        begins = np.ones(self.token_ns.size, bool)
        begins[1:] = (np.diff(self.token_ns) != 0) | (np.diff(owner) != 0)
        lengths = np.diff(np.append(np.flatnonzero(begins), self.token_ns.size))
        return int(lengths.max(initial=1))


def tpot_ns(moments: TokenMoments, asked_tokens: int) -> Times:
    """Return the time per output token of each complete query, whole ns: (last - first) / (n - 1); empty for queries of one token."""
    counted = moments.complete(asked_tokens) & (moments.output_tokens > 1)
    spent = (moments.latency_ns - moments.first_ns)[counted]
    return np.rint(spent / (moments.output_tokens[counted] - 1)).astype(np.int64)


def summarise_tpot(moments: TokenMoments, asked_tokens: int) -> Latency | None:
    """Return the summary of TPOT over complete queries; None where there is none."""
    durations = tpot_ns(moments, asked_tokens)
    return summarise_latency(durations) if durations.size else None


def summarise_gaps(moments: TokenMoments, asked_tokens: int) -> Latency | None:
    """Return the summary of inter-token latencies; None where tokens came together or there are no gaps.

    A percentile needs as many gaps as it needs queries elsewhere, and its bounds (95%) are those of percentiles of resampled queries.
    """
    gaps, owner = moments.gaps_ns(asked_tokens)
    if not gaps.size or moments.stamped_tokens_max() > 1:
        return None
    order = np.argsort(gaps, kind="stable")
    sorted_ms, owner = gaps[order] / 1e6, owner[order]
    supported = {name: percentile for name, percentile in PERCENTILES.items() if gaps.size >= queries_needed(percentile)}
    fields: dict[str, float | None] = {f"{name}_ms": float(np.quantile(sorted_ms, level)) for name, level in supported.items()}
    bounds = _resampled_bounds(sorted_ms, owner, np.array([*supported.values()]))
    for column, name in enumerate(supported if bounds is not None else ()):
        fields[f"{name}_low_ms"], fields[f"{name}_high_ms"] = (float(bound) for bound in bounds[:, column])  # type: ignore[index]
    refused = {name: queries_needed(level) for name, level in PERCENTILES.items() if name not in supported}
    return latency_of(sorted_ms, fields | {"refused": refused})


def _resampled_bounds(sorted_ms: NDArray[np.float64], owner: Times, levels: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return the lower and upper bounds of percentiles, [2, levels]; None from too few queries.

    Each resample draws queries with replacement: a gap counts as often as its query was drawn.
    Source: Davison and Hinkley, Bootstrap Methods and their Application, section 3.8 (whole clusters are resampled).
    """
    queries = np.unique(owner)
    if queries.size < FEWEST_RESAMPLED or not levels.size:
        return None
    times = int(np.clip(_MOST_PASSED // sorted_ms.size, _FEWEST_RESAMPLES, RESAMPLES))
    draw = np.random.default_rng(queries.size)
    query_index = np.searchsorted(queries, owner)
    percentiles = np.empty((times, levels.size))
    for row in range(times):
        weights = np.bincount(draw.integers(0, queries.size, queries.size), minlength=queries.size)
        passed = np.cumsum(weights[query_index])
        at = np.searchsorted(passed, levels * passed[-1])
        percentiles[row] = sorted_ms[np.minimum(at, sorted_ms.size - 1)]
    tail = (1 - BOUND_CONFIDENCE) / 2
    bounds: NDArray[np.float64] = np.quantile(percentiles, (tail, 1 - tail), axis=0)
    return bounds


def tokens_within(moments: TokenMoments, timed: TimedQueries, counted: NDArray[np.bool_]) -> tuple[int, int]:
    """Return the first tokens of these queries, and all of theirs, that came before the rates of `timed` end."""
    owner = np.repeat(np.arange(moments.output_tokens.size), moments.output_tokens)
    came = (moments.token_ns + timed.arrived_ns[owner] <= timed.busy_end_ns) & counted[owner]
    first = (moments.first_ns + timed.arrived_ns <= timed.busy_end_ns) & counted
    return int(first.sum()), int(came.sum())


def prefill_tokens_per_s(moments: TokenMoments, processed_tokens: int, timed: TimedQueries | None = None) -> float | None:
    """Return the prompt tokens that were processed in all queries, by the time to the first tokens; where queries overlap by the window."""
    if timed is None or not timed.overlap:
        spent_ns = int(moments.first_ns.sum())
        return processed_tokens * 1e9 / spent_ns if spent_ns > 0 else None
    first, _ = tokens_within(moments, timed, np.ones(moments.first_ns.size, bool))
    return processed_tokens * first / moments.first_ns.size * 1e9 / max(timed.busy_end_ns - timed.begin_ns, 1)


def decode_tokens_per_s(moments: TokenMoments, asked_tokens: int, timed: TimedQueries | None = None) -> float | None:
    """Return the tokens after the first of complete queries, by the time that they took; where queries overlap by the window."""
    counted = moments.complete(asked_tokens) & (moments.output_tokens > 1)
    if timed is not None and timed.overlap and counted.any():
        first, came = tokens_within(moments, timed, counted)
        return (came - first) * 1e9 / max(timed.busy_end_ns - timed.begin_ns, 1)
    spent_ns = int((moments.latency_ns - moments.first_ns)[counted].sum())
    return int((moments.output_tokens[counted] - 1).sum()) * 1e9 / spent_ns if spent_ns > 0 else None


def output_tokens_per_s(moments: TokenMoments, timed: TimedQueries | None = None) -> float | None:
    """Return all tokens that were generated, the first ones too, by the time of the queries; where they overlap by the window."""
    if timed is None or not timed.overlap:
        spent_ns = int(moments.latency_ns.sum())
        return int(moments.output_tokens.sum()) * 1e9 / spent_ns if spent_ns > 0 else None
    _, came = tokens_within(moments, timed, np.ones(moments.first_ns.size, bool))
    return came * 1e9 / max(timed.busy_end_ns - timed.begin_ns, 1)


def user_tokens_per_s(moments: TokenMoments) -> float | None:
    """Return the tokens a second that a user sees once text comes: the mean over queries of 1 / TPOT; None without second tokens."""
    counted = (moments.output_tokens > 1) & (moments.latency_ns > moments.first_ns)
    if not counted.any():
        return None
    spent_ns = (moments.latency_ns - moments.first_ns)[counted]
    return float(np.mean((moments.output_tokens[counted] - 1) * 1e9 / spent_ns))
