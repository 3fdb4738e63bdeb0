"""The energies of a run, without the analysis of readings that gives them.

The analysis needs NumPy, and a run without sensors does not.
"""

from dataclasses import dataclass

from edgemeter.agent.contract.record_figures import Energy


@dataclass(frozen=True, slots=True)
class Energies:
    """The energies of a run.

    They are the energy with the widest scope, or why there is none; the others, and why some
    sensors gave none.
    """

    energy: Energy | None
    reason: str | None
    others: tuple[Energy, ...] = ()
    refused: tuple[str, ...] = ()

    def all(self) -> tuple[Energy, ...]:
        """Return all energies, the widest scope first."""
        return () if self.energy is None else (self.energy, *self.others)
