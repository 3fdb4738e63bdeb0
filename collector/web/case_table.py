"""The table of a comparison: a row for each case, grouped by what may be compared, the reference first; equal boards are one row."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgemeter.agent.base import figures
from edgemeter.agent.contract.figures import ENERGY, LATENCY, TTFT, Figure
from edgemeter.agent.verdict.words import not_counted_text
from edgemeter.collector.charts.chart import ViewTable
from edgemeter.collector.compare.boards import worst_board
from edgemeter.collector.compare.columns import COLUMNS
from edgemeter.collector.compare.comparison import MARKS, ComparedCase, Comparison, comparable
from edgemeter.collector.compare.differences import speed_of
from edgemeter.collector.show.compare_table import figure_heading, figure_in_column, shown_figures
from edgemeter.collector.show.comparison_charts import anchor, facts
from edgemeter.collector.show.figure_words import assumed_in_changes, change_parts, confidence_text, figure_text, outcome_text
from edgemeter.collector.show.series_style import GLYPHS, SeriesStyles, assign_styles
from edgemeter.collector.show.wording import case_names, level_text, listed, load_words, runtime_name
from edgemeter.collector.web.choice_filter import ChoiceFilter
from edgemeter.collector.web.context import ViewContext
from edgemeter.collector.web.markup import NOTHING, Attributes, Markup, element, join, part
from edgemeter.collector.web.view import (
    Links,
    PlainRows,
    ViewColumn,
    ViewRequest,
    folded_section,
    folding_grid,
    link,
    note,
    page_of,
    pages_text,
    with_small,
)

# Cases of one page of the table, and boards of a type that are listed, the slowest first: people read no more.
CASES_SHOWN, BOARDS_LISTED = 100, 100
# So many boards that deviate are named in a row.
NAMED = 3
# Figures of a higher rank are in the exports only.
HIGHEST_RANK = 3
# So many disturbed cases are listed with their reasons.
DISTURBED_LISTED = 50
# With more devices than this a colour denotes a board type.
DEVICES_IN_COLOUR = 7
# Marks that the names of the two cases show.
IN_THE_NAMES = ("other precision", "other class of precision", "other runtime")
# What is read of the records of a case is left to `edgemeter compare --format csv`: a page of thousands of cases reads none.
OF_RECORDS = (
    "dataset", "dataset_images", "model_file", "model_format", "model_size_bytes", "prompt_tokens", "output_tokens", "last_started_at_ns",
    "run_ids", "reference_run_ids",
)  # fmt: skip
HOW_TO_READ = (
    "A value is the mean over runs with its 95% interval; an accuracy has the interval over its images. Over runs of few days an interval"
    " includes an assumed scatter between sessions (1.5%, on virtual machines 6%). Below is the change against the reference, with the"
    " interval that decides whether it is better or worse. The changes of a row are decided together with 95% confidence; the tooltip of a"
    " change has the confidence of its own interval. Equal boards of one type are one row, whose interval is over the boards; open it to"
    " see each."
)


@dataclass(frozen=True)
class CaseTable:
    """The table of a comparison: every case in `rows`, those of boards of one type as one in `folded`; `outlying` are devices that deviate.

    What is shown has pages, and by a choice its order; what is exported is every case.
    """

    rows: Comparison
    folded: Comparison
    styles: SeriesStyles
    links: Links
    outlying: Mapping[tuple[str, str], str]
    # The rows of `folded`, by identity: any other row is one of several boards.
    shown_ids: frozenset[int]
    by_limits: ChoiceFilter = ChoiceFilter()  # noqa: RUF009 - frozen

    def page(self, request: ViewRequest) -> Markup:
        """Return the page of cases that was picked, grouped by what may be compared, and the way to the others."""
        pages = _pages(self.by_limits.in_order(self.folded.rows) if self.by_limits.choice else self.folded.rows)
        number = page_of(request, len(pages), 1)
        # Cases of several models that can stand in for each other are one list.
        groups = [pages[number]] if self.by_limits.choice else comparable(pages[number])
        parts = [self._group(rows) for rows in groups if rows]
        return join([pages_text(request, number, len(pages), 1, self.links, "Page"), *parts, *_not_listed(pages[number])])

    def _group(self, rows: Sequence[ComparedCase]) -> Markup:
        models = list(dict.fromkeys(row.case.key.model for row in rows))
        task, load = rows[0].case.newest, load_words(rows[0].case.key)
        text = f" {task.model.task}, {task.dataset.name} ({figures.count(task.dataset.images, 'image')}), {task.scenario}{load}"
        name = link(self.links.to("compare", model=models[0]), models[0]) if len(models) == 1 else listed(models)
        lines = [(row, *row.boards[:BOARDS_LISTED]) for row in rows]
        has_boards = any(row.boards for row in rows)
        columns = self._columns([row for line in lines for row in line])
        markup = folding_grid(models[0], columns, lines if has_boards else [rows], self._attributes)
        attributes = {"data-model": models[0] if len(models) == 1 else None}
        return element("div", attributes, element("h3", None, name, element("small", None, text)), markup)

    def plain(self) -> ViewTable:
        """Return every case in plain form."""
        names = [name for name in COLUMNS if name not in OF_RECORDS]
        columns = [ViewColumn(name, name, COLUMNS[name]) for name in names]
        return ViewTable("comparison", tuple(names), PlainRows(columns, self.rows.rows))

    def _attributes(self, row: ComparedCase) -> Attributes:
        is_board = not row.boards and id(row) not in self.shown_ids
        classes = [
            *(["boards"] if row.boards else []),
            *(["board"] if is_board else []),
            *(["reference"] if self.styles.is_reference(row) else []),
            *(["disturbed"] if row.case.disturbed else []),
            *self.by_limits.row_class(row),
        ]
        return {"id": anchor(row), "class": " ".join(classes) or None, **facts(row)}

    def _columns(self, rows: Sequence[ComparedCase]) -> list[ViewColumn[ComparedCase]]:
        """Return the columns of a group, whose cases have names that tell them apart within it."""
        alone = [row for row in rows if not row.boards]
        called = dict(zip(map(id, alone), case_names([row.case for row in alone]), strict=True))

        def name(row: ComparedCase) -> str:
            # Boards of a type have one name: they are equal in all that tells cases of one device apart.
            return called[id(row.boards[0] if row.boards else row)]

        return [
            ViewColumn("device", "Device", lambda row: row.case.key.device, self._device, is_text=True),
            ViewColumn("case", "Case", name, lambda row: _name(row, name(row), self.links), is_text=True),
            ViewColumn("verdict", "Verdict", lambda row: row.case.verdict, _verdict, is_text=True),
            *self.by_limits.columns(),
            *(_figure(entry, rows) for entry in shown_figures([row.case for row in rows], HIGHEST_RANK)),
            ViewColumn("runs", "Runs", lambda row: len(row.case.verdicts), needs_width=True),
        ]

    def _device(self, row: ComparedCase) -> Markup:
        key = row.case.key
        # The mark of the series, as large as a letter.
        style = self.styles.of(row)
        mark = element("span", {"class": f"key {style.colour}", "aria-hidden": "true"}, GLYPHS[style.shape])
        if row.boards:
            summary = element("summary", None, mark, key.device)
            return join([element("details", None, summary), element("small", None, f"fleet {key.fleet}"), *self._deviating(row)])
        name = link(self.links.to("device", fleet=key.fleet, device=key.device), key.device)
        text = self.outlying.get(row.case.device)
        doubt = [element("small", {"class": "doubt"}, text)] if text else []
        return join([mark, name, element("small", None, "reference" if self.styles.is_reference(row) else row.board), *doubt])

    def _deviating(self, row: ComparedCase) -> list[Markup]:
        """Return the boards of a row that deviate from the others of their type."""
        boards = [link(f"#{anchor(board)}", board.case.key.device) for board in row.boards if board.case.device in self.outlying]
        remainder = f" and {len(boards) - NAMED}" if len(boards) > NAMED else ""
        return [element("small", {"class": "doubt"}, "deviates: ", *_between(boards[:NAMED]), remainder)] if boards else []


def case_table(context: ViewContext, comparison: Comparison, folded: Comparison, by_limits: ChoiceFilter = ChoiceFilter()) -> CaseTable:  # noqa: B008 - frozen
    """Return the table of a comparison, and of it with the boards of a type as one row."""
    # Where boards are one row, a colour is a board type.
    most_devices = 0 if len(folded.rows) < len(comparison.rows) else DEVICES_IN_COLOUR
    outlying = {(device.fleet, device.device): device.text for device in context.events.outlying}
    styles, shown_ids = assign_styles(comparison.rows, most_devices), frozenset(map(id, folded.rows))
    return CaseTable(comparison, folded, styles, context.links, outlying, shown_ids, by_limits)


def _between(links: Sequence[Markup]) -> list[Markup | str]:
    return [part for entry in links for part in (", ", entry)][1:]


def _pages(rows: Sequence[ComparedCase]) -> list[list[ComparedCase]]:
    """Return the rows page by page; the boards of a type are on one page."""
    pages: list[list[ComparedCase]] = [[]]
    count = 0
    for row in rows:
        if count >= CASES_SHOWN:
            pages.append([])
            count = 0
        pages[-1].append(row)
        count += max(1, len(row.boards))
    return pages


def _not_listed(rows: Sequence[ComparedCase]) -> list[Markup]:
    if all(len(row.boards) <= BOARDS_LISTED for row in rows):
        return []
    return [note(f"Of a type with more than {BOARDS_LISTED} boards the slowest are listed; CSV and JSON hold every one.")]


def _figure(entry: Figure, rows: Sequence[ComparedCase]) -> ViewColumn[ComparedCase]:
    """Return the column of a figure: its value with its interval, and how it differs from the reference's."""
    cases = [row.case for row in rows]

    def value(row: ComparedCase) -> float | None:
        figure = row.case.figures.get(entry.name)
        return figure.value if figure else None

    is_speed = entry.name in set(map(speed_of, cases))
    return ViewColumn(
        entry.name, figure_heading(entry, cases), value, lambda row: _cell(row, entry), needs_width=not (entry.is_main or is_speed)
    )


