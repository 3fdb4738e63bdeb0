"""A comparison on a terminal.

It is the sentence, a table of the cases, the choice, the gate, and notes.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from msgspec import structs

from edgemeter.agent.base import number_text
from edgemeter.agent.base.console import Console
from edgemeter.agent.base.metrics import metric_name
from edgemeter.agent.base.terminal import (
    TableColumn,
    fitted_table,
    print_text,
    table_width,
    writable,
)
from edgemeter.agent.contract.decode_energy import decode_lines
from edgemeter.agent.contract.figures import (
    ACCURACY,
    ENERGY,
    LATENCY,
    MEMORY,
    TOKEN_ENERGY,
    TTFT,
    Figure,
    FigureView,
    in_view,
)
from edgemeter.agent.verdict.words import assumed_scatter, verdict_lines
from edgemeter.collector.compare.between import SAME_CASE
from edgemeter.collector.compare.case_figure import CaseFigure
from edgemeter.collector.compare.comparison import (
    MARKS,
    RECOMMENDED,
    ComparedCase,
    Comparison,
    answers_of,
    comparable,
)
from edgemeter.collector.compare.figure_differences import (
    Contrast,
    decided,
    speed_of,
    why_not_compared,
)
from edgemeter.collector.compare.summary import OF_CALLS, OF_TEXT, CaseSummary
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.show import words

# Marks that the columns of a row show, or the lines below.
_SAID = {
    "other precision", "other class of precision", "other runtime", "reference", "current level",
    "disturbed", "disturbed reference",
    "below accuracy gate",
}  # fmt: skip
# Printed after a change that is neither better nor worse.
SIGNS = {"no difference": " =", "inconclusive": " ?", words.WITHIN: " <"}
BASELINE = "the baseline"
SENTENCES_SHOWN = 12
REASONS_SHOWN = 8
# Limits of the table for each model, data set and scenario, if there are many: fewer rows each, but
# some.
ROWS_SHOWN, ROWS_OF_ALL, FEWEST_ROWS = 60, 120, 12


def show_answer(comparison: Comparison, console: Console) -> None:
    """Print the sentence and the table of a comparison.

    Of many cases those that differ most from the reference are shown.
    """
    letters = words.has_letters(comparison)
    print_text(console, words.headline(comparison), "bold")
    short = shortened(comparison)
    has_one_reference = len({id(row.reference) for row in short.rows}) == 1
    for rows in [list(short.rows)] if has_one_reference else comparable(short.rows):
        print_text(console, "")
        if not letters:
            print_text(console, _shared(rows), "bold")
        lines = _with_baselines(rows)
        columns = list(
            _columns(lines, [row.name if letters else _label(row) for row in lines], console)
        )
        console.print(fitted_table(columns, table_width(console)))
    print_text(console, "")


def show_comparison(comparison: Comparison, console: Console) -> None:
    show_answer(comparison, console)
    short = shortened(comparison)
    if words.has_letters(comparison):
        print_text(console, _shared(short.rows), "dim")
    if hidden := len(comparison.rows) - len(short.rows):
        print_text(
            console,
            f"{hidden} cases that differ less from the reference are not shown: "
            "see --format json or csv",
            "dim",
        )
    for line in _lines(short):
        print_text(console, line)
    if comparison.left_out:
        print_text(console, f"Left out ({len(comparison.left_out)} runs or parts of runs):", "bold")
    reasons = Counter(entry.reason for entry in comparison.left_out).most_common()
    for reason, number in reasons[:REASONS_SHOWN]:
        print_text(console, f"{number:>5}  {reason}")
    if len(reasons) > REASONS_SHOWN:
        print_text(
            console,
            f"       and {number_text.count(len(reasons) - REASONS_SHOWN, 'more reason')}: list "
            "every run with --format json",
        )
    for answer in answers_of(comparison):
        print_text(console, f"{answer.title}:", "bold")
        console.print(
            fitted_table(
                [TableColumn(*cells, "left") for cells in answer.columns.items()], console.width
            )
        )


def shortened(comparison: Comparison) -> Comparison:
    """Return the comparison with a readable number of rows.

    They are the reference's in each group, and those that differ most from it.
    """
    groups = comparable(comparison.rows)
    limit = min(ROWS_SHOWN, max(FEWEST_ROWS, ROWS_OF_ALL // max(1, len(groups))))
    rows: list[ComparedCase] = []
    for group in groups:
        telling = set(map(id, sorted(group, key=_apart, reverse=True)[:limit]))
        rows += [row for row in group if id(row) in telling]
    # Cases A, B, C of several models stay in order.
    return (
        comparison if len(rows) == len(comparison.rows) else replace(comparison, rows=tuple(rows))
    )


def _apart(row: ComparedCase) -> tuple[bool, float]:
    """Order rows by the distance of the latency from the reference's, in either direction.

    The reference's own come first.
    """
    p50_ms, other = row.case.p50_ms, row.reference.p50_ms
    is_ranked = p50_ms and other and min(p50_ms.value, other.value) > 0 and not row.not_ranked
    return row.is_reference, abs(
        math.log(p50_ms.value / other.value)
    ) if is_ranked and p50_ms and other else 0.0


def _with_baselines(rows: Sequence[ComparedCase]) -> list[ComparedCase]:
    """Return the rows, each below its baseline if that has no row of its own."""
    with_row = {id(row.case) for row in rows}
    lines: list[ComparedCase] = []
    for row in rows:
        if id(row.reference) not in with_row:
            with_row.add(id(row.reference))
            lines.append(ComparedCase(row.reference, row.reference, row.name, BASELINE))
        lines.append(row)
    return lines


def _label(row: ComparedCase) -> str:
    if row.is_reference:
        return {BASELINE: "baseline", RECOMMENDED: "recommended"}.get(row.choice, "reference")
    return "new" if row.choice == SAME_CASE else ""


def _columns(
    rows: Sequence[ComparedCase], labels: Sequence[str], console: Console
) -> Iterator[TableColumn]:
    cases = [row.case for row in rows]

    def text(heading: str, cells: Sequence[str]) -> TableColumn:
        return TableColumn(
            heading, tuple(writable(cell, console) for cell in cells), "left", narrowed="shortens"
        )

    devices, models = [case.key.device for case in cases], [case.key.model for case in cases]
    yield text("", labels)
    if words.only(devices) is None:
        yield text("device", devices)
    if words.only(models) is None or "A" in labels:
        yield text("model", models)
    if words.only(settings := _settings(cases)) is None:
        yield text("", settings)
    speeds = {speed_of(case) for case in cases}
    for entry in shown_figures(cases):
        heading, *cells = _with_changes(
            figure_cells(entry, cases, console),
            ["", *(_change(entry.name, row) for row in rows)],
        )
        yield TableColumn(
            heading, cells, "left", rank=0 if entry.name in speeds else 1 + entry.rank
        )
    yield TableColumn("runs", [str(len(case.verdicts)) for case in cases], rank=3)
    if any(case.disturbed for case in cases):
        yield TableColumn("verdict", [case.verdict for case in cases], "left")


def figure_cells(entry: Figure, cases: Sequence[CaseSummary], console: Console) -> list[str]:
    """Return the heading of a figure's column on a terminal, then its value for each case."""
    # Calls of a language model have no latency, and their energy is that of a token.
    figures = [
        None
        if case.generates and entry.name in (LATENCY, ENERGY)
        else figure_in_column(entry, case)
        for case in cases
    ]
    return [
        entry.unit if entry.name == ENERGY else figure_heading(entry, cases),
        *(writable(words.short_figure_text(entry, figure), console) for figure in figures),
    ]


