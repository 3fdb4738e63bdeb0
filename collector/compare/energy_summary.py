"""The energy of a case: by which meter, and why there is none; its figures are among those of the summary."""

from collections.abc import Sequence
from dataclasses import dataclass

from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_figures import Scope
from edgemeter.collector.compare.spread import of_one_kind
from edgemeter.collector.runs.cases import distinct
from edgemeter.collector.runs.energy_class import EnergyClass
from edgemeter.collector.runs.store import LeftOut


@dataclass(frozen=True, slots=True)
class EnergySummary:
    """The energies of a case per inference; of a language model per request and per token.

    Net energy has a figure only if `net_state` is `resolved`, in every run.
    """

    provenance: str
    sensor: str
    scope: Scope
    excludes: tuple[str, ...]
    net_state: str

    @property
    def ranks_as(self) -> EnergyClass:
        """The class of energies that it may be ranked with."""
        return EnergyClass(self.scope, self.provenance)


def energy_of(runs: Sequence[RunRecord]) -> tuple[EnergySummary | None, str | None, list[LeftOut]]:
    """Return what the energies of a case are (runs oldest first), or why there are none, and what is left out."""
    kept, left_out = of_one_kind(runs, "energy")
    energies = [run.energy for run in kept if run.energy is not None]
    if not energies:
        reasons = distinct([*(run.energy_reason for run in runs), *map(_estimate, runs), *(entry.reason for entry in left_out)])
        return None, "; ".join(reasons) or "not measured", left_out
    newest = energies[-1]
    summary = EnergySummary(
        provenance=energy_provenance(kept[-1]) or "",
        sensor=newest.sensor,
        scope=newest.scope,
        excludes=newest.excludes,
        net_state=next((energy.net_state for energy in energies if energy.net_state != "resolved"), "resolved"),
    )
    return summary, None, left_out


def _estimate(run: RunRecord) -> str | None:
    """Return the estimate of a run in words: it is shown as a reason, not as a figure."""
    if run.energy is None or energy_provenance(run) not in ("estimated", "modelled"):
        return None
    how = f"modelled by {run.energy.sensor}" if run.energy.is_modelled else f"from a stated {run.energy.mean_power_w:.4g} W"
    return f"estimated {run.energy.gross_mj:.4g} mJ gross {how}"
