"""The table of a comparison: a row for each case, grouped by what may be compared, the baseline first; equal boards are one row."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter

from edgemeter.agent.base import figures
from edgemeter.agent.base.decision import ACCURACY, ENERGY, LATENCY
from edgemeter.agent.base.documents import JOINT
from edgemeter.agent.contract.figures import Figure, FigureView, in_view
from edgemeter.collector.charts.chart import ViewTable
from edgemeter.collector.compare.boards import fold_boards, spread_of, worst_board
from edgemeter.collector.compare.comparison import MARKS, Comparison, ComparisonRow, comparable
from edgemeter.collector.compare.judgement import within_of
from edgemeter.collector.compare.spread import Spread, median_of
from edgemeter.collector.runs.figure_names import with_part
from edgemeter.collector.show.compare_table import OF_THE_KIND
from edgemeter.collector.show.comparison_charts import anchor, facts
from edgemeter.collector.show.series_style import GLYPHS, SeriesStyles, assign_styles
from edgemeter.collector.show.wording import accuracy_name, case_names, level_text, load_words, runtime_name
from edgemeter.collector.web.context import ViewContext
from edgemeter.collector.web.markup import NOTHING, Attributes, Markup, element, join, part
from edgemeter.collector.web.view import (
    Links,
    ViewColumn,
    ViewRequest,
    folded_section,
    folding_grid,
    link,
    note,
    page_of,
    pages_text,
    plain_table,
    with_small,
)

# Cases of one page of the table, and boards of a type that are listed, the slowest first: people read no more.
CASES_SHOWN, BOARDS_LISTED = 100, 100
# So many boards that deviate are named in a row.
NAMED = 3
# So many disturbed cases are listed with their reasons.
DISTURBED_LISTED = 50
# With more devices than this a colour denotes a board type.
DEVICES_IN_COLOUR = 7
HOW_TO_READ = (
    "Medians over runs; below them the range over runs. Equal boards of one type are one row: the median of their figures, below it the"
    " range over boards; open it for each. A ratio above 1 takes longer, or more, than the baseline."
)


@dataclass(frozen=True)
class CaseTable:
    """The table of a comparison: every case in `rows`, those of boards of one type as one in `folded`; `outlying` are devices that deviate.

    What is shown has pages; what is exported is every case.
    """

    rows: Comparison
    folded: Comparison
    styles: SeriesStyles
    links: Links
    outlying: Mapping[tuple[str, str], str]
    # The rows of `folded`, by identity: any other row is one of several boards.
    shown_ids: frozenset[int]

    def page(self, request: ViewRequest) -> Markup:
        """Return the page of cases that was picked, grouped by what may be compared, and the way to the others."""
        pages = _pages(self.folded.rows)
        number = page_of(request, len(pages), 1)
        parts: list[Markup] = []
        for rows in comparable(pages[number]):
            model = rows[0].case.key.model
            task, load = rows[0].case.newest, load_words(rows[0].case.key)
            group = f" {task.model.task}, {task.dataset.name} ({figures.count(task.dataset.images, 'image')}), {task.scenario}{load}"
            heading = element("h3", None, link(self.links.to("model", model=model), model), element("small", None, group))
            lines = [(row, *row.boards[:BOARDS_LISTED]) for row in rows]
            has_boards = any(row.boards for row in rows)
            markup = folding_grid(model, self._columns, lines if has_boards else [rows], self._attributes)
            parts.append(element("div", {"data-model": model}, heading, markup))
        pages_of_cases = pages_text(request, number, len(pages), 1, self.links, "Page")
        return join([pages_of_cases, *parts, *_not_listed(pages[number])])

    def plain(self) -> ViewTable:
        """Return every case in plain form."""
        return plain_table("comparison", self._columns, self.rows.rows)

    def _attributes(self, row: ComparisonRow) -> Attributes:
        is_board = not row.boards and id(row) not in self.shown_ids
        classes = [*(["boards"] if row.boards else []), *(["board"] if is_board else []), *_classes(row)]
        return {"id": anchor(row), "class": " ".join(classes) or None, **facts(row)}

    @cached_property
    def _columns(self) -> list[ViewColumn[ComparisonRow]]:
        cases = case_names([row.case for row in self.rows.rows])
        called = dict(zip(map(id, self.rows.rows), cases, strict=True))

        def name(row: ComparisonRow) -> str:
            # Boards of a type have one name: they are equal in all that tells cases of one device apart.
            return called[id(row.boards[0] if row.boards else row)]

        return [
            ViewColumn("device", "Device", lambda row: row.case.key.device, self._device, is_text=True),
            ViewColumn("case", "Case", name, lambda row: _name(row, name(row), self.links), is_text=True),
            *(ViewColumn(field, field, attrgetter(f"case.key.{field}"), is_shown=False) for field in _OF_KEY),
            ViewColumn("board", "Board", lambda row: row.board, is_shown=False),
            *(column for entry in in_view(FigureView.TABLE) for column in _figure(entry, self.rows)),
            ViewColumn("runs", "Runs", lambda row: sum(len(board.case.runs) for board in row.boards or (row,))),
            ViewColumn("level_since", "", lambda row: row.case.segment.words if row.case.segment else None, is_shown=False),
            ViewColumn("earlier_runs", "", lambda row: row.case.segment.earlier if row.case.segment else 0, is_shown=False),
            ViewColumn("provenance", "Provenance", lambda row: row.case.key.provenance, is_shown=False),
            ViewColumn("verdict", "Verdict", lambda row: row.case.verdict, _verdict, is_text=True),
            ViewColumn("baseline", "", lambda row: row.reference.key.device, is_shown=False),
            ViewColumn("baseline_choice", "", lambda row: row.choice, is_shown=False),
            ViewColumn("marks", "", lambda row: JOINT.join(row.marks), is_shown=False),
            ViewColumn("not_ranked_reason", "", lambda row: row.not_ranked, is_shown=False),
        ]

    def _device(self, row: ComparisonRow) -> Markup:
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
        return join([mark, name, element("small", None, "baseline" if row.is_reference else row.board), *doubt])

    def _deviating(self, row: ComparisonRow) -> list[Markup]:
        """Return the boards of a row that deviate from the others of their type."""
        boards = [link(f"#{anchor(board)}", board.case.key.device) for board in row.boards if board.case.device in self.outlying]
        remainder = f" and {len(boards) - NAMED}" if len(boards) > NAMED else ""
        return [element("small", {"class": "doubt"}, "deviates: ", *_between(boards[:NAMED]), remainder)] if boards else []


def case_table(context: ViewContext, comparison: Comparison) -> CaseTable:
    """Return the table of a comparison."""
    folded = fold_boards(comparison)
    # Where boards are one row, a colour is a board type.
    most_devices = 0 if len(folded.rows) < len(comparison.rows) else DEVICES_IN_COLOUR
    outlying = {(device.fleet, device.device): device.text for device in context.events.outlying}
    styles, shown_ids = assign_styles(comparison.rows, most_devices), frozenset(map(id, folded.rows))
    return CaseTable(comparison, folded, styles, context.links, outlying, shown_ids)


def _between(links: Sequence[Markup]) -> list[Markup | str]:
    return [part for entry in links for part in (", ", entry)][1:]


def _pages(rows: Sequence[ComparisonRow]) -> list[list[ComparisonRow]]:
    """Return the rows page by page; the boards of a type are on one page."""
    pages: list[list[ComparisonRow]] = [[]]
    count = 0
    for row in rows:
        if count >= CASES_SHOWN:
            pages.append([])
            count = 0
        pages[-1].append(row)
        count += max(1, len(row.boards))
    return pages


def _not_listed(rows: Sequence[ComparisonRow]) -> list[Markup]:
    if all(len(row.boards) <= BOARDS_LISTED for row in rows):
        return []
    return [note(f"Of a type with more than {BOARDS_LISTED} boards the slowest are listed; CSV and JSON hold every one.")]


# Fields of the case that the plain table has.
_OF_KEY = (
    "fleet", "role", "model", "served_model", "precision", "runtime", "runtime_version", "backend", "threads", "batch", "power_mode",
    "settings", "scenario", "dataset_sha256",
)  # fmt: skip


def _figure(entry: Figure, comparison: Comparison) -> list[ViewColumn[ComparisonRow]]:
    if entry.group == "accuracy":
        heading = accuracy_name([row.case for row in comparison.rows])
        return [
            ViewColumn(entry.name, heading, lambda row: median_of(row.case.accuracy_value), _accuracy),
            ViewColumn(entry.change_name, "", lambda row: row.ratios.values.get(ACCURACY), is_shown=False),
        ]
    if entry.name == ENERGY:
        return _gross_energy(entry)
    return [*_spread(entry), *(_to_baseline(entry) if entry.name == LATENCY else [])]


def _spread(entry: Figure) -> list[ViewColumn[ComparisonRow]]:
    def figure(row: ComparisonRow) -> Spread | None:
        return row.case.spreads.get(entry.name)

    return [
        ViewColumn(
            entry.name, entry.heading, lambda row: median_of(figure(row)), lambda row: _spread_cell(row, entry),
            is_optional=True,
        ),
        ViewColumn(with_part(entry.name, "_min"), "", lambda row: spread.low if (spread := figure(row)) else None, is_shown=False),
        ViewColumn(with_part(entry.name, "_max"), "", lambda row: spread.high if (spread := figure(row)) else None, is_shown=False),
    ]  # fmt: skip


def _to_baseline(entry: Figure) -> list[ViewColumn[ComparisonRow]]:
    return [
        ViewColumn(
            entry.change_name,
            "to baseline",
            lambda row: row.ratios.p50,
            _ratio,
            "p50 against the baseline's p50, what that means, and its 95% interval over days or runs",
        ),
        ViewColumn(f"{entry.change_name}_low", "", lambda row: _bound(row, 0), is_shown=False),
        ViewColumn(f"{entry.change_name}_high", "", lambda row: _bound(row, 1), is_shown=False),
        ViewColumn(f"{entry.name}_words", "", lambda row: judged.words if (judged := row.judgements[LATENCY]) else None, is_shown=False),
    ]


def _gross_energy(entry: Figure) -> list[ViewColumn[ComparisonRow]]:
    explanation = "energy per inference, idle included, with its uncertainty (95%)"
    return [
        ViewColumn(entry.name, entry.heading, lambda row: median_of(row.case.gross_mj), _gross, explanation),
        ViewColumn(with_part(entry.name, "_u"), "", lambda row: row.case.gross_u_mj, is_shown=False),
        ViewColumn("energy_scope", "", lambda row: row.case.energy.scope if row.case.energy else None, is_shown=False),
        ViewColumn("energy_provenance", "", lambda row: row.case.energy.provenance if row.case.energy else None, is_shown=False),
        ViewColumn(entry.change_name, "", lambda row: row.ratios.values.get(ENERGY), is_shown=False),
    ]


def _name(row: ComparisonRow, name: str, links: Links) -> Markup:
    case = row.case.key
    reference = links.to("trend", model=case.model, device=case.device, fleet=case.fleet) or links.to("trend", model=case.model)
    level = [element("small", {"class": "wrapped level"}, text)] if (text := level_text(row.case)) else []
    return join([with_small(link(reference, name), runtime_name(row.case)), *level])


def _ratio(row: ComparisonRow) -> Markup:
    if row.not_ranked:
        return _none(row.not_ranked, "not ranked")
    if row.is_reference:
        return element("em", None, "baseline")
    if row.ratios.p50 is None:
        return join([figures.typeset(figures.ABSENT)])
    bounds = row.ratios.intervals.get(LATENCY)
    within = within_of((row.case.p50_ms, row.reference.p50_ms))
    between = f"95%: {figures.typeset(figures.span(*bounds))}{f', within {within}' if within else ''}" if bounds else "no interval"
    # Precision and runtime of the baseline where they are not those of the case.
    key, own_key = row.reference.key, row.case.key
    kind = f"{key.precision} {key.runtime}" if (key.precision, key.runtime) != (own_key.precision, own_key.runtime) else ""
    small = element("small", {"title": row.choice, "class": "wrapped"}, between)
    against = element("small", {"title": row.choice}, f"against {kind}") if kind else ""
    other_marks = [
        element("small", {"title": difference.words}, difference.mark)
        for difference in row.relation.marked
        if difference.mark not in OF_THE_KIND
    ]
    return join([figures.typeset(figures.times(row.ratios.p50)), _state(row, LATENCY), small, against, *other_marks])


def _state(row: ComparisonRow, figure: str) -> Markup | str:
    """Return what a figure was judged to be against the baseline's; empty where there is nothing to judge."""
    judged = row.judgements[figure]
    return element("small", {"title": judged.words}, judged.verdict) if judged else ""


