"""The table of a comparison: a row for each case, grouped by what may be compared, the baseline first."""

from operator import attrgetter

from edgemeter.agent.base import figures
from edgemeter.agent.base.documents import JOINT
from edgemeter.agent.contract.figures import Figure, in_view, with_part
from edgemeter.collector.charts.chart import ViewTable
from edgemeter.collector.compare.comparison import MARKS, Comparison, ComparisonRow, comparable
from edgemeter.collector.compare.judgement import within_of
from edgemeter.collector.compare.spread import Spread, median_of
from edgemeter.collector.show.compare_table import OF_THE_KIND
from edgemeter.collector.show.comparison_charts import anchor, facts
from edgemeter.collector.show.series_style import GLYPHS, SeriesStyles, board_of
from edgemeter.collector.show.wording import accuracy_name, case_names, level_text, runtime_name
from edgemeter.collector.web.markup import Markup, element, join, part
from edgemeter.collector.web.view import Links, ViewColumn, grid, link, plain_table, with_small


def table_of(comparison: Comparison, styles: SeriesStyles, links: Links) -> tuple[Markup, ViewTable]:
    """Return the cases as markup, grouped by what may be compared, and in plain form."""
    called = dict(zip((id(row) for row in comparison.rows), case_names([row.case for row in comparison.rows]), strict=True))
    columns = _columns(comparison, styles, links, called)
    parts = []
    for rows in comparable(comparison.rows):
        model = rows[0].case.key.model
        task = rows[0].case.newest
        group = f" {task.model.task}, {task.dataset.name} ({figures.count(task.dataset.images, 'image')}), {task.scenario}"
        heading = element("h3", None, link(links.to("model", model=model), model), element("small", None, group))
        markup, _ = grid(model, columns, rows, lambda row: {"id": anchor(comparison, row), "class": _classes(row), **facts(row)})
        parts.append(element("div", {"data-model": model}, heading, markup))
    return join(parts), plain_table("comparison", columns, comparison.rows)


def _columns(comparison: Comparison, styles: SeriesStyles, links: Links, called: dict[int, str]) -> list[ViewColumn[ComparisonRow]]:
    return [
        ViewColumn("device", "Device", lambda row: row.case.key.device, lambda row: _device(row, styles, links), is_text=True),
        ViewColumn("case", "Case", lambda row: called[id(row)], lambda row: _name(row, called[id(row)], links), is_text=True),
        *(ViewColumn(name, name, attrgetter(f"case.key.{name}"), is_shown=False) for name in _OF_KEY),
        ViewColumn("board", "Board", board_of, is_shown=False),
        *(column for entry in in_view("cases") for column in _figure(entry, comparison)),
        ViewColumn("runs", "Runs", lambda row: len(row.case.runs)),
        ViewColumn("level_since", "", lambda row: row.case.segment.words if row.case.segment else None, is_shown=False),
        ViewColumn("earlier_runs", "", lambda row: row.case.segment.earlier if row.case.segment else 0, is_shown=False),
        ViewColumn("provenance", "Provenance", lambda row: row.case.key.provenance, is_shown=False),
        ViewColumn("verdict", "Verdict", lambda row: row.case.verdict, _verdict, is_text=True),
        ViewColumn("baseline", "", lambda row: row.reference.key.device, is_shown=False),
        ViewColumn("baseline_choice", "", lambda row: row.choice, is_shown=False),
        ViewColumn("marks", "", lambda row: JOINT.join(row.marks), is_shown=False),
        ViewColumn("not_ranked_reason", "", lambda row: row.not_ranked, is_shown=False),
    ]


# Fields of the case that the plain table has.
_OF_KEY = (
    "fleet", "role", "model", "served_model", "precision", "runtime", "runtime_version", "backend", "threads", "batch", "power_mode",
    "settings", "scenario", "dataset_sha256",
)  # fmt: skip


