"""A rule of the verdict, and the facts that rules judge."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from edgemeter.agent.contract.record_conditions import Condition, Environment, Violation
from edgemeter.agent.contract.record_figures import Energy
from edgemeter.agent.engine.job import MeasuredRun, Scored

# A `note` is no reason to doubt the figures.
Effect = Literal["invalid", "disturbed", "note"]


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


@dataclass(frozen=True, slots=True)
class RuleEvidence:
    """The evidence for a violation: numbers, named as in the record, and the process, sensor, class or part that they are about."""

    numbers: dict[str, float] = field(default_factory=dict)
    subject: str | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule with its effect on the verdict.

    `sentence` is a template for the numbers and the subject of a violation. A part in brackets is left out if one of its values is missing.
    `check` returns None if the rule is not violated, or its facts are unknown.
    """

    name: str
    effect: Effect
    sentence: str
    remedy: str
    check: Callable[[Facts], RuleEvidence | None]


def violations(rules: Iterable[Rule], facts: Facts) -> list[tuple[Rule, Violation]]:
    """Return the rules that the facts violate, each with its violation."""
    checked = ((rule, rule.check(facts)) for rule in rules)
    return [
        (rule, Violation(rule=rule.name, numbers=evidence.numbers, subject=evidence.subject))
        for rule, evidence in checked
        if evidence is not None
    ]
