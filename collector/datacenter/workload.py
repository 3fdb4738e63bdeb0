"""A request of a language model: its tokens and its quantisation, and in what two sides differ that did not do the same work."""

from dataclasses import dataclass

from edgemeter.agent.base import figures
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.datacenter.constants import DataSize, StatedTokens
from edgemeter.collector.datacenter.formulas import Band

DEFINITION = (
    "energy of a whole request, prefill included, divided by its output tokens; a measured request's energy is that of the timed window, "
    "divided by the requests in it"
)
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class TokenWorkload:
    """A request, and how many a side worked on at once. `counts` is who counted the tokens; what a text leaves open is None."""

    prompt_tokens: int | None
    output_tokens: float
    precision: str
    concurrency: int
    counts: str
    prompts: str | None = None
    sampling: str | None = None
    ends_at: str | None = None
    speculative: str | None = None
    kv_type: str | None = None
    is_in_process: bool | None = None

    @property
    def words(self) -> str:
        """The same in words: `512 prompt + 128 output tokens, q4_0`."""
        prompt = "unknown" if self.prompt_tokens is None else self.prompt_tokens
        return f"{prompt} prompt + {self.output_tokens:.6g} output tokens, {self.precision}"

    def per_output_token(self, request: Band) -> Band:
        """Return the energy of a request per output token: see `DEFINITION`."""
        return request.scaled(1 / self.output_tokens)

    def cautions(self) -> list[str]:
        """Return what to know of the energy per output token."""
        if self.counts != "estimated":
            return []
        return ["its tokens are estimated from chunks of text: so is its energy per output token"]


def workload_of(case: CaseSummary) -> TokenWorkload | None:
    """Return what a request of a measured case is; None of a model that generates nothing."""
    generation = case.newest.generation
    if generation is None:
        return None
    counted = {run.generation.counts for run in case.runs if run.generation}
    return TokenWorkload(
        prompt_tokens=None if generation.mean_prompt_tokens is None else round(generation.mean_prompt_tokens),
        output_tokens=generation.mean_output_tokens,
        precision=case.key.precision,
        concurrency=max((run.load.in_flight_max or 1 for run in case.runs if run.load), default=1),
        counts="estimated" if "estimated" in counted else generation.counts,
        prompts=generation.prompts,
        sampling=generation.sampling,
        ends_at=generation.ends_at,
        speculative=generation.speculative or "none",
        kv_type=generation.model.kv_type,
        is_in_process=generation.is_local,
    )


def stated_workload(tokens: StatedTokens | None) -> TokenWorkload | None:
    """Return what a request is by stated numbers."""
    if tokens is None:
        return None
    return TokenWorkload(tokens.prompt_tokens, tokens.output_tokens, tokens.precision, tokens.concurrency, "stated")


def why_no_tokens(case: CaseSummary) -> str | None:
    """Return why the output tokens of a case's requests are not known, None if they are."""
    if any(run.generation.prompt_tokens is None for run in case.runs if run.generation):
        return "its server does not state how many tokens a prompt has: equal requests cannot be told"
    early = sum(run.generation.ended_early for run in case.runs if run.generation and not run.generation.output_lengths)
    return f"{figures.count(early, 'request')} ended early: energy per output token is unknown" if early else None


def differences(edge: TokenWorkload, server: TokenWorkload) -> list[str]:
    """Return in what the work differs, in words; what is not known of one side is no difference, but an unknown quantisation is."""
    pairs = [(title, getattr(edge, name), getattr(server, name)) for name, title in _COMPARED.items()]
    return [
        f"{title} {_text(mine)}, there {_text(server_value)}"
        for title, mine, server_value in pairs
        if mine is not None and server_value is not None and (mine != server_value or mine == UNKNOWN)
    ]


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


_COMPARED = {
    "prompt_tokens": "prompt tokens",
    "output_tokens": "output tokens",
    "precision": "quantisation",
    "prompts": "prompts",
    "sampling": "sampling",
    "ends_at": "end of a request",
    "speculative": "speculation",
    "kv_type": "type of the cache",
}


def text_bytes(token: DataSize, workload: TokenWorkload) -> float:
    """Return the bytes of a request's text, prompt and output."""
    # A case whose prompts have an unknown length is left out before.
    return token.bytes * float((workload.prompt_tokens or 0) + workload.output_tokens)
