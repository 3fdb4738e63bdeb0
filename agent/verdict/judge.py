"""The verdict: judges a run by all rules, and lists them as JSON and as the page docs/reference/rules.md."""

from collections.abc import Sequence

import msgspec

from edgemeter.agent.base.documents import json_document
from edgemeter.agent.contract.operating_point import OperatingPoint
from edgemeter.agent.contract.record_conditions import Condition, Environment, Verdict, rule_of
from edgemeter.agent.contract.record_figures import CoolDown, Energy
from edgemeter.agent.engine.job import MeasuredRun
from edgemeter.agent.verdict import (
    accelerator_rules,
    accuracy_rules,
    answer_rules,
    condition_rules,
    generation_rules,
    in_process_rules,
    precondition_rules,
    run_rules,
    steady_rules,
)
from edgemeter.agent.verdict.rule import Rule, RunFacts, SensorFaults, verdict_of
from edgemeter.agent.verdict.run_rules import ENERGY_RULES

RULES: tuple[Rule, ...] = (
    *run_rules.RULES,
    *accelerator_rules.RULES,
    *generation_rules.RULES,
    *answer_rules.RULES,
    *in_process_rules.RULES,
    *steady_rules.RULES,
    *accuracy_rules.RULES,
    *condition_rules.RULES,
    *ENERGY_RULES,
    *precondition_rules.RULES,
)
INTRODUCTION = """# My run is suspect: what now

The verdict names each violated rule with its evidence, `rule: evidence`. Find the rule below and do what its last column states; then
measure again. The figures of a suspect run may be right, but nothing proves it: `edgemeter compare` uses and marks it. An invalid run is
listed and enters no statistic. A note casts no doubt on the figures. The most severe violated rule decides; a rule whose facts are
unknown on a machine is not violated.
"""
HEADINGS = {"invalid": "A run is invalid", "suspect": "A run is suspect", "note": "A note"}


def judge(
    measured: MeasuredRun,
    conditions: Sequence[Condition],
    environment: Environment | None = None,
    cool_down: CoolDown | None = None,
    energies: Sequence[Energy] = (),
    power_warnings: Sequence[str] = (),
    sensor_faults: SensorFaults = SensorFaults(),  # noqa: B008 - frozen
) -> Verdict:
    """Return the verdict on a run: the worst state of all violated rules, and `rule: evidence` for each, reasons apart from notes."""
    facts = RunFacts(measured, conditions, environment, cool_down, energies, power_warnings, sensor_faults)
    return verdict_of([(rule, evidence) for rule in RULES if (evidence := rule.evidence(facts)) is not None])


def as_asked_for(judged: Verdict, point: OperatingPoint | None) -> Verdict:
    """Return the verdict on a run for which the board was set to `point`: the note on a governor that was chosen says so."""
    if point is None or point.governor is None:
        return judged
    notes = tuple(f"{note} (it was asked for)" if rule_of(note) == "governor" else note for note in judged.notes)
    return msgspec.structs.replace(judged, notes=notes)


class RuleRow(msgspec.Struct, frozen=True):
    """One rule as it is shown; the names of its fields in JSON are older."""

    name: str
    state: str = msgspec.field(name="broken_is")
    requirement: str = msgspec.field(name="asks")
    rationale: str = msgspec.field(name="why")
    remedy: str


def rule_rows(rules: Sequence[Rule]) -> list[RuleRow]:
    """Return the rules, the most severe first."""
    return [
        RuleRow(rule.name, rule.state, rule.requirement, rule.rationale, rule.remedy)
        for state in HEADINGS
        for rule in rules
        if rule.state == state
    ]


def rules_markdown(rules: Sequence[Rule]) -> str:
    """Return the page that lists the rules, each with what to do about it; a note, which casts no doubt, without its rationale."""
    text = INTRODUCTION
    for state, heading in HEADINGS.items():
        text += f"\n## {heading}\n\nrule | requirement | what to do\n--- | --- | ---\n"
        for row in (row for row in rule_rows(rules) if row.state == state):
            why = "" if state == "note" else f": {row.rationale}"
            text += f"`{row.name}` | {row.requirement}{why} | {row.remedy}\n"
    return text


def rules_json(rules: Sequence[Rule]) -> str:
    """Return `{"rules": [...]}`."""
    return json_document({"rules": rule_rows(rules)})