def _figure(entry: Figure, comparison: Comparison) -> list[ViewColumn[ComparisonRow]]:
    if entry.group == "accuracy":
        heading = accuracy_name([row.case for row in comparison.rows])
        return [
            ViewColumn("accuracy", heading, lambda row: median_of(row.case.accuracy_value), _accuracy),
            ViewColumn("accuracy_difference", "", lambda row: row.ratios.values.get("accuracy"), is_shown=False),
        ]
    if entry.name == "energy_gross_mj":
        return _gross_energy(entry)
    return [*_spread(entry), *(_to_baseline() if entry.name == "latency_p50_ms" else [])]


def _spread(entry: Figure) -> list[ViewColumn[ComparisonRow]]:
    def figure(row: ComparisonRow) -> Spread | None:
        return row.case.spreads.get(entry.name)

    return [
        ViewColumn(entry.column, entry.heading, lambda row: median_of(figure(row)), lambda row: _spread_cell(figure(row))),
        ViewColumn(with_part(entry.column, "_min"), "", lambda row: spread.low if (spread := figure(row)) else None, is_shown=False),
        ViewColumn(with_part(entry.column, "_max"), "", lambda row: spread.high if (spread := figure(row)) else None, is_shown=False),
    ]


def _to_baseline() -> list[ViewColumn[ComparisonRow]]:
    return [
        ViewColumn(
            "latency_p50_ratio",
            "to baseline",
            lambda row: row.ratios.p50,
            _ratio,
            "p50 against the baseline's p50, what that means, and its 95% interval over days or runs",
        ),
        ViewColumn("latency_p50_ratio_low", "", lambda row: _bound(row, 0), is_shown=False),
        ViewColumn("latency_p50_ratio_high", "", lambda row: _bound(row, 1), is_shown=False),
        ViewColumn("latency_judgement", "", lambda row: judged.words if (judged := row.judgements["latency"]) else None, is_shown=False),
    ]


def _gross_energy(entry: Figure) -> list[ViewColumn[ComparisonRow]]:
    explanation = "energy per inference, idle included, with its uncertainty (95%)"
    return [
        ViewColumn(entry.column, entry.heading, lambda row: median_of(row.case.gross_mj), _gross, explanation),
        ViewColumn(with_part(entry.column, "_u"), "", lambda row: row.case.gross_u_mj, is_shown=False),
        ViewColumn("energy_scope", "", lambda row: row.case.energy.scope if row.case.energy else None, is_shown=False),
        ViewColumn("energy_provenance", "", lambda row: row.case.energy.provenance if row.case.energy else None, is_shown=False),
        ViewColumn("energy_gross_ratio", "", lambda row: row.ratios.values.get("energy"), is_shown=False),
    ]


def _device(row: ComparisonRow, styles: SeriesStyles, links: Links) -> Markup:
    name = link(links.to("device", fleet=row.case.key.fleet, device=row.case.key.device), row.case.key.device)
    # The mark of the series, as large as a letter.
    style = styles.of(row)
    mark = element("span", {"class": f"key {style.colour}", "aria-hidden": "true"}, GLYPHS[style.shape])
    return join([mark, name, element("small", None, "baseline" if row.is_reference else board_of(row))])


def _name(row: ComparisonRow, name: str, links: Links) -> Markup:
    case = row.case.key
    reference = links.to("trend", model=case.model, device=case.device, fleet=case.fleet) or links.to("trend", model=case.model)
    return with_small(with_small(link(reference, name), runtime_name(row.case)), level_text(row.case))


