"""A rule of the verdict."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from edgemeter.agent.contract.record_conditions import Violation

if TYPE_CHECKING:
    from edgemeter.agent.verdict.facts import Facts

# A `note` is no reason to doubt the figures.
Effect = Literal["invalid", "disturbed", "note"]


@dataclass(frozen=True, slots=True)
class RuleEvidence:
    """The evidence for a violation: numbers, named as in the record, and their subject.

    The subject is the process, sensor, class or part that they are about.
    """

    numbers: dict[str, float] = field(default_factory=dict)
    subject: str | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule with its effect on the verdict.

    `sentence` is a template for the numbers and the subject of a violation. A part in brackets is
    left out if one of its values is missing. `check` returns None if the rule is not violated, or
    its facts are unknown.
    """

    name: str
    effect: Effect
    sentence: str
    remedy: str
    check: "Callable[[Facts], RuleEvidence | None]"


def violations(rules: Iterable[Rule], facts: "Facts") -> list[tuple[Rule, Violation]]:
    """Return the rules that the facts violate, each with its violation."""
    return [
        (rule, Violation(rule=rule.name, numbers=evidence.numbers, subject=evidence.subject))
        for rule in rules
        if (evidence := rule.check(facts)) is not None
    ]
