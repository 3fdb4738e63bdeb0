"""The part of the record on generated text: what was asked for, when its tokens came, and the model as its file describes it."""

from typing import Literal

from edgemeter.agent.base.types import Count, Positive, Ratio, Sha256
from edgemeter.agent.contract.record_conditions import RecordPart
from edgemeter.agent.contract.record_figures import Goodput, Latency, Scope

TokenCounts = Literal["exact", "usage", "estimated"]
# Where the prompts come from that are of no file.
SYNTHETIC = "synthetic"
# The kind of a failed query whose answer has no token.
EMPTY_ANSWER = "no token"
# A begin-of-text token may stay in a cache.
MOST_CACHED = 1


class Quantisation(RecordPart, frozen=True, kw_only=True):
    """How the model file stores its weights."""

    file_type: str  # The quantisation's name in the file, e.g. Q4_K_M.
    bytes_ratio: dict[str, Ratio] = {}  # Share of the bytes of each tensor type, 0..1.


class LanguageModel(RecordPart, frozen=True, kw_only=True):
    """The language model as its file or its server describes it; null where it does not."""

    name: str | None = None  # Name that the file gives itself.
    architecture: str | None = None  # Architecture, e.g. llama.
    parameters: Count | None = None  # Number of weights.
    read_parameters: Count | None = None
    """Number of weights that every token passes: of a mixture of experts those of the experts used; without the tables of inputs and of
    outputs, of which a prompt passes the latter once."""
    trained_context_tokens: Count | None = None  # Context that the model was made for, in tokens.
    weights_mb: float | None = None  # Weights that decoding one token reads, in MB.
    kv_token_bytes: float | None = None  # What a step reads of the cache for each token before it, in bytes; see `kv_cache_mb`.
    kv_cache_mb: float | None = None  # Size of the allocated cache, as the engine logs it, else computed, in MB.
    kv_type: str | None = None  # Type of the values in the cache, e.g. f16.
    quantisation: Quantisation | None = None  # How the weights are stored.
    tokenizer_sha256: Sha256 | None = None  # SHA-256 of the tokenizer in the file.
    chat_template_sha256: Sha256 | None = None  # SHA-256 of the chat template.
    digest_sha256: Sha256 | None = None  # SHA-256 by which a server names the version of its model.


class TokenEnergy(RecordPart, frozen=True, kw_only=True):
    """Energy per token of one part of the queries. An unknown uncertainty is null: it is not zero."""

    gross_mj: float  # Energy per token in mJ, everything the sensor sees.
    gross_u_mj: float | None = None  # Expanded uncertainty (95%) of `gross_mj` in mJ.
    net_mj: float | None = None  # Energy per token above idle power over the time of this part, in mJ; null where it does not stand out.
    net_u_mj: float | None = None  # Expanded uncertainty (95%) of `net_mj` in mJ.


class GenerationEnergy(RecordPart, frozen=True, kw_only=True):
    """Energy per token, by the sensor of `energy`, whose `gross_mj` is that of a whole request."""

    sensor: str  # Id of the power sensor.
    scope: Scope  # Part of the machine that the sensor sees.
    output_token_gross_mj: float  # Energy of the whole request per output token in mJ: prefill included.
    output_token_gross_u_mj: float | None = None  # Expanded uncertainty (95%) of `output_token_gross_mj` in mJ.
    prefill_token: TokenEnergy | None = None  # Energy of the prefill per prompt token.
    prefill_reason: str | None = None  # Why there is no energy of the prefill.
    decode_token: TokenEnergy | None = None  # Energy of decoding per token after the first.
    decode_reason: str | None = None  # Why there is no energy of decoding.


class TokenLengths(RecordPart, frozen=True, kw_only=True):
    """How many tokens queries have, over all that were answered."""

    min_tokens: Count  # Fewest.
    p50_tokens: float  # Median.
    mean_tokens: float  # Mean.
    max_tokens: Count  # Most.


