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
    picture: TokenEnergy | None = None  # Energy of encoding a picture, per picture.
    picture_reason: str | None = None  # Why there is no energy of a picture, where there are pictures.


class TokenLengths(RecordPart, frozen=True, kw_only=True):
    """How many tokens queries have, over all that were answered."""

    min_tokens: Count  # Fewest.
    p50_tokens: float  # Median.
    mean_tokens: float  # Mean.
    max_tokens: Count  # Most.


class TurnFigures(RecordPart, frozen=True, kw_only=True):
    """The queries that are the same turn of their conversations."""

    turn: Count  # The turn, from 1.
    queries: Count  # Answered queries that are this turn.
    prompt_tokens: float | None = None  # Mean tokens of their prompts, all of the conversation before; null where a server states none.
    cached_tokens: float | None = None  # Mean tokens of these that were not processed again; null where a server states none.
    ttft: Latency | None = None  # Time to first token; null where `streaming_reason` states why.
    tpot: Latency | None = None  # Time per output token.


class TraceFile(RecordPart, frozen=True, kw_only=True):
    """The trace of requests whose times and lengths were replayed, with synthetic prompts."""

    file: str  # Name of the file.
    sha256: Sha256  # SHA-256 of the file.
    requests: Count  # Requests that were replayed.
    left_out: Count = 0  # Requests of the file without a token, which were not.


class Generation(RecordPart, frozen=True, kw_only=True):
    """Text generated token by token. `latency` is that of the whole query, until its last token; `throughput_per_s` counts queries."""

    prompt_tokens: Count | None
    """Tokens of the longest prompt, behind which decoding begins; 0 at `depth_tokens`; null where a server states none."""
    depth_tokens: Count | None = None
    """Tokens of the context behind which each query begins, filled once in a run; null where queries have prompts of their own."""
    output_tokens: Count  # Tokens asked of each query, at most.
    context_tokens: Count  # Allocated context in tokens.
    prompts: str  # Where the prompts come from: a file's name; `synthetic` are seeded random tokens, another for each query.
    prompts_salt: str | None = None
    """Word with which synthetic texts begin, another in each run, so that no cache has them; null where prompts are tokens."""
    prompts_sha256: Sha256 | None = None  # SHA-256 of the file; null of synthetic ones.
    chat_template: bool | None = None  # Whether the model's chat template was applied to the prompts of the file.
    prefix_cache: Literal["on", "off"] | None = None
    """Whether a turn might reuse what was cached of its own conversation; null where queries are no turns."""
    turns: tuple[TurnFigures, ...] = ()  # Figures of each turn of conversations; none where queries are no turns.
    trace: TraceFile | None = None  # The trace that was replayed; null where there was none.
    prompt_lengths: TokenLengths | None = None  # Tokens of the prompts where they differ; null where all have `prompt_tokens`, or unknown.
    sampling: str  # How the next token is chosen: `greedy` is the likeliest.
    ends_at: Literal["length", "end_of_text"]  # The end of a query: its length, or the model's end of text too.
    counts: TokenCounts
    """Who counts the tokens: the engine token by token, a server's total of each query, or an estimate from chunks of text."""
    is_local: bool  # Whether the engine runs in the run's own process.
    stamped_tokens_max: Positive  # Most tokens that came together.
    cached_tokens: Count | None
    """Most tokens of a prompt that were not processed again for a query, of a filled context the fewest; null where not stated."""
    ended_early: Count  # Queries with fewer tokens than asked for.
    output_lengths: TokenLengths | None = None
    """Tokens generated; null in older records, whose figures leave out the queries that ended early."""
    template_tokens: Count | None = None  # Prompt tokens of the chat template, which a server may cache; null: there is none.
    failed_queries: Count = 0  # Queries that the server did not answer; they are in no statistic.
    failures: dict[str, Count] = {}  # Failed queries by their kind, e.g. `http 429`.
    hidden_reasoning_tokens: Count | None = None
    """Most reasoning tokens of an answer that were not streamed: TTFT holds their time; null: none, or none stated."""
    streaming_reason: str | None = None  # Why there are no times of single tokens; null if there are.
    speculative: str | None = None  # How several tokens a step are guessed; null: they are not.
    drafted_tokens: Count | None = None  # Tokens that speculation guessed, in all queries; null where it is off or the engine states none.
    accepted_tokens: Count | None = None  # Tokens of these that the model accepted.
    step_tokens: float | None = None
    """Tokens after the first by the model's steps for them, under speculation; null where unknown, as of a server's text that ended by
    itself, since its end may have been a guess."""
    ttft: Latency | None = None
    """Time to first token: from the hand-over of the prompt, or in an open loop from its scheduled arrival, to its first token."""
    image_tokens: Count | None = None  # Most tokens of a prompt that are a picture's; null where there is none, or the server states none.
    image_encode: Latency | None = None  # Scaling a picture, its encoder and projector: the first part of TTFT; null where unknown.
    image_reason: str | None = None  # Why tokens or time of the pictures are not known, where there are pictures.
    ttft_reason: str | None = None  # Why there is no time to first token, although there are times of tokens.
    tpot: Latency | None = None
    """Time per output token of a query: (last - first) / the tokens that came after the first moment, null where none did; at a depth in
    this process (last - start) / tokens."""
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
    """Weights read per second of decoding, in MB/s: `decode_tokens_per_s` / `step_tokens` times `weights_mb`; null where queries overlap or
    the tokens of a step are unknown."""
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
    def decodes_from_start(self) -> bool:
        """Whether every step of a query is one of decoding: behind a filled context, without a network before the first token."""
        return self.depth_tokens is not None and self.is_local

    @property
    def has_other_lengths(self) -> bool:
        """Whether the prompts were made to have other lengths: those of a file, of turns, or of a trace."""
        return self.prompts != SYNTHETIC or self.prefix_cache is not None or self.trace is not None

    @property
    def unanswered(self) -> int:
        """The failed queries, but for empty answers to the questions of a file, which are scored as such."""
        return self.failed_queries - (self.failures.get(EMPTY_ANSWER, 0) if self.prompts != SYNTHETIC else 0)

    @property
    def lengths(self) -> str:
        """The lengths of a query in words: `512+128`, `?+128` of an unknown prompt, `128 at depth 1024`."""
        if self.depth_tokens is not None:
            return f"{self.output_tokens} at depth {self.depth_tokens}"
        if self.prompt_lengths is not None and self.has_other_lengths:
            return f"{self.prompt_lengths.min_tokens} to {self.prompt_lengths.max_tokens}+{self.output_tokens}"
        return f"{'?' if self.prompt_tokens is None else self.prompt_tokens}+{self.output_tokens}"

    @property
    def acceptance(self) -> str | None:
        """The outcome of speculation in words; None where it is not known."""
        if (ratio := accepted_ratio(self.drafted_tokens, self.accepted_tokens)) is None:
            return None
        steps = f", {self.step_tokens:.3g} tokens a step" if self.step_tokens else ""
        return f"{ratio:.0%} of its guesses are accepted{steps}"

    @property
    def mean_output_tokens(self) -> float:
        """The mean length of the answers."""
        return self.output_lengths.mean_tokens if self.output_lengths else self.output_tokens


def accepted_ratio(drafted_tokens: int | None, accepted_tokens: int | None) -> float | None:
    """Return the share of the drafted tokens that the model accepted; None without speculation, or where the engine states none."""
    return accepted_tokens / drafted_tokens if drafted_tokens and accepted_tokens is not None else None
