"""The words for verdicts, made of the rules' rows: for every command, the page, and docs/reference/rules.md."""

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from edgemeter.agent.contract.record_conditions import Verdict, Violation
from edgemeter.agent.verdict.judge import RULES
from edgemeter.agent.verdict.rule import Effect, Rule

BY_NAME: Mapping[str, Rule] = {rule.name: rule for rule in RULES}
INTRODUCTION = """# My run is disturbed: what now

The verdict on a run is `ok`, `disturbed` or `invalid`. Something outside the model changed the figures of a disturbed run: where three runs
of its case are ok, it does not count; elsewhere it counts, and the case is disturbed. An invalid run is listed and enters no statistic. A
note casts no doubt on the figures. Find the rule below, do what its last column says, and measure again. A rule whose facts are unknown on
a machine is not violated.
"""
EFFECTS: tuple[Effect, ...] = ("invalid", "disturbed", "note")
HEADINGS: Mapping[Effect, str] = {"invalid": "A run is invalid", "disturbed": "A run is disturbed", "note": "A note"}
_PLACE = re.compile(r"\{.*?\}")
# A part of a sentence that is left out where one of its values is missing.
_OPTIONAL = re.compile(r"\[(.*?)\]")


class RuleRow(msgspec.Struct, frozen=True):
    """One rule as it is listed."""

    name: str
    effect: Effect
    sentence: str
    remedy: str


def sentence_of(violation: Violation) -> str:
    """Return what is wrong, without a full stop; of a rule that this version does not know its name and numbers."""
    values: dict[str, float | str] = {**violation.numbers, **({} if violation.subject is None else {"subject": violation.subject})}
    rule = BY_NAME.get(violation.rule)
    # At odd places stand the optional parts.
    parts = [_filled(part, values) for part in _OPTIONAL.split(rule.sentence)] if rule else [None]
    if any(part is None for part in parts[::2]):
        return " ".join([violation.rule, *(f"{name} {value}" for name, value in values.items())])
    return "".join(part or "" for part in parts)


def _filled(template: str, values: Mapping[str, float | str]) -> str | None:
    try:
        return template.format_map(values)
    except (KeyError, ValueError):
        return None


def remedy_of(violation: Violation) -> str:
    """Return what to do about it; nothing where this version does not know the rule."""
    rule = BY_NAME.get(violation.rule)
    return rule.remedy if rule else ""


def text_of(violation: Violation, remark: str = "") -> str:
    """Return what is wrong and what to do, in two sentences."""
    return f"{sentence_of(violation)}{remark}. {remedy_of(violation)}".rstrip()


def assumed_scatter(session_sd: float) -> str:
    """Return the line that says what the intervals of figures assume."""
    return f"± includes an assumed scatter of {100 * session_sd:.2g}% between sessions."


def not_counted_text(not_counted: int, counted: int) -> str:
    """Return how many disturbed runs do not count beside those that do: `2 of 7 runs were disturbed and do not count`."""
    verbs = "was disturbed and does not count" if not_counted == 1 else "were disturbed and do not count"
    return f"{not_counted:,} of {not_counted + counted:,} runs {verbs}"


def verdict_lines(verdicts: Sequence[Verdict], not_counted: int = 0, *, with_notes: bool = True) -> list[str]:
    """Return a line for each rule that the runs that count violate, the most severe first, and how many further runs do not count.

    Such as `disturbed: other processes used 40% of the cores while timing (2 of 3 runs). Close them and run again.`
    """
    by_rule: dict[tuple[Effect, str], list[Violation]] = {}
    for verdict in verdicts:
        for violation in verdict.violations:
            rule = BY_NAME.get(violation.rule)
            by_rule.setdefault((rule.effect if rule else "disturbed", violation.rule), []).append(violation)
        for note in verdict.notes if with_notes else ():
            by_rule.setdefault(("note", note.rule), []).append(note)
    ranked = sorted(by_rule.items(), key=lambda entry: EFFECTS.index(entry[0][0]))
    remarks = {
        key: f" ({len(violations)} of {len(verdicts)} runs)" if len(violations) < len(verdicts) else "" for key, violations in ranked
    }
    lines = [f"{effect}: {text_of(violations[0], remarks[effect, name])}" for (effect, name), violations in ranked]
    return [*lines, f"{not_counted_text(not_counted, len(verdicts))}."] if not_counted else lines


def none_ok_text(verdicts: Sequence[Verdict]) -> str | None:
    """Return that none of the runs is ok, and the most severe reason; None where one is, or nothing ran."""
    if not verdicts or any(verdict.state == "ok" for verdict in verdicts):
        return None
    runs = f"none of the {len(verdicts)} runs is ok" if len(verdicts) > 1 else "the run is not ok"
    return "; ".join([runs, *verdict_lines(verdicts, with_notes=False)[:1]])


def rule_rows(rules: Iterable[Rule] = RULES) -> list[RuleRow]:
    """Return the rules, the most severe first; in their sentences N stands for a number of the run, and `...` for what it is about."""
    rows = [RuleRow(rule.name, rule.effect, _PLACE.sub(_placeholder, _OPTIONAL.sub("", rule.sentence)), rule.remedy) for rule in rules]
    return sorted(rows, key=lambda row: EFFECTS.index(row.effect))


def _placeholder(field: re.Match[str]) -> str:
    return "..." if field[0] == "{subject}" else "N%" if field[0].endswith("%}") else "N"


def rules_markdown() -> str:
    """Return the page that lists the rules, each with what to do about it."""
    page = INTRODUCTION
    for effect, heading in HEADINGS.items():
        page += f"\n## {heading}\n\nrule | sentence | what to do\n--- | --- | ---\n"
        page += "".join(f"`{row.name}` | {row.sentence} | {row.remedy}\n" for row in rule_rows() if row.effect == effect)
    return page