def _cell(row: ComparedCase, entry: Figure) -> Markup:
    case = row.case
    figure = figure_in_column(entry, case)
    if figure is None:
        reason = {"accuracy": case.accuracy_reason or "not scored", "energy": case.energy_reason or "not measured"}.get(entry.group)
        return _none(reason) if reason else join([figures.typeset(figures.ABSENT)])
    value, _, bounds = figure_text(entry, figure).partition(" (")
    energy = str(case.energy.ranks_as) if entry.name == ENERGY and case.energy else ""
    not_ranked = (
        _none(row.not_ranked, "not ranked") if row.not_ranked and entry.name == (TTFT if case.generates else speed_of(case)) else ""
    )
    small = [element("small", None, text) for text in (bounds.rstrip(")"), energy) if text]
    return join([value, *small, _worst(row, entry.name) if entry.name in (LATENCY, ENERGY) else "", not_ranked, *_change(row, entry)])


def _change(row: ComparedCase, entry: Figure) -> list[Markup]:
    """Return how a figure differs from the reference's, with the interval that decides the outcome."""
    decision = row.decisions.get(entry.name)
    if decision is None:
        return []
    outcome = element(
        "small", {"class": f"outcome {decision.outcome.replace(' ', '-')}", "title": outcome_text(decision)}, decision.outcome
    )
    # Equal values have no change to write.
    if decision.low == decision.high and decision.value == (1 if decision.scale == "ratio" else 0):
        return [outcome]
    amount, interval = map(figures.typeset, change_parts(entry.name, decision))
    # A narrow column breaks before the interval, not within it.
    parts = [amount, *([" ", element("span", {"class": "whole"}, f"({interval})")] if interval else [])]
    title = f"{row.choice}; the interval is of {confidence_text(decision.confidence)}"
    return [element("small", {"title": title}, *parts), outcome]


