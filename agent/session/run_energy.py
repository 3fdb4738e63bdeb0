"""The energies of a run that was just measured, or of a recorded one: what the readings of its power sensors support."""

from collections.abc import Sequence

import msgspec

from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_conditions import Environment
from edgemeter.agent.contract.record_figures import Energy
from edgemeter.agent.contract.record_generation import Generation
from edgemeter.agent.energy import per_inference, queries
from edgemeter.agent.energy.per_inference import EnergyRun
from edgemeter.agent.energy.sampler import SensorTrace
from edgemeter.agent.energy.window import Window
from edgemeter.agent.engine.job import MeasuredRun
from edgemeter.agent.power.excluded_devices import accelerator_link
from edgemeter.agent.session.generation_energy import generation_energy, served_elsewhere

AnyRun = MeasuredRun | RunRecord


def energy_run_of(run: AnyRun, windows: tuple[Window, Window | None, Window | None], environment: Environment) -> EnergyRun:
    """Return when and what was measured, as the energy takes it; the windows are the timed part and those of idle before and after it."""
    timed, before, after = windows
    return EnergyRun(
        timed,
        before,
        after,
        run.load.samples if run.load else run.latency.count,
        queries.queries_of(run.samples, timed.start_ns, timed.end_ns),
        accelerator_link(run.runtime, environment.attached),
        environment.attached,
        # A query of a language model is many steps: a few of them are enough.
        counts_inferences=run.generation is None,
    )


def energies_of_run(run: AnyRun, traces: Sequence[SensorTrace], energy_run: EnergyRun) -> per_inference.Energies:
    """Return the energies that the sensors give, or why there are none."""
    if elsewhere := served_elsewhere(run.generation, run.runtime):
        return per_inference.Energies(None, elsewhere)
    return per_inference.energies_of(traces, energy_run)


def generation_with_energy(run: AnyRun, energy: Energy | None) -> tuple[Generation | None, dict[str, str]]:
    """Return what was generated, with the energies per token, and why some are absent; None where no text was."""
    if run.generation is None:
        return None, {}
    shared = {"generation_energy": "the energy of models that run at the same time is shared: no stretch of it is of one"}
    tokens, reasons = (None, shared) if run.together else generation_energy(energy, run.generation)
    return msgspec.structs.replace(run.generation, energy=tokens), reasons
