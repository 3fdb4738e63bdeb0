"""The Markdown comment of a pull request on a change against its baseline.

The outcome is first, then the worst cases.
"""

from collections.abc import Sequence
from itertools import accumulate

from edgemeter.agent.base import number_text
from edgemeter.agent.contract.figures import ACCURACY, ENERGY, LATENCY
from edgemeter.collector.compare.comparison import ComparedCase, Comparison
from edgemeter.collector.compare.summary import OF_CALLS, OF_TEXT
from edgemeter.collector.runs.cases import named
from edgemeter.collector.runs.contents import LeftOut
from edgemeter.collector.runs.figure_names import JUDGED
from edgemeter.collector.show import words
from edgemeter.collector.show.compare_table import notes_on

# The first line, by which a later comment finds this one.
MARK = "<!-- edgemeter compare -->"
# GitHub refuses a comment of more than 65,536 characters; GitLab accepts a million.
LONGEST = 60_000
LEFT_OUT_SHOWN = 50
NO_CASE = (
    "No case is on both sides, for the reasons below. A first comparison has no baseline: a push "
    "to the default branch stores one "
    "(`baseline: stored`), or the commit that the change branches from is measured on the same "
    "board (`baseline: base`)."
)
_ESCAPED = str.maketrans({character: f"&#{ord(character)};" for character in "|<>&`*_[]#@~\\!"})


def to_markdown(comparison: Comparison, sides: Sequence[str]) -> str:
    """Return the comment on two sides, at most as long as may be posted.

    Omitted cases are counted.
    """
    gate = comparison.gate
    compared = comparison.compared

    def order(row: ComparedCase) -> tuple[int, int, float]:
        return (
            -sum(finding.outcome == "fail" for finding in row.limited),
            words.OUTCOMES.index(words.outcome_of(row)),
            -row.decisions[LATENCY].value if LATENCY in row.decisions else 0.0,
        )

    ordered = sorted(compared, key=order)
    # The memory of answers has a column; so has energy or accuracy that one side lacks.
    on_a_side = {
        name
        for row in compared
        if not row.case.generates
        for side in (row.case, row.reference)
        for name in side.figures
    }
    having = (on_a_side & {ENERGY, ACCURACY}).union(*(row.decisions for row in compared))
    names = [name for name in dict.fromkeys((*OF_CALLS, *OF_TEXT)) if name in having]
    sentence = _escaped(words.headline(comparison))
    outcome = f"**{_escaped(words.gate_headline(gate))}**" if gate else sentence
    head = [
        MARK,
        f"### Edgemeter: {outcome}",
        "",
        f"Baseline `{_code(sides[0])}`, new `{_code(sides[1])}`.",
        "",
    ]
    head += [sentence, ""] if gate else []
    lines = list(words.choice_lines(comparison.choice)) if comparison.choice else []
    # The heading repeats the first line of the gate.
    lines += list(words.gate_lines(comparison, gate))[1:] if gate else []
    lines += notes_on(comparison)
    tail = [
        *(f"- {_escaped(line.strip())}" for line in lines),
        *([""] if lines else []),
        *_left_out(comparison.left_out, is_open=not compared),
        *([_how_much(compared)] if compared else []),
    ]
    headings = ["case", *(JUDGED[name].title for name in names), "outcome"]
    table = [f"| {' | '.join(headings)} |", "|" + "---|" * len(headings)]
    room = LONGEST - len("\n".join([*head, *table, *tail])) - 100
    cases = [_line(row, names, is_named=words.has_letters(comparison)) for row in ordered]
    fitting = sum(length < room for length in accumulate(len(line) + 1 for line in cases))
    cut = (
        [f"\n{len(cases) - fitting} more cases do not fit; list all with `--format json`."]
        if fitting < len(cases)
        else []
    )
    body = [*table, *cases[:fitting], *cut] if compared else [NO_CASE]
    return "\n".join([*head, *body, "", *tail]) + "\n"


def _how_much(compared: Sequence[ComparedCase]) -> str:
    before, after = (
        sum(case.size for case in cases)
        for cases in zip(*((row.reference, row.case) for row in compared), strict=True)
    )
    margin = f"differences below {100 * compared[0].matters_ratio:g}% do not matter"
    together = words.decided_together(
        change for row in compared for change in row.decisions.values()
    )
    return (
        f"<sub>{'; '.join(filter(None, (f'{before} runs against {after}', together, margin)))}"
        ".</sub>"
    )


def _line(row: ComparedCase, names: Sequence[str], *, is_named: bool) -> str:
    """Return the line of a case in the table.

    With a letter, it `is_named` as the case that it is compared with.
    """
    name = f"{named(row.case.key)} against {named(row.reference.key)}" if is_named else row.name
    failing = [
        f"**fail: {_escaped(finding.limit.text)}**"
        for finding in row.limited
        if finding.outcome == "fail"
    ]
    cells = [
        _name(row, name),
        *(_cell(figure, row) for figure in names),
        "<br>".join([words.outcome_of(row), *failing]),
    ]
    return f"| {' | '.join(cells)} |"


def _name(row: ComparedCase, name: str) -> str:
    notes = [
        *row.changed,
        *(
            f"{side} {words.level_text(summary)}"
            for side, summary in (("baseline", row.reference), ("new", row.case))
            if summary.segment
        ),
    ]
    notes += [f"{figure}: {reason}" for figure, reason in words.not_compared(row).items()]
    doubt = " (disturbed runs)" if row.case.disturbed or row.reference.disturbed else ""
    return f"{_escaped(name)}{doubt}" + (
        f"<br><sub>{_escaped(', '.join(notes))}</sub>" if notes else ""
    )


def _cell(name: str, row: ComparedCase) -> str:
    """Return a figure of both sides, and the decision on it."""
    entry, before, after = JUDGED[name], row.reference.figures.get(name), row.case.figures.get(name)
    if before is None or after is None:
        return (
            "no figure" if before is None and after is None else "new" if before is None else "gone"
        )
    values = (
        f"{words.short_figure_text(entry, before)} → "
        f"{words.short_figure_text(entry, after, entry.unit)}"
    )
    return (
        f"{values}<br>{words.decision_text(name, row)}"
        if name in row.decisions
        else f"{values}, not comparable"
    )


def _left_out(left_out: Sequence[LeftOut], *, is_open: bool) -> list[str]:
    if not left_out:
        return []
    lines = [
        f"- {_escaped(f'{entry.name}: {entry.reason}' if entry.run else entry.reason)}"
        for entry in left_out[:LEFT_OUT_SHOWN]
    ]
    return [
        f"<details{' open' * is_open}><summary>Left out ({len(left_out)})</summary>",
        "",
        *lines,
        *(
            [f"- and {len(left_out) - LEFT_OUT_SHOWN} more: `--format json` lists all"]
            if len(left_out) > LEFT_OUT_SHOWN
            else []
        ),
        "",
        "</details>",
        "",
    ]


def _code(text: str) -> str:
    return number_text.printable(text).replace("`", "'")


def _escaped(text: str) -> str:
    # An entity is text everywhere; a backslash is not, in a table of GitLab.
    return number_text.printable(text).translate(_ESCAPED)
