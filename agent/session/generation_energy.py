"""Energy of generated text by the token: that of a whole request, prefill included; of requests of one output token, that of prefill.

No sensor cuts prefill and decoding out of one run: `contract.decode_energy` is the difference of two.
"""

from urllib.parse import urlsplit

import msgspec

from edgemeter.agent.contract.record_conditions import RuntimeInfo
from edgemeter.agent.contract.record_figures import Energy
from edgemeter.agent.contract.record_generation import MOST_CACHED, Generation, GenerationEnergy

PREFILL = "generation_energy_prefill_token_gross_mj"
THIS_HOST = ("localhost", "127.0.0.1", "::1")


def served_elsewhere(generation: Generation | None, runtime: RuntimeInfo) -> str | None:
    """Return why no sensor of this machine sees what ran the model: a server on another one did; None otherwise."""
    if runtime.name != "served" and (generation is None or generation.is_local):
        return None
    host = urlsplit(runtime.facts.get("server_url", "")).hostname or "unknown host"
    if host in THIS_HOST or runtime.facts.get("server_machine") == "this":
        return None
    work = "text was generated" if generation else "model was run"
    return f"the {work} by a server on {host}, which no power sensor here sees: measure on that machine"


def generation_energy(energy: Energy | None, generation: Generation) -> tuple[GenerationEnergy | None, dict[str, str]]:
    """Return the energies per token out of that of a request, and why there are none, or none of a prompt token."""
    if energy is None:
        return None, {"generation_energy": "the run has no energy"}
    output_tokens, prompt_tokens, why_no_prefill = generation.mean_output_tokens, generation.mean_prompt_tokens, _why_no_prefill(generation)
    of_output = GenerationEnergy(
        output_token_gross_mj=energy.gross_mj / output_tokens,
        output_token_gross_u_mj=None if energy.gross_u_mj is None else energy.gross_u_mj / output_tokens,
    )
    if why_no_prefill or not prompt_tokens:
        return of_output, {PREFILL: why_no_prefill or "the server does not state how many tokens a prompt has"}
    of_both = msgspec.structs.replace(
        of_output,
        prefill_token_gross_mj=energy.gross_mj / prompt_tokens,
        prefill_token_gross_u_mj=None if energy.gross_u_mj is None else energy.gross_u_mj / prompt_tokens,
    )
    return of_both, {}


def _why_no_prefill(generation: Generation) -> str | None:
    longest = generation.output_lengths.max_tokens if generation.output_lengths else generation.output_tokens
    if longest > 1:
        return "a run of several output tokens does not tell prefill from decoding: measure both (--output-tokens 1,128)"
    if (generation.cached_tokens or 0) > MOST_CACHED:
        return "prompts came partly from a cache"
    if generation.hidden_reasoning_tokens:
        return "the time to the first token holds reasoning that is not streamed"
    return None
