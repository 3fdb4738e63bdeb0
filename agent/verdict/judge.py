"""The verdict: judges a run by all rules, and lists them as JSON and as the page docs/reference/rules.md."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from edgemeter.agent.base.documents import json_document
from edgemeter.agent.contract.record_conditions import Condition, Environment, ObserverEffect, Verdict
from edgemeter.agent.contract.record_figures import CoolDown, Energy
from edgemeter.agent.engine.job import MeasuredRun
from edgemeter.agent.verdict import accuracy_rules, condition_rules, generation_rules, precondition_rules, run_rules
from edgemeter.agent.verdict.rule import Rule, RunFacts, SensorFaults
from edgemeter.agent.verdict.run_rules import ENERGY_RULES

RULES: tuple[Rule, ...] = (
    *run_rules.RULES,
    *generation_rules.RULES,
    *accuracy_rules.RULES,
    *condition_rules.RULES,
    *ENERGY_RULES,
    *precondition_rules.RULES,
)
INTRODUCTION = """# The rules of the verdict

Every run gets a verdict on the device that measured it: `valid`, `suspect` or `invalid`. The verdict is part of the record; it states each
reason as `rule: evidence`. The most severe violated rule decides; a `note` casts no doubt on the figures. A rule whose facts are unknown on
a machine is not violated. `edgemeter compare` excludes invalid runs, lists them, and marks suspect ones.

| rule | violated, a run is | requirement | rationale |
|---|---|---|---|
"""


def judge(
    measured: MeasuredRun,
    conditions: Sequence[Condition],
    environment: Environment | None = None,
    observer: ObserverEffect | None = None,
    cool_down: CoolDown | None = None,
    energies: Sequence[Energy] = (),
    power_warnings: Sequence[str] = (),
    sensor_faults: SensorFaults = SensorFaults(),  # noqa: B008 - frozen
) -> Verdict:
    """Return the verdict on a run: the worst state of all violated rules, and `rule: evidence` for each, reasons apart from notes."""
    facts = RunFacts(measured, conditions, environment, observer, cool_down, energies, power_warnings, sensor_faults)
    violated = [(rule, evidence) for rule in RULES if (evidence := rule.evidence(facts)) is not None]
    states = {rule.state for rule, _ in violated}
    state: Literal["valid", "suspect", "invalid"] = "invalid" if "invalid" in states else "suspect" if "suspect" in states else "valid"
    return Verdict(
        state=state,
        reasons=tuple(f"{rule.name}: {evidence}" for rule, evidence in violated if rule.state != "note"),
        notes=tuple(f"{rule.name}: {evidence}" for rule, evidence in violated if rule.state == "note"),
    )


class RuleRow(msgspec.Struct, frozen=True):
    """One rule as it is shown; the names of its fields in JSON are older."""

    name: str
    state: str = msgspec.field(name="broken_is")
    requirement: str = msgspec.field(name="asks")
    rationale: str = msgspec.field(name="why")


def rule_rows(rules: Sequence[Rule]) -> list[RuleRow]:
    """Return the rules, the most severe first."""
    order = ("invalid", "suspect", "note")
    return [RuleRow(rule.name, rule.state, rule.requirement, rule.rationale) for state in order for rule in rules if rule.state == state]


def rules_markdown(rules: Sequence[Rule]) -> str:
    """Return the page that lists the rules."""
    return INTRODUCTION + "".join(f"| `{row.name}` | {row.state} | {row.requirement} | {row.rationale} |\n" for row in rule_rows(rules))


def rules_json(rules: Sequence[Rule]) -> str:
    """Return `{"rules": [...]}`."""
    return json_document({"rules": rule_rows(rules)})
