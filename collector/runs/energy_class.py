"""The class of an energy: which energies may be ranked together, in every view."""

from dataclasses import dataclass

from edgemeter.agent.contract.record_figures import Scope

MEASURED = "measured"


@dataclass(frozen=True, slots=True, order=True)
class EnergyClass:
    """The class within which energies are ranked: the part of the machine that the sensor sees, and the provenance of the figure.

    As text it is the scope, with the provenance where the energy was not measured: `board-input, replayed`.
    """

    scope: Scope
    provenance: str

    def __str__(self) -> str:
        return self.scope if self.is_measured else f"{self.scope}, {self.provenance}"

    @property
    def is_measured(self) -> bool:
        """Whether a sensor measured it in the run itself."""
        return self.provenance == MEASURED


def may_rank_together(one: EnergyClass | None, other: EnergyClass | None) -> bool:
    """Return whether two energies may be set against each other: both exist, at one scope, of one provenance."""
    return one is not None and one == other