def _bound(row: ComparisonRow, which: int) -> float | None:
    return bounds[which] if (bounds := row.ratios.intervals.get(LATENCY)) else None


def _none(reason: str, word: str = "none") -> Markup:
    return element("span", {"class": "none", "title": reason}, word)


def _verdict(row: ComparisonRow) -> Markup:
    case, provenance = row.case, row.case.key.provenance
    members = f"{len(row.boards)} boards" if row.boards else len(case.runs)
    verdict = element("span", {"class": "doubt"}, f"? {case.disturbed} of {members} disturbed") if case.disturbed else "ok"
    return with_small(verdict, "" if provenance == "measured" else provenance)


def _spread_cell(row: ComparisonRow, entry: Figure) -> Markup:
    if (spread := row.case.spreads.get(entry.name)) is None:
        return join([figures.typeset(figures.ABSENT)])
    median, span = entry.shown(spread.median), entry.range_text(spread.low, spread.high)
    worst = _worst(row, entry.name) if entry.name == LATENCY else ""
    return join([with_small(median, "" if span == median else span), worst])


def _worst(row: ComparisonRow, figure: str) -> Markup:
    """Return the board of several that is worst by a figure; nothing for a single board."""
    board = worst_board(row, figure)
    spread = spread_of(board.case, figure) if board else None
    if board is None or spread is None:
        return NOTHING
    return element("small", {"class": "worst"}, f"worst: {board.case.key.device}")


