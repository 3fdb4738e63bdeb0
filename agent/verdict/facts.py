"""The facts that rules of the verdict judge."""

from collections.abc import Sequence
from dataclasses import dataclass

from edgemeter.agent.contract.record_conditions import Condition, Environment
from edgemeter.agent.contract.record_figures import Energy
from edgemeter.agent.engine.job import MeasuredRun, Scored


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about a timed run, a model that was only scored, or the machine alone."""

    evaluated: MeasuredRun | Scored | None = None
    conditions: Sequence[Condition] = ()
    environment: Environment | None = None
    energies: Sequence[Energy] = ()
    power_warnings: Sequence[str] = ()
    lost_sensors: Sequence[str] = ()
    clock_synchronised: bool | None = None

    @property
    def run(self) -> MeasuredRun:
        """The timed run, for rules on runs."""
        if not isinstance(self.evaluated, MeasuredRun):
            raise TypeError("these facts are not of a timed run")
        return self.evaluated

    @property
    def outputs_of(self) -> MeasuredRun | Scored:
        """The run, timed or only scored, for rules on outputs."""
        if self.evaluated is None:
            raise TypeError("these facts are of no model")
        return self.evaluated

    def at(self, *when: str) -> list[Condition]:
        """Return the conditions `before`, `during` or `after` the run; without arguments all."""
        return [condition for condition in self.conditions if not when or condition.when in when]