def _ratio(row: ComparisonRow) -> Markup:
    if row.not_ranked:
        return _none(row.not_ranked, "not ranked")
    if row.is_reference:
        return element("em", None, "baseline")
    if row.ratios.p50 is None:
        return join([figures.typeset(figures.ABSENT)])
    bounds = row.ratios.intervals.get("latency")
    within = within_of((row.case.p50_ms, row.reference.p50_ms))
    between = f"95%: {figures.typeset(figures.span(*bounds))}{f', within {within}' if within else ''}" if bounds else "no interval"
    # Precision and runtime of the baseline where they are not those of the case.
    key, own_key = row.reference.key, row.case.key
    kind = f"{key.precision} {key.runtime}" if (key.precision, key.runtime) != (own_key.precision, own_key.runtime) else ""
    small = element("small", {"title": row.choice}, between)
    against = element("small", {"title": row.choice}, f"against {kind}") if kind else ""
    other_marks = [
        element("small", {"title": difference.words}, difference.mark)
        for difference in row.relation.marked
        if difference.mark not in OF_THE_KIND
    ]
    return join([figures.typeset(figures.times(row.ratios.p50)), _state(row, "latency"), small, against, *other_marks])


def _state(row: ComparisonRow, figure: str) -> Markup | str:
    """Return what a figure was judged to be against the baseline's; empty where there is nothing to judge."""
    judged = row.judgements[figure]
    return element("small", {"title": judged.words}, judged.verdict) if judged else ""


def _bound(row: ComparisonRow, which: int) -> float | None:
    return bounds[which] if (bounds := row.ratios.intervals.get("latency")) else None


def _none(reason: str, word: str = "none") -> Markup:
    return element("span", {"class": "none", "title": reason}, word)


def _verdict(row: ComparisonRow) -> Markup:
    case, provenance = row.case, row.case.key.provenance
    verdict = element("span", {"class": "doubt"}, f"? {case.suspect} of {len(case.runs)} suspect") if case.suspect else "valid"
    return with_small(verdict, "" if provenance == "measured" else provenance)


def _spread_cell(spread: Spread | None) -> Markup:
    if spread is None:
        return join([figures.typeset(figures.ABSENT)])
    median, span = figures.significant(spread.median), figures.span(spread.low, spread.high)
    return with_small(median, "" if span == median else span)


def _accuracy(row: ComparisonRow) -> Markup:
    if row.case.accuracy is None:
        return _none(row.case.accuracy_reason or "not scored")
    difference = None if row.is_reference else row.ratios.values.get("accuracy")
    difference_text = "" if difference is None else figures.typeset(figures.difference(difference))
    return join([with_small(figures.accuracy(row.case.accuracy.value.median), difference_text), _state(row, "accuracy")])


def _gross(row: ComparisonRow) -> Markup:
    energy = row.case.energy
    if energy is None:
        return _none(row.case.energy_reason or "not measured")
    gross = figures.with_uncertainty(row.case.gross_mj.median, row.case.gross_u_mj) if row.case.gross_mj else figures.ABSENT
    ratio = None if row.is_reference else row.ratios.values.get("energy")
    ratio_text = "" if ratio is None else f", {figures.typeset(figures.times(ratio))}"
    return join([with_small(gross, f"{energy.ranks_as}{ratio_text}"), _state(row, "energy")])


def _classes(row: ComparisonRow) -> str | None:
    return " ".join([*(["reference"] if row.is_reference else []), *(["suspect"] if row.case.suspect else [])]) or None


def verdicts(comparison: Comparison) -> Markup:
    """Return the suspect cases with their reasons, and what the marks of the rows mean."""
    lines = [
        join(
            [
                link(
                    f"#{anchor(comparison, row)}",
                    f"{row.case.key.model}, {row.case.key.precision} on {row.case.key.runtime}, {row.case.key.device}",
                ),
                element("ul", None, *(element("li", None, reason) for reason in row.case.verdict_reasons)),
            ]
        )
        for row in comparison.rows
        if row.case.suspect
    ]
    for mark in MARKS:
        count = sum(mark in row.marks for row in comparison.rows)
        if count and mark not in {"reference", "suspect"}:
            lines.append(join([element("b", None, mark), f" ({figures.count(count, 'case')}): {MARKS[mark]}"]))
    return part("reasons", lines) if lines else element("p", None, "No run shown violates a measurement rule.")