def _name(row: ComparedCase, name: str, links: Links) -> Markup:
    key, other = row.case.key, row.reference.key
    reference = links.to("trend", model=key.model, device=key.device, fleet=key.fleet) or links.to("trend", model=key.model)
    level = [element("small", {"class": "level"}, text)] if (text := level_text(row.case)) else []
    # Precision and runtime of the reference where they are not those of the case.
    is_other = (key.precision, key.runtime) != (other.precision, other.runtime)
    against = [element("small", {"title": row.choice}, f"against {other.precision} {other.runtime}")] if is_other else []
    marks = [
        element("small", {"title": difference.words}, difference.mark)
        for difference in row.relation.marked
        if difference.mark not in IN_THE_NAMES
    ]
    return join([with_small(link(reference, name), runtime_name(row.case)), *level, *against, *marks])


def _none(reason: str, word: str = "none") -> Markup:
    return element("span", {"class": "none", "title": reason}, word)


def _verdict(row: ComparedCase) -> Markup:
    case, provenance = row.case, row.case.key.provenance
    verdict = element("span", {"class": "doubt"}, f"{case.disturbed} of {len(case.verdicts)} disturbed") if case.disturbed else "ok"
    words = with_small(verdict, "" if provenance == "measured" else provenance)
    if not case.not_counted:
        return words
    return join([words, element("small", None, not_counted_text(case.not_counted, len(case.verdicts)))])


def _worst(row: ComparedCase, figure: str) -> Markup:
    """Return the board of several that is worst by a figure; nothing for a single board."""
    board = worst_board(row, figure)
    return element("small", {"class": "worst"}, f"worst: {board.case.key.device}") if board else NOTHING


def verdict_section(comparison: Comparison) -> Markup:
    """Return the disturbed cases with their reasons, and what the marks of the rows mean."""
    disturbed = [row for row in comparison.rows if row.case.disturbed]
    lines = [
        join(
            [
                link(f"#{anchor(row)}", f"{row.case.key.model}, {row.case.key.precision} on {row.case.key.runtime}, {row.case.key.device}"),
                element("ul", None, *(element("li", None, reason) for reason in row.case.violations)),
            ]
        )
        for row in disturbed[:DISTURBED_LISTED]
    ]
    if len(disturbed) > DISTURBED_LISTED:
        lines.append(join([f"{len(disturbed) - DISTURBED_LISTED} more cases are disturbed: CSV and JSON name them."]))
    counts = Counter(mark for row in comparison.rows for mark in row.marks)
    marks = [mark for mark in MARKS if counts[mark] and mark not in {"reference", "disturbed"}]
    lines += [join([element("b", None, mark), f" ({figures.count(counts[mark], 'case')}): {MARKS[mark]}"]) for mark in marks]
    lines += [join([text]) for text in assumed_in_changes(decision for row in comparison.rows for decision in row.decisions.values())]
    summary = f"{figures.count(len(disturbed), 'case')} disturbed; {figures.count(len(marks), 'mark')} explained"
    content = part("reasons", lines) if lines else element("p", None, "No run that counts violates a measurement rule.")
    return folded_section("verdicts", "Verdict and evidence", summary, content)
