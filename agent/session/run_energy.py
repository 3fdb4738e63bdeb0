"""The energies of a measured or recorded run, and per token of generated text.

No sensor separates prefill and decoding within one run. A run with one output token gives the
energy of prefill, and `contract.decode_energy` is a difference between two runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_conditions import Environment, RuntimeInfo
from edgemeter.agent.contract.record_figures import Energy
from edgemeter.agent.contract.record_generation import MOST_CACHED, Generation, GenerationEnergy
from edgemeter.agent.energy.energies import Energies
from edgemeter.agent.energy.sampler import SensorTrace
from edgemeter.agent.energy.window import RunWindows
from edgemeter.agent.engine.job import MeasuredRun
from edgemeter.agent.power.excluded_devices import accelerator_link

if TYPE_CHECKING:
    from edgemeter.agent.energy.per_inference import EnergyRun

PREFILL = "generation_energy_prefill_token_gross_mj"
THIS_HOST = ("localhost", "127.0.0.1", "::1")
AnyRun = MeasuredRun | RunRecord


@dataclass(frozen=True, slots=True)
class RunEnergy:
    """The energies of a run, its generation with energies per token, and why some are absent."""

    energies: Energies
    generation: Generation | None
    reasons: dict[str, str]


def energy_of_run(
    run: MeasuredRun,
    traces: Sequence[SensorTrace],
    environment: Environment,
    why_no_power: str,
) -> RunEnergy:
    """Return all that the traces of the power sensors say of a measured run.

    `why_no_power` is the reason if there is no trace.
    """
    energies = Energies(None, why_no_power)
    if traces:
        windows = RunWindows(run.timed, run.idle_before, run.idle_after)
        energies = energies_of_run(run, traces, energy_run_of(run, windows, environment))
    generation, reasons = generation_with_energy(run, energies.energy)
    if energies.reason:
        reasons = reasons | {"energy": energies.reason}
    return RunEnergy(energies, generation, reasons)


def energy_run_of(run: AnyRun, windows: RunWindows, environment: Environment) -> "EnergyRun":
    """Return the measured work of a run with its windows."""
    # They need NumPy, which a run without sensors does not.
    from edgemeter.agent.energy import per_inference, queries  # noqa: PLC0415

    return per_inference.EnergyRun(
        windows.timed,
        windows.idle_before,
        windows.idle_after,
        run.load.samples if run.load else run.latency.count,
        queries.queries_of(run.samples, windows.timed.start_ns, windows.timed.end_ns),
        accelerator_link(run.runtime, environment.attached),
        environment.attached,
        # A query of a language model is many steps, so its load is not even.
        counts_inferences=run.generation is None,
    )


def energies_of_run(
    run: AnyRun, traces: Sequence[SensorTrace], energy_run: "EnergyRun"
) -> Energies:
    """Return the energies that the sensors give, or why there are none."""
    from edgemeter.agent.energy import per_inference  # noqa: PLC0415 - as above

    if elsewhere := served_elsewhere(run.generation, run.runtime):
        return Energies(None, elsewhere)
    return per_inference.energies_of(traces, energy_run)


def generation_with_energy(
    run: AnyRun, energy: Energy | None
) -> tuple[Generation | None, dict[str, str]]:
    """Return the generation with its energies per token, and why some are absent.

    The generation is None without one.
    """
    if run.generation is None:
        return None, {}
    shared = {"generation_energy": "models that run at the same time share the energy"}
    tokens, reasons = (None, shared) if run.together else generation_energy(energy, run.generation)
    return msgspec.structs.replace(run.generation, energy=tokens), reasons


def served_elsewhere(generation: Generation | None, runtime: RuntimeInfo) -> str | None:
    """Return why no sensor of this machine sees the energy, otherwise None.

    The reason is that a server on another machine ran the model.
    """
    if runtime.name != "served" and (generation is None or generation.is_local):
        return None
    host = urlsplit(runtime.facts.get("server_url", "")).hostname or "unknown host"
    if host in THIS_HOST or runtime.facts.get("server_machine") == "this":
        return None
    return (
        f"the model ran on the server {host}, whose power no sensor here sees: measure "
        "on that machine"
    )


def generation_energy(
    energy: Energy | None, generation: Generation
) -> tuple[GenerationEnergy | None, dict[str, str]]:
    """Return the energies per token from that of a request.

    Also returned is why there are none, or none per prompt token.
    """
    if energy is None:
        return None, {"generation_energy": "the run has no energy"}
    output_tokens, prompt_tokens, why_no_prefill = (
        generation.mean_output_tokens,
        generation.mean_prompt_tokens,
        _why_no_prefill(generation),
    )
    of_output = GenerationEnergy(
        output_token_gross_mj=energy.gross_mj / output_tokens,
        output_token_gross_u_mj=None
        if energy.gross_u_mj is None
        else energy.gross_u_mj / output_tokens,
    )
    if why_no_prefill or not prompt_tokens:
        return of_output, {
            PREFILL: why_no_prefill or "the server does not report the number of prompt tokens"
        }
    of_both = msgspec.structs.replace(
        of_output,
        prefill_token_gross_mj=energy.gross_mj / prompt_tokens,
        prefill_token_gross_u_mj=None
        if energy.gross_u_mj is None
        else energy.gross_u_mj / prompt_tokens,
    )
    return of_both, {}


def _why_no_prefill(generation: Generation) -> str | None:
    longest = (
        generation.output_lengths.max_tokens
        if generation.output_lengths
        else generation.output_tokens
    )
    if longest > 1:
        return (
            "a run with several output tokens does not separate prefill from decoding: measure "
            "both (--output-tokens 1,128)"
        )
    if (generation.cached_tokens or 0) > MOST_CACHED:
        return "prompts came partly from a cache"
    if generation.hidden_reasoning_tokens:
        return "the time to the first token includes reasoning that is not streamed"
    return None
