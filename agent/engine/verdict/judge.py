"""The verdict: named rules, each looks at one thing and says with evidence why a run should not, or not quite, be believed.

`edgemeter rules` prints the table; docs/rules.md is made from it.
"""

from collections.abc import Sequence
from typing import Literal

from edgemeter.agent.engine.job import Measured
from edgemeter.agent.engine.verdict import accuracy_rules, condition_rules, energy_rules, precondition_rules, run_rules
from edgemeter.agent.engine.verdict.rule import Facts, Rule
from edgemeter.agent.records import Condition, CoolDown, Energy, Environment, ObserverEffect, Verdict

RULES: tuple[Rule, ...] = (*run_rules.RULES, *accuracy_rules.RULES, *condition_rules.RULES, *energy_rules.RULES, *precondition_rules.RULES)


def judge(
    measured: Measured,
    conditions: Sequence[Condition],
    environment: Environment | None = None,
    observer: ObserverEffect | None = None,
    cool_down: CoolDown | None = None,
    energies: Sequence[Energy] = (),
    power_warnings: Sequence[str] = (),
) -> Verdict:
    """Return the verdict on a run: the worst state of all broken rules, and `rule: evidence` for each, reasons apart from notes."""
    facts = Facts(measured, conditions, environment, observer, cool_down, energies, power_warnings)
    broken = [(rule, evidence) for rule in RULES if (evidence := rule.evidence(facts)) is not None]
    states = {rule.state for rule, _ in broken}
    state: Literal["valid", "suspect", "invalid"] = "invalid" if "invalid" in states else "suspect" if "suspect" in states else "valid"
    said = [(rule.state, f"{rule.name}: {evidence}") for rule, evidence in broken]
    return Verdict(
        state=state,
        reasons=tuple(text for effect, text in said if effect != "note"),
        notes=tuple(text for effect, text in said if effect == "note"),
    )
