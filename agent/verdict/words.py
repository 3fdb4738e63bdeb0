"""The words for verdicts, from the rules, for every command and page."""

import re
from collections.abc import Mapping, Sequence

import msgspec

from edgemeter.agent.base.statistics import FEWEST
from edgemeter.agent.contract.record_conditions import Verdict, Violation
from edgemeter.agent.verdict.judge import RULES
from edgemeter.agent.verdict.rule import Effect, Rule

BY_NAME: Mapping[str, Rule] = {rule.name: rule for rule in RULES}
EFFECTS: tuple[Effect, ...] = ("invalid", "disturbed", "note")
_PLACE = re.compile(r"\{.*?\}")
# A part of a sentence that is left out if one of its values is missing.
_OPTIONAL = re.compile(r"\[(.*?)\]")


class RuleRow(msgspec.Struct, frozen=True):
    """One rule as it is listed."""

    name: str
    effect: Effect
    sentence: str
    remedy: str


class NumberRange(tuple[float, ...]):
    """The numbers of several runs, formatted as `40%`, or as `40% to 80%` if they differ."""

    __slots__ = ()

    def __format__(self, how: str) -> str:
        return " to ".join(dict.fromkeys(format(end, how) for end in (min(self), max(self))))


def sentence_of(*violations: Violation) -> str:
    """Return the sentence of violations of one rule, without a full stop.

    For an unknown rule it is the rule's name and numbers.
    """
    names = dict.fromkeys(name for violation in violations for name in violation.numbers)
    values: dict[str, NumberRange | str] = {
        name: NumberRange(
            violation.numbers[name] for violation in violations if name in violation.numbers
        )
        for name in names
    }
    if subjects := dict.fromkeys(
        violation.subject for violation in violations if violation.subject is not None
    ):
        values["subject"] = " and ".join(subjects)
    rule = BY_NAME.get(violations[0].rule)
    # The parts at odd indices are optional.
    parts = [_filled(part, values) for part in _OPTIONAL.split(rule.sentence)] if rule else [None]
    if any(part is None for part in parts[::2]):
        return " ".join(
            [violations[0].rule, *(f"{name} {value}" for name, value in values.items())]
        )
    return "".join(part or "" for part in parts)


def _filled(template: str, values: Mapping[str, NumberRange | str]) -> str | None:
    try:
        return template.format_map(values)
    except (KeyError, ValueError):
        return None


def remedy_of(violation: Violation) -> str:
    rule = BY_NAME.get(violation.rule)
    return rule.remedy if rule else ""


def text_of(*violations: Violation, remark: str = "") -> str:
    """Return the sentence of violations of one rule, with its remedy."""
    return f"{sentence_of(*violations)}{remark}. {remedy_of(violations[0])}".rstrip()


def assumed_scatter(session_sd: float) -> str:
    """Return the line that says what figures over runs are, and what their intervals assume."""
    return (
        "Values are geometric means over runs with 95% intervals; those of time and energy "
        f"include an assumed scatter of {100 * session_sd:.2g}% between sessions."
    )


def not_counted_text(not_counted: int, counted: int) -> str:
    """Return how many of the runs do not count.

    An example is `2 of 7 runs do not count, because they were disturbed`.
    """
    why = (
        "does not count, because it was disturbed"
        if not_counted == 1
        else "do not count, because they were disturbed"
    )
    return f"{not_counted:,} of {not_counted + counted:,} runs {why}"


def verdict_lines(
    verdicts: Sequence[Verdict], not_counted: int = 0, *, with_notes: bool = True
) -> list[str]:
    """Return a line for each violated rule, the most severe first, and lines with counts.

    The counts are the numbers of runs that are disturbed or do not count. A line is such as
    `disturbed: other processes used 40% to 80% of the cores while timing (2 of 3 runs). Close them
    and run again.`
    """
    by_rule: dict[tuple[Effect, str], list[Violation]] = {}
    for verdict in verdicts:
        for violation in verdict.violations:
            rule = BY_NAME.get(violation.rule)
            by_rule.setdefault((rule.effect if rule else "disturbed", violation.rule), []).append(
                violation
            )
        for note in verdict.notes if with_notes else ():
            by_rule.setdefault(("note", note.rule), []).append(note)
    ranked = sorted(by_rule.items(), key=lambda entry: EFFECTS.index(entry[0][0]))
    remarks = {
        key: f" ({len(violations)} of {len(verdicts)} runs)"
        if len(violations) < len(verdicts)
        else ""
        for key, violations in ranked
    }
    lines = [
        f"{effect}: {text_of(*violations, remark=remarks[effect, name])}"
        for (effect, name), violations in ranked
    ]
    disturbed = sum(verdict.state == "disturbed" for verdict in verdicts)
    if disturbed and len(verdicts) > 1 and with_notes:
        runs_count, its = ("run counts", "its") if disturbed == 1 else ("runs count", "their")
        lines.append(
            f"{disturbed:,} disturbed {runs_count}, because fewer than {FEWEST} runs of {its} "
            "case are ok."
        )
    return [*lines, f"{not_counted_text(not_counted, len(verdicts))}."] if not_counted else lines


def none_ok_text(verdicts: Sequence[Verdict]) -> str | None:
    """Return that none of the runs is ok, with the most severe reason.

    It is None if one is ok, or if there are no runs.
    """
    if not verdicts or any(verdict.state == "ok" for verdict in verdicts):
        return None
    runs = f"{len(verdicts):,} runs, none of them ok" if len(verdicts) > 1 else "1 run, not ok"
    return "; ".join([runs, *verdict_lines(verdicts, with_notes=False)[:1]])


def rule_rows() -> list[RuleRow]:
    """Return the rules, the most severe first.

    Their sentences have N for a number of the run, and `...` for its subject.
    """
    rows = [
        RuleRow(
            rule.name,
            rule.effect,
            _PLACE.sub(_placeholder, _OPTIONAL.sub("", rule.sentence)),
            rule.remedy,
        )
        for rule in RULES
    ]
    return sorted(rows, key=lambda row: EFFECTS.index(row.effect))


def _placeholder(field: re.Match[str]) -> str:
    return "..." if field[0] == "{subject}" else "N%" if field[0].endswith("%}") else "N"
