"""Statistics of generated text from the times of its tokens.

They are TTFT, TPOT, inter-token latency, and rates.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.contract.record_figures import Latency
from edgemeter.agent.contract.record_generation import Generation, TokenLengths
from edgemeter.agent.engine.scenarios.latency_statistics import summarise_latency
from edgemeter.agent.engine.scenarios.timing import TimedQueries
from edgemeter.agent.generators import LONGEST_STEP

Times = NDArray[np.int64]

# Shorter answers do not show whether they were streamed.
FEWEST_STREAMED = 3
BUFFERED_RATIO = 0.02
IMPOSSIBLE_RATIO = 0.5
# A gap below this share of the mean gap, and below this time, comes from the network: both pieces
# arrived together.
TOGETHER_RATIO, TOGETHER_NS = 0.1, 300_000

# The fields of `TokenMoments` by the names of a record's samples.
MOMENTS = {
    "first_token": "first_ns",
    "latency": "latency_ns",
    "output_tokens": "output_tokens",
    "token": "token_ns",
}


@dataclass(frozen=True, slots=True)
class TokenMoments:
    """The times of the tokens of timed queries, query after query.

    They are int64 [queries] each, and `token_ns` int64 [tokens].

    All times count from the start of the query, in an open loop from its scheduled arrival, ns.
    Tokens that came together have one time.
    """

    first_ns: Times
    latency_ns: Times
    output_tokens: Times
    token_ns: Times

    @classmethod
    def of_series(cls, series: Mapping[str, Times]) -> "TokenMoments | None":
        """Return the times from the series of a record; None if a series is missing."""
        if not set(MOMENTS) <= set(series):
            return None
        return cls(**{field: series[name] for name, field in MOMENTS.items()})

    def ended_early(self, asked_tokens: int) -> int:
        """Return the number of queries with fewer tokens than were asked for."""
        return int(np.count_nonzero(self.output_tokens < asked_tokens))

    @property
    def owner(self) -> Times:
        """The query (0, 1, ...) of each token."""
        return np.repeat(np.arange(self.output_tokens.size), self.output_tokens)

    def gaps_ns(self) -> Times:
        """Return the gaps between the tokens of each query."""
        gaps_ns: Times = np.diff(self.token_ns)[np.diff(self.owner) == 0]
        return gaps_ns

    def are_later(self) -> NDArray[np.bool_]:
        """Return which tokens came after the first ones of their query, bool [tokens].

        A network may deliver tokens together that the server sent one after the other.
        """
        owner, gaps = self.owner, np.diff(self.token_ns)
        ends = np.cumsum(self.output_tokens)
        begins = ends - self.output_tokens
        mean_ns = (self.token_ns[ends - 1] - self.token_ns[begins]) / np.maximum(
            self.output_tokens - 1, 1
        )
        shortest_ns = np.minimum(TOGETHER_RATIO * mean_ns[owner[1:]], TOGETHER_NS)
        waited = (np.diff(owner) == 0) & (gaps > shortest_ns)
        # The number of waits before each token; a later token has more of them than the first of
        # its query.
        waits = (
            np.concatenate(([0], np.cumsum(waited)))
            if self.token_ns.size
            else np.zeros(0, np.int64)
        )
        are_later: NDArray[np.bool_] = waits > waits[begins[owner]]
        return are_later

    def later_tokens(self) -> Times:
        """Return the number of decoded tokens of each query.

        They are those after its first ones, which may have come together.
        """
        return np.bincount(self.owner[self.are_later()], minlength=self.output_tokens.size)

    def spans_ns(self) -> tuple[Times, Times]:
        """Return the time from first to last token of each query with decoded tokens.

        The number of those tokens comes with it.
        """
        later_tokens = self.later_tokens()
        return (self.latency_ns - self.first_ns)[later_tokens > 0], later_tokens[later_tokens > 0]

    def stamped_tokens_max(self) -> int:
        """Return the largest number of tokens that came together."""
        begins = np.ones(self.token_ns.size, bool)
        begins[1:] = (np.diff(self.token_ns) != 0) | (np.diff(self.owner) != 0)
        lengths = np.diff(np.append(np.flatnonzero(begins), self.token_ns.size))
        return int(lengths.max(initial=1))


def lengths_of(tokens: Times) -> TokenLengths:
    """Return the distribution of these counts."""
    return TokenLengths(
        min_tokens=int(tokens.min()),
        mean_tokens=float(tokens.mean()),
        max_tokens=int(tokens.max()),
    )


def tpot_ns(moments: TokenMoments) -> Times:
    """Return the time per output token of each query with decoded tokens, whole ns.

    It is (last - first) / decoded tokens.
    """
    spent_ns, later_tokens = moments.spans_ns()
    return np.rint(spent_ns / later_tokens).astype(np.int64)


def summarise_tpot(moments: TokenMoments) -> Latency | None:
    """Return the summary of TPOT; None if no query has several tokens."""
    durations = tpot_ns(moments)
    return summarise_latency(durations) if durations.size else None


def unstreamed_reason(
    moments: TokenMoments,
    prompt_tokens: int | None,
    step_tokens: int = 1,
    timed: TimedQueries | None = None,
) -> str | None:
    """Return why the times are not those of tokens but of a buffer that was emptied at once.

    None if they may be those of tokens.

    Decoding a token takes at least as long as processing one of the prompt, so less than half of
    that is impossible. A short prompt takes mostly other time, so the limit is 2% of the time to
    the first token. One step gives `step_tokens` at most. If queries overlap, the time to the first
    token has waits for others, so the query's share of the window counts if it is less.
    """
    if not moments.output_tokens.size:
        return None
    if (
        float(np.median(moments.later_tokens())) < 1
        and float(np.median(moments.output_tokens)) > step_tokens
    ):
        return (
            "all tokens of an answer came in one piece: the server or a proxy before it "
            "does not stream"
        )
    spent_ns, later_tokens = moments.spans_ns()
    if not later_tokens.size or float(np.median(later_tokens)) < FEWEST_STREAMED:
        return None
    by_prompt = (
        IMPOSSIBLE_RATIO * float(np.median(later_tokens)) / prompt_tokens
        if prompt_tokens
        else BUFFERED_RATIO
    )
    waited_ns = moments.first_ns
    alone_ns = (
        min(int(waited_ns.min()), timed.busy_ns // waited_ns.size)
        if timed is not None and timed.overlap
        else int(waited_ns.min())
    )
    ratio = float(np.median(spent_ns)) / max(alone_ns, 1)
    if ratio >= min(BUFFERED_RATIO, by_prompt):
        return None
    return (
        f"{np.median(later_tokens):.0f} tokens came within {np.median(spent_ns) / 1e6:.3g} ms "
        f"after {waited_ns.min() / 1e6:,.4g} ms "
        "without any: the server or a proxy before it holds them back"
    )


def with_times(
    generation: Generation,
    moments: TokenMoments,
    prefilled: int | None,
    timed: TimedQueries | None,
    unstreamed: str | None = None,
) -> tuple[Generation, str | None]:
    """Return the generation with the figures from its times.

    If tokens were not streamed, it has none of single tokens, and the reason.

    `prefilled` is the number of processed prompt tokens, None if unknown. If queries overlap, rates
    are over the timed part. `unstreamed` is why an answer had no times.
    """
    # The shortest time to a first token is that of the shortest prompt.
    shortest = (
        generation.prompt_lengths.min_tokens
        if generation.prompt_lengths
        else generation.prompt_tokens
    )
    before_first = (shortest or 0) + (generation.hidden_reasoning_tokens or 0)
    guesses = generation.speculative or generation.accepted_ratio is not None
    reason = unstreamed or unstreamed_reason(
        moments, before_first or None, LONGEST_STEP if guesses else 1, timed
    )
    return msgspec.structs.replace(
        generation,
        ended_early=moments.ended_early(generation.output_tokens),
        output_lengths=lengths_of(moments.output_tokens),
        ttft=None if reason else summarise_latency(moments.first_ns),
        tpot=None if reason else summarise_tpot(moments),
        itl=None if reason else summarise_gaps(moments),
        prefill_tokens_per_s=None
        if reason or prefilled is None
        else _prefill_tokens_per_s(generation, moments, prefilled, timed),
        decode_tokens_per_s=None if reason else decode_tokens_per_s(moments, timed),
        output_tokens_per_s=output_tokens_per_s(moments, timed),
        user_tokens_per_s=None if reason else user_tokens_per_s(moments),
    ), reason


def summarise_gaps(moments: TokenMoments) -> Latency | None:
    """Return the summary of inter-token latencies.

    None if tokens came together or there are no gaps.
    """
    gaps_ns = moments.gaps_ns()
    if not gaps_ns.size or moments.stamped_tokens_max() > 1:
        return None
    return summarise_latency(gaps_ns)


def within(timed: TimedQueries, moments_ns: Times) -> int:
    """Return how many of these times (monotonic ns) lie in the window of the rates."""
    return int(
        np.count_nonzero((timed.busy_begin_ns < moments_ns) & (moments_ns <= timed.busy_end_ns))
    )


def _prefill_tokens_per_s(
    generation: Generation, moments: TokenMoments, processed_tokens: int, timed: TimedQueries | None
) -> float | None:
    """Return the processed prompt tokens over the time to the first tokens.

    If queries overlap, it is over the window instead.

    If all prompts have one length, that time is the median, so that the rate is the inverse of
    TTFT.
    """
    queries = moments.first_ns.size
    if timed is not None and timed.overlap:
        return (
            processed_tokens
            * within(timed, timed.arrived_ns + moments.first_ns)
            / queries
            * 1e9
            / timed.busy_ns
        )
    spent_ns = (
        float((np.mean if generation.prompt_lengths else np.median)(moments.first_ns)) * queries
    )
    return processed_tokens * 1e9 / spent_ns if spent_ns > 0 else None


def decode_tokens_per_s(moments: TokenMoments, timed: TimedQueries | None = None) -> float | None:
    """Return the rate of decoding.

    It is the inverse of the median TPOT, or decoded tokens over the window if queries overlap.
    """
    if timed is not None and timed.overlap and moments.later_tokens().any():
        return (
            within(timed, (timed.arrived_ns[moments.owner] + moments.token_ns)[moments.are_later()])
            * 1e9
            / timed.busy_ns
        )
    durations_ns = tpot_ns(moments)
    median_ns = float(np.median(durations_ns)) if durations_ns.size else 0.0
    return 1e9 / median_ns if median_ns > 0 else None


def output_tokens_per_s(moments: TokenMoments, timed: TimedQueries | None = None) -> float | None:
    """Return all generated tokens over the time of the queries.

    If queries overlap, it is over the window.
    """
    if timed is None or not timed.overlap:
        spent_ns = int(moments.latency_ns.sum())
        return int(moments.output_tokens.sum()) * 1e9 / spent_ns if spent_ns > 0 else None
    return within(timed, timed.arrived_ns[moments.owner] + moments.token_ns) * 1e9 / timed.busy_ns


def user_tokens_per_s(moments: TokenMoments) -> float | None:
    """Return the tokens a second that a user sees after the first.

    It is the mean over queries of 1 / TPOT; None without decoded tokens.
    """
    spans_ns, later_tokens = moments.spans_ns()
    return float(np.mean(later_tokens * 1e9 / spans_ns)) if later_tokens.size else None
