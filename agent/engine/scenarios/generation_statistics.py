"""Statistics of generated text from the moments of its tokens: TTFT, TPOT, inter-token latency, and rates as ratios of sums."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.contract.record_figures import Latency
from edgemeter.agent.contract.record_generation import Generation
from edgemeter.agent.engine.scenarios.latency_statistics import BOUND_CONFIDENCE, PERCENTILES, latency_of, queries_needed, summarise_latency

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
    moment. `decodes_from_start`: the first token took one step of decoding, as each further one; else the prefill too.
    """

    first_ns: Times
    latency_ns: Times
    output_tokens: Times
    token_ns: Times
    decodes_from_start: bool = False

    @classmethod
    def of_series(cls, series: Mapping[str, Times], generation: Generation) -> "TokenMoments | None":
        """Return the moments by the names of the record's samples; None where one of the series is missing."""
        if not set(MOMENTS) <= set(series):
            return None
        return cls(**{field: series[name] for name, field in MOMENTS.items()}, decodes_from_start=generation.decodes_from_start)

    def complete(self, asked_tokens: int) -> NDArray[np.bool_]:
        """Return which queries have all the tokens that were asked for, bool [queries]."""
        return self.output_tokens >= asked_tokens

    def decoding(self, asked_tokens: int) -> tuple[Times, Times]:
        """Return the time that complete queries decoded, and their tokens in it, int64 [queries with such tokens] each."""
        tokens = self.output_tokens if self.decodes_from_start else self.output_tokens - 1
        spent_ns = self.latency_ns if self.decodes_from_start else self.latency_ns - self.first_ns
        counted = self.complete(asked_tokens) & (tokens > 0)
        return spent_ns[counted], tokens[counted]

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
    """Return the time per output token of each complete query, whole ns, by `TokenMoments.decoding`; empty if they decode nothing."""
    spent_ns, tokens = moments.decoding(asked_tokens)
    return np.rint(spent_ns / tokens).astype(np.int64)


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


def prefill_tokens_per_s(moments: TokenMoments, processed_tokens: int, window_ns: int | None = None) -> float | None:
    """Return the prompt tokens that were processed in all queries, by the time to the first tokens; where queries overlap by the window."""
    spent_ns = int(moments.first_ns.sum()) if window_ns is None else window_ns
    return processed_tokens * 1e9 / spent_ns if spent_ns > 0 else None


def decode_tokens_per_s(moments: TokenMoments, asked_tokens: int, window_ns: int | None = None) -> float | None:
    """Return the tokens that complete queries decoded, by the time that they took; where queries overlap by the window."""
    spent_ns, tokens = moments.decoding(asked_tokens)
    total_ns = int(spent_ns.sum()) if window_ns is None or not tokens.size else window_ns
    return int(tokens.sum()) * 1e9 / total_ns if total_ns > 0 else None


def bandwidths_mb_per_s(generation: Generation, *, overlap: bool) -> tuple[float | None, float | None]:
    """Return the weights read per second of decoding, and with them the cache at its mean depth, MB/s; None where it is not known.

    Where queries overlap or tokens are guessed, one reading of the weights serves several tokens: of how many is not known here.
    """
    rate, model = generation.decode_tokens_per_s, generation.model
    if rate is None or model.weights_mb is None or overlap or generation.speculative:
        return None, None
    before = generation.depth_tokens if generation.depth_tokens is not None else generation.prompt_tokens
    if before is None or model.kv_token_bytes is None:
        return rate * model.weights_mb, None
    cache_mb = (before + generation.output_tokens / 2) * model.kv_token_bytes / 1e6
    return rate * model.weights_mb, rate * (model.weights_mb + cache_mb)