def _with_changes(values: Sequence[str], changes: Sequence[str]) -> list[str]:
    """Return each value with its change in one cell, both aligned.

    So a narrow terminal always shows both.
    """
    value_width, change_width = max(map(len, values)), max(map(len, changes))
    return [
        f"{value:>{value_width}}  {change:>{change_width}}".rstrip()
        for value, change in zip(values, changes, strict=True)
    ]


def _settings(cases: Sequence[CaseSummary]) -> list[str]:
    """Return each case's precision, and other settings that distinguish it.

    It is distinguished among those of its model and device.
    """
    precisions, runtimes = (
        [case.key.precision for case in cases],
        [case.key.runtime_text for case in cases],
    )
    telling = [runtimes] if words.only(runtimes) is None else []
    telling += words.telling_parts(
        cases, [[f"{case.key.model} {case.key.device}" for case in cases], precisions, *telling]
    )
    return [
        " ".join(filter(None, ("" if precision == "unknown" else precision, *parts)))
        for precision, *parts in zip(precisions, *telling, strict=True)
    ]


def shown_figures(cases: Sequence[CaseSummary], highest_rank: int = 1) -> list[Figure]:
    """Return the figures that have a column, the memory last.

    Calls of a language model have no latency, and the energy is a token's.
    """
    always = {MEMORY, *map(speed_of, cases)}
    entries = [
        entry
        for entry in in_view(FigureView.TABLE)
        if entry.rank <= highest_rank or entry.name in always
    ]
    if all(case.generates for case in cases):
        entries = [
            entry for entry in entries if entry.is_of_text or entry.name in (ACCURACY, MEMORY)
        ]
    return sorted(entries, key=lambda entry: entry.name == MEMORY)