def _accuracy(row: ComparisonRow) -> Markup:
    if row.case.accuracy is None:
        return _none(row.case.accuracy_reason or "not scored")
    difference = None if row.is_reference else row.ratios.values.get(ACCURACY)
    difference_text = "" if difference is None else figures.typeset(figures.difference(difference))
    return join([with_small(figures.accuracy(row.case.accuracy.value.median), difference_text), _state(row, ACCURACY)])


def _gross(row: ComparisonRow) -> Markup:
    energy = row.case.energy
    if energy is None:
        return _none(row.case.energy_reason or "not measured")
    gross = figures.with_uncertainty(row.case.gross_mj.median, row.case.gross_u_mj) if row.case.gross_mj else figures.ABSENT
    ratio = None if row.is_reference else row.ratios.values.get(ENERGY)
    ratio_text = "" if ratio is None else f", {figures.typeset(figures.times(ratio))}"
    between = figures.span(row.case.gross_mj.low, row.case.gross_mj.high) if row.boards and row.case.gross_mj else ""
    small = [element("small", None, text) for text in (between, f"{energy.ranks_as}{ratio_text}") if text]
    return join([gross, *small, _worst(row, ENERGY), _state(row, ENERGY)])


def _classes(row: ComparisonRow) -> list[str]:
    return [*(["reference"] if row.is_reference else []), *(["disturbed"] if row.case.disturbed else [])]


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
    summary = f"{figures.count(len(disturbed), 'case')} disturbed; {figures.count(len(marks), 'mark')} explained"
    content = part("reasons", lines) if lines else element("p", None, "No run shown violates a measurement rule.")
    return folded_section("verdicts", "Verdict and evidence", summary, content)
