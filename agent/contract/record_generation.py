"""The part of the record on generated text.

It has what was asked for, when its tokens came, and the model as its server describes it.
"""

from typing import Literal

from edgemeter.agent.base.types import Count, Quantity, QuantityOrZero, Ratio, Sha256
from edgemeter.agent.contract.record_conditions import RecordPart
from edgemeter.agent.contract.record_figures import Latency

TokenCounts = Literal["exact", "usage", "estimated"]
# Where the prompts come from that are of no file.
SYNTHETIC = "synthetic"
# The name in a record's `reasons` of why there are no times of single tokens.
UNSTREAMED = "generation_times"
# The kind of a failed query whose answer has no token.
EMPTY_ANSWER = "no token"
# A begin-of-text token may stay in a cache.
MOST_CACHED = 1


class LanguageModel(RecordPart, frozen=True, kw_only=True):
    """The language model as its server describes it; null where it does not."""

    name: str | None = None  # Name in the server's list.
    parameters: Count | None = None  # Number of weights.
    kv_type: str | None = None  # Type of the values in the cache, e.g. f16.


class GenerationEnergy(RecordPart, frozen=True, kw_only=True):
    """Energy per token, by the sensor of `energy`, whose `gross_mj` is that of a whole request.

    An unknown uncertainty is null.
    """

    output_token_gross_mj: Quantity
    """Energy of the whole request per output token in mJ, prefill included."""
    output_token_gross_u_mj: QuantityOrZero | None = None
    """Expanded uncertainty (95%) of `output_token_gross_mj` in mJ."""
    prefill_token_gross_mj: Quantity | None = None
    """Energy per prompt token in mJ, for a run with one output token per query."""
    prefill_token_gross_u_mj: QuantityOrZero | None = None
    """Expanded uncertainty (95%) of `prefill_token_gross_mj` in mJ."""


class TokenLengths(RecordPart, frozen=True, kw_only=True):
    """How many tokens queries have, over all that were answered."""

    min_tokens: Count  # Minimum.
    mean_tokens: QuantityOrZero  # Mean.
    max_tokens: Count  # Maximum.


class Generation(RecordPart, frozen=True, kw_only=True):
    """Text generated token by token.

    `latency` is that of the whole query, until its last token; `throughput_per_s` counts queries.
    """

    prompt_tokens: Count | None
    """Tokens of the longest prompt; null if a server does not report them."""
    output_tokens: Count  # Largest number of output tokens of a query.
    prompts: str
    """Name of the file of prompts, or `synthetic`: seeded random tokens, different in each
    query."""
    prompts_sha256: Sha256 | None = None  # SHA-256 of the file; null if synthetic.
    prompt_lengths: TokenLengths | None = None
    """Lengths of the prompts; null if all have `prompt_tokens`, or if unknown."""
    counts: TokenCounts
    """Who counts the tokens: the engine (each token), the server (a total of each query), or an
    estimate from chunks of text."""
    is_local: bool  # Whether the run started the engine itself.
    cached_tokens: Count | None
    """Largest number of prompt tokens that came from a cache; null if not reported."""
    ended_early: Count  # Queries with fewer tokens than requested.
    output_lengths: TokenLengths | None = None
    """Generated tokens per query; null in older records."""
    template_tokens: Count | None = None
    """Prompt tokens of the chat template, which a server may cache; null if there is none."""
    hidden_reasoning_tokens: Count | None = None
    """Largest number of reasoning tokens that were not streamed, so that TTFT includes them; null
    if none, or not reported."""
    speculative: str | None = None  # Speculative decoding, as the server reports it; null if none.
    accepted_ratio: Ratio | None = None
    """Share of the speculated tokens that were accepted; null if not reported."""
    ttft: Latency | None = None
    """Time to first token, from handing over the prompt, or in scenario `poisson` from its
    scheduled arrival."""
    tpot: Latency | None = None
    """Time per output token of a query: (last - first) / (tokens after the first moment); null if
    there are none."""
    itl: Latency | None = None
    """Inter-token latency: every gap between two tokens; null if tokens came together."""
    prefill_tokens_per_s: QuantityOrZero | None = None
    """Prompt tokens divided by the median time to first token (by the mean if lengths differ)."""
    decode_tokens_per_s: QuantityOrZero | None = None
    """Inverse of the median `tpot`; if queries overlap, tokens divided by the timed part (in
    `concurrent` without ramp-up and tail)."""
    output_tokens_per_s: QuantityOrZero | None = None
    """All generated tokens divided by the time of the queries; if queries overlap, divided by the
    same time as above."""
    user_tokens_per_s: QuantityOrZero | None = None
    """Output tokens per second of one user after the first token: the mean of 1 / TPOT; null for
    queries of one token."""
    model: LanguageModel  # The language model.
    energy: GenerationEnergy | None = None  # Energy per token.

    @property
    def mean_prompt_tokens(self) -> float | None:
        """Return the mean tokens of a prompt; None where a server does not state them."""
        return self.prompt_lengths.mean_tokens if self.prompt_lengths else self.prompt_tokens

    @property
    def lengths(self) -> str:
        """The lengths of a query in words: `512+128`, `?+128` of an unknown prompt."""
        if self.prompt_lengths is not None and self.prompts != SYNTHETIC:
            return (
                f"{self.prompt_lengths.min_tokens} to "
                f"{self.prompt_lengths.max_tokens}+{self.output_tokens}"
            )
        return f"{'?' if self.prompt_tokens is None else self.prompt_tokens}+{self.output_tokens}"

    @property
    def mean_output_tokens(self) -> float:
        return self.output_lengths.mean_tokens if self.output_lengths else self.output_tokens