def figure_heading(entry: Figure, cases: Sequence[CaseSummary]) -> str:
    """Return the heading of a figure.

    For token rates it has the number of tokens if all cases have the same: `pp 512 t/s`.
    """
    if entry.name == ACCURACY:
        return (
            words.only(metric_name(case.accuracy.metric) for case in cases if case.accuracy)
            or "Accuracy"
        )
    if entry.name == TOKEN_ENERGY:
        return "J/token"
    field = {"pp": "prompt_tokens", "tg": "output_tokens"}.get(entry.title)
    tokens = words.only(str(getattr(case.key, field)) for case in cases) if field else None
    return f"{entry.title} {tokens} {entry.unit}" if tokens and tokens != "None" else entry.heading


def figure_in_column(entry: Figure, case: CaseSummary) -> CaseFigure | None:
    """Return a figure of a case in the unit of its column: J for a token's energy."""
    figure = case.figures.get(entry.name)
    if entry.name != TOKEN_ENERGY or figure is None:
        return figure
    return structs.replace(
        figure,
        **{
            name: value / 1000
            for name in ("value", "low", "high")
            if (value := getattr(figure, name)) is not None
        },
    )


def _change(name: str, row: ComparedCase) -> str:
    """Return the change of a figure, with a sign if it is not better or worse.

    It is in parentheses if it is not decided.
    """
    change = row.decisions.get(name)
    if (
        change is None
        and name == MEMORY
        and not row.is_reference
        and not why_not_compared(name, row.case, row.reference)
    ):
        (change,) = decided(
            {name: Contrast(name, row.case, row.reference)}, row.matters_ratio
        ).values()
        if abs(change.value - 1) < change.margin:
            return ""
    if change is not None:
        # The heading names the figure.
        text = words.change_text(name, change).removesuffix(" points").removesuffix(" as long")
        return (
            text + SIGNS.get(words.outcome_words(name, row), "")
            if name in row.decisions
            else f"({text})"
        )
    return (
        "not ranked"
        if row.not_ranked
        and not row.is_reference
        and name == (TTFT if row.case.generates else speed_of(row.case))
        else ""
    )


def _shared(rows: Sequence[ComparedCase]) -> str:
    """Return in words what the cases of a group share; other settings have a column."""
    cases = [row.case for row in rows]
    images = [case.subject.dataset.images * (not case.generates) for case in cases]
    shared = (
        words.only(case.key.model for case in cases),
        words.only(_settings(cases)),
        words.only(f"on {case.key.device}" for case in cases),
        words.only(
            [
                f"data {case.subject.dataset.name}{f' ({number:,} images)' if number else ''}"
                for case, number in zip(cases, images, strict=True)
            ]
        ),
        words.only(f"{case.key.scenario}{words.load_words(case.key)}" for case in cases),
        words.only(number_text.count(case.key.threads, "thread") for case in cases),
        words.only(f"energy at {case.energy.ranks_as}" for case in cases if case.energy),
    )
    return ", ".join(text for text in shared if text)