class Generation(RecordPart, frozen=True, kw_only=True):
    """Text generated token by token. `latency` is that of the whole query, until its last token; `throughput_per_s` counts queries."""

    prompt_tokens: Count | None
    """Tokens of the longest prompt, behind which decoding begins; null where a server states none."""
    output_tokens: Count  # Tokens asked of each query, at most.
    context_tokens: Count  # Allocated context in tokens.
    prompts: str  # Where the prompts come from: a file's name; `synthetic` are seeded random tokens, another for each query.
    prompts_salt: str | None = None
    """Word with which synthetic texts begin, another in each run, so that no cache has them; null where prompts are tokens."""
    prompts_sha256: Sha256 | None = None  # SHA-256 of the file; null of synthetic ones.
    chat_template: bool | None = None  # Whether the model's chat template was applied to the prompts of the file.
    prompt_lengths: TokenLengths | None = None  # Tokens of the prompts where they differ; null where all have `prompt_tokens`, or unknown.
    sampling: str  # How the next token is chosen: `greedy` is the likeliest.
    ends_at: Literal["length", "end_of_text"]  # The end of a query: its length, or the model's end of text too.
    counts: TokenCounts
    """Who counts the tokens: the engine token by token, a server's total of each query, or an estimate from chunks of text."""
    is_local: bool  # Whether the engine runs in the run's own process.
    stamped_tokens_max: Positive  # Most tokens that came together.
    cached_tokens: Count | None
    """Most tokens of a prompt that were not processed again for a query; null where not stated."""
    ended_early: Count  # Queries with fewer tokens than asked for.
    output_lengths: TokenLengths | None = None
    """Tokens generated; null in older records, whose figures leave out the queries that ended early."""
    template_tokens: Count | None = None  # Prompt tokens of the chat template, which a server may cache; null: there is none.
    failed_queries: Count = 0  # Queries that the server did not answer; they are in no statistic.
    failures: dict[str, Count] = {}  # Failed queries by their kind, e.g. `http 429`.
    hidden_reasoning_tokens: Count | None = None
    """Most reasoning tokens of an answer that were not streamed: TTFT holds their time; null: none, or none stated."""
    streaming_reason: str | None = None  # Why there are no times of single tokens; null if there are.
    speculative: str | None = None  # How a server guesses several tokens a step, as it states; null: it does not.
    drafted_tokens: Count | None = None  # Tokens that it guessed, in all queries, as it states; null where it states none.
    accepted_tokens: Count | None = None  # Tokens of these that it accepted, as it states.
    ttft: Latency | None = None
    """Time to first token: from the hand-over of the prompt, or in an open loop from its scheduled arrival, to its first token."""
    tpot: Latency | None = None
    """Time per output token of a query: (last - first) / the tokens that came after the first moment, null where none did."""
    itl: Latency | None = None
    """Inter-token latency: every gap between two tokens. Bounds by resampling whole queries; null where tokens came together."""
    prefill_tokens_per_s: float | None = None
    """Prompt tokens by the time to first token, as a ratio of sums; where queries overlap (poisson, concurrent), as below."""
    decode_tokens_per_s: float | None = None
    """Tokens by the time that they took, those of `tpot`, as a ratio of sums; where queries overlap, by the whole timed part, of a closed
    loop of several users by that between ramp-up and tail (`load`)."""
    output_tokens_per_s: float | None = None
    """All tokens that were generated, the first of each query too, by the time of the queries; where queries overlap as above."""
    user_tokens_per_s: float | None = None
    """Output tokens a second that one user sees once text comes: the mean over queries of 1 / TPOT; null for queries of one token."""
    goodput: Goodput | None = None  # Requests that met the limits; null where no limits were set.
    weight_bandwidth_mb_per_s: float | None = None
    """Weights read per second of decoding, in MB/s: `decode_tokens_per_s` times `weights_mb`; null where queries overlap or a
    server guesses tokens."""
    read_bandwidth_mb_per_s: float | None = None
    """Weights and cache read per second of decoding, in MB/s: what lies in the cache at the mean depth is added to the weights."""
    own_prefill_tokens_per_s: float | None = None
    """The engine's own rate of processing prompts, by its own timings of the same queries; null where it states none or queries overlap."""
    own_decode_tokens_per_s: float | None = None  # The engine's own rate of decoding, as a ratio of sums too.
    encode_ms: float | None = None
    """Tokenisation of a text of about `encode_tokens` tokens, in ms; no part of TTFT where prompts are tokens."""
    encode_tokens: Count | None = None  # Tokens of that text.
    network_round_trip_ms: float | None = None
    """Round trip of a small request to the server in ms, which is part of TTFT; null where there is no server."""
    model: LanguageModel  # The language model.
    energy: GenerationEnergy | None = None  # Energy per token.
    energy_reason: str | None = None  # Why there is no energy per token.

    @property
    def mean_prompt_tokens(self) -> float | None:
        """Return the mean tokens of a prompt; None where a server does not state them."""
        return self.prompt_lengths.mean_tokens if self.prompt_lengths else self.prompt_tokens

    @property
    def unanswered(self) -> int:
        """The failed queries, but for empty answers to the questions of a file, which are scored as such."""
        return self.failed_queries - (self.failures.get(EMPTY_ANSWER, 0) if self.prompts != SYNTHETIC else 0)

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
