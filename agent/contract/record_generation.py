"""The part of the record on generated text: what was asked for, when its tokens came, and the model as its server describes it."""

from typing import Literal

from edgemeter.agent.base.types import Count, Ratio, Sha256
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

    name: str | None = None  # Name by which a server lists it.
    parameters: Count | None = None  # Number of weights.
    kv_type: str | None = None  # Type of the values in the cache, e.g. f16.


class GenerationEnergy(RecordPart, frozen=True, kw_only=True):
    """Energy per token, by the sensor of `energy`, whose `gross_mj` is that of a whole request. An unknown uncertainty is null."""

    output_token_gross_mj: float  # Energy of the whole request per output token in mJ: prefill included.
    output_token_gross_u_mj: float | None = None  # Expanded uncertainty (95%) of `output_token_gross_mj` in mJ.
    prefill_token_gross_mj: float | None = None  # Energy per prompt token in mJ, of a run with one output token: its requests are prefill.
    prefill_token_gross_u_mj: float | None = None  # Expanded uncertainty (95%) of `prefill_token_gross_mj` in mJ.


class TokenLengths(RecordPart, frozen=True, kw_only=True):
    """How many tokens queries have, over all that were answered."""

    min_tokens: Count  # Fewest.
    mean_tokens: float  # Mean.
    max_tokens: Count  # Most.


class Generation(RecordPart, frozen=True, kw_only=True):
    """Text generated token by token. `latency` is that of the whole query, until its last token; `throughput_per_s` counts queries."""

    prompt_tokens: Count | None
    """Tokens of the longest prompt, behind which decoding begins; null where a server states none."""
    output_tokens: Count  # Tokens asked of each query, at most.
    prompts: str  # Where the prompts come from: a file's name; `synthetic` are seeded random tokens, another for each query.
    prompts_sha256: Sha256 | None = None  # SHA-256 of the file; null of synthetic ones.
    prompt_lengths: TokenLengths | None = None  # Tokens of the prompts where they differ; null where all have `prompt_tokens`, or unknown.
    counts: TokenCounts
    """Who counts the tokens: the engine token by token, a server's total of each query, or an estimate from chunks of text."""
    is_local: bool  # Whether the run started the engine itself.
    cached_tokens: Count | None
    """Most tokens of a prompt that were not processed again for a query; null where not stated."""
    ended_early: Count  # Queries with fewer tokens than asked for.
    output_lengths: TokenLengths | None = None
    """Tokens generated; null in older records, whose figures leave out the queries that ended early."""
    template_tokens: Count | None = None  # Prompt tokens of the chat template, which a server may cache; null: there is none.
    hidden_reasoning_tokens: Count | None = None
    """Most reasoning tokens of an answer that were not streamed: TTFT holds their time; null: none, or none stated."""
    speculative: str | None = None  # How a server guesses several tokens a step, as it states; null: it does not.
    accepted_ratio: Ratio | None = None  # Share of the guessed tokens that it accepted, as it states; null where it states none.
    ttft: Latency | None = None
    """Time to first token: from the hand-over of the prompt, or in an open loop from its scheduled arrival, to its first token."""
    tpot: Latency | None = None
    """Time per output token of a query: (last - first) / the tokens that came after the first moment, null where none did."""
    itl: Latency | None = None
    """Inter-token latency: every gap between two tokens. Bounds by resampling whole queries; null where tokens came together."""
    prefill_tokens_per_s: float | None = None
    """Prompt tokens by the median time to first token, of prompts of several lengths by the mean; where queries overlap (poisson,
    concurrent), as below."""
    decode_tokens_per_s: float | None = None
    """The median of `tpot` turned over; where queries overlap, tokens by the whole timed part, of a closed loop of several users by that
    between ramp-up and tail (`load`)."""
    output_tokens_per_s: float | None = None
    """All tokens that were generated, the first of each query too, by the time of the queries; where queries overlap as above."""
    user_tokens_per_s: float | None = None
    """Output tokens a second that one user sees once text comes: the mean over queries of 1 / TPOT; null for queries of one token."""
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
            return f"{self.prompt_lengths.min_tokens} to {self.prompt_lengths.max_tokens}+{self.output_tokens}"
        return f"{'?' if self.prompt_tokens is None else self.prompt_tokens}+{self.output_tokens}"

    @property
    def mean_output_tokens(self) -> float:
        """The mean length of the answers."""
        return self.output_lengths.mean_tokens if self.output_lengths else self.output_tokens