def _lines(comparison: Comparison) -> Iterator[str]:
    """Yield the lines below the tables.

    They are each case in a sentence, the choice, the gate, and notes on the cases.
    """
    compared = comparison.compared
    if 1 < len(compared) <= SENTENCES_SHOWN:
        yield from (f"{row.name}: {words.decisions_text(row)}" for row in compared)
    if comparison.choice:
        yield from words.choice_lines(comparison.choice)
    if comparison.gate:
        yield from words.gate_lines(comparison, comparison.gate)
    yield from _legend(comparison, compared)
    reasons = Counter(
        (name, reason)
        for row in compared
        if row.decisions
        for name, reason in words.not_compared(row).items()
    )
    for (name, reason), number in reasons.most_common(REASONS_SHOWN):
        yield f"not compared: {name}{f' ({number} cases)' if number > 1 else ''}: {reason}"
    if words.has_letters(comparison):
        # In other comparisons this is the reason why runs are left out.
        yield from (
            f"not ranked: {row.not_ranked}" for row in compared if row.not_ranked and row.decisions
        )
    for text, devices in grouped(
        (words.level_text(case), case.key.device) for case in _cases(comparison) if case.segment
    ).items():
        yield (
            f"{words.listed(list(dict.fromkeys(devices)))}: only runs {text} "
            "(--all-days counts them)"
        )
    yield from notes_on(comparison)


def _cases(comparison: Comparison) -> list[CaseSummary]:
    return list(
        {id(case): case for row in comparison.rows for case in (row.case, row.reference)}.values()
    )


def notes_on(comparison: Comparison) -> Iterator[str]:
    """Yield notes on the cases, and the verdicts on their runs."""
    compared = comparison.compared
    cases = _cases(comparison)
    for mark, names in grouped(
        (mark, row.name) for row in compared for mark in row.marks if mark not in _SAID
    ).items():
        yield (
            f"{mark}{f' ({words.listed(names)})' if len(names) < len(compared) else ''}: "
            f"{MARKS[mark]}"
        )
    decided = [
        figure.evidence
        for case in cases
        for name in (*OF_CALLS, *OF_TEXT)
        if (figure := case.figures.get(name))
    ]
    if assumed := [evidence.assumed.sd for evidence in decided if evidence.assumed]:
        yield assumed_scatter(max(assumed))
    yield from words.assumed_in_changes(
        decision for row in compared for decision in row.decisions.values()
    )
    yield from decode_lines([case.newest for case in cases if case.generates])
    yield from verdict_lines(
        [verdict for case in cases for verdict in case.verdicts],
        sum(case.not_counted for case in cases),
    )


def _legend(comparison: Comparison, rows: Sequence[ComparedCase]) -> Iterator[str]:
    """Yield the legend of choices, signs and intervals.

    It says how to choose among cases, the meaning of the signs after changes, and the confidence of
    the intervals.
    """
    is_chosen = comparison.choice or comparison.gate or not words.has_letters(comparison)
    if not is_chosen and any(words.outcome_of(row) == words.IN_PART for row in rows):
        yield "some figures are better and others worse: choose with --require or --cheapest"
    changes = [(name, row, decision) for row in rows for name, decision in row.decisions.items()]
    outcomes = {words.outcome_words(name, row) for name, row, _ in changes}
    margins = dict.fromkeys(
        words.margin_text(change) for *_, change in changes if change.outcome == "no difference"
    )
    legend = {
        outcome: f"{sign.strip()}: {outcome}"
        for outcome, sign in SIGNS.items()
        if outcome in outcomes
    }
    if "no difference" in legend:
        legend["no difference"] += f" above {' and '.join(margins)}"
    if legend:
        yield "; ".join(legend.values())
    if any(change.evidence.unit == "pair" for *_, change in changes):
        yield (
            "changes come from pairs of neighbouring runs; intervals in the table come "
            "from one case alone"
        )
    if together := words.decided_together(change for *_, change in changes):
        yield together
