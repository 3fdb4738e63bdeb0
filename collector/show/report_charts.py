"""The charts of the report, each for cases that may be compared, with its key and with what it cannot show."""

from collections.abc import Callable, Sequence

from edgemeter.agent.base import figures
from edgemeter.collector.compare.comparison import Comparison, ComparisonRow, comparable
from edgemeter.collector.compare.spread import Spread
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.show.lanes import BarPart, Lane, bar_lanes, distribution_lanes, latency_distribution
from edgemeter.collector.show.markup import Attributes, Markup, element, join, part
from edgemeter.collector.show.report_table import anchor, summary_key
from edgemeter.collector.show.scatter import ALL_LABELLED, ScatterPoint, scatter
from edgemeter.collector.show.series_style import REFERENCE, SeriesStyle, SeriesStyles
from edgemeter.collector.show.wording import case_names, metric_name, runtime_name, short_names

# Dots of one lane; of many lanes each gets fewer, so that a page of many cases stays small.
DOTS, DOTS_IN_ALL = 320, 9000
DRAWN = (
    "Latency of every query: the box is the middle half, with the median; whiskers: 5 % to 95 %; strokes below: the median of each run;"
    " dots: at most {dots} queries of a case, the fastest and the slowest among them."
)


def legend(comparison: Comparison, styles: SeriesStyles) -> Markup:
    """Return the meaning of colours, shapes and fillings."""
    keys = [element("li", None, summary_key(styles.named(name)), name) for name in styles.names]
    if any(row.is_reference for row in comparison.rows):
        keys.append(element("li", None, summary_key(REFERENCE), "reference"))
    if any(_is_hollow(row) for row in comparison.rows):
        keys.append(element("li", None, summary_key(SeriesStyle("plain hollow", "circle")), "hollow: integer precision"))
    return element("ul", {"class": "legend"}, *keys)


def latency_charts(comparison: Comparison, styles: SeriesStyles) -> Markup:
    """Return latency against accuracy, a chart for each task, set of data, scenario and metric; then how latencies are distributed."""
    charts, notes = _latency_against_accuracy(comparison, styles)
    spread_out, without = _distributions(comparison, styles)
    return _gallery([*charts, *spread_out], [*notes, *without])


def latency_front(comparison: Comparison, styles: SeriesStyles) -> Markup:
    """Return latency against accuracy, a chart for each task, set of data, scenario and metric."""
    return _gallery(*_latency_against_accuracy(comparison, styles))


def latency_distributions(comparison: Comparison, styles: SeriesStyles) -> Markup:
    """Return how latencies are distributed, from the raw samples."""
    return _gallery(*_distributions(comparison, styles))


def _latency_against_accuracy(comparison: Comparison, styles: SeriesStyles) -> tuple[list[Markup], list[Markup]]:
    drawn = [row for row in comparison.rows if row.case.p50_ms and row.case.accuracy]
    charts = [
        _scatter(comparison, rows, styles, lambda case: case.p50_ms, "Latency p50, ms", _latency_title(rows))
        for rows in _facets(drawn, lambda case: case.key.provenance)
    ]
    notes = _missing(comparison, drawn, "accuracy", lambda case: case.accuracy_reason)
    return charts, notes


def energy_charts(comparison: Comparison, styles: SeriesStyles) -> Markup:
    """Return energy against accuracy, a chart for each class of energies: different scopes, or replayed ones, share no axis."""
    having = [row for row in comparison.rows if row.case.energy]
    facets = _facets([row for row in having if row.case.accuracy], _energy_class)
    charts = [
        _scatter(
            comparison,
            rows,
            styles,
            lambda case: case.gross_mj,
            "Energy per inference, gross, mJ",
            f"{_facet_title(rows)}, {_energy_class(rows[0].case)}",
        )
        for rows in facets
        if not all(row.is_reference for row in rows)
    ]
    notes = _missing(comparison, having, "energy", lambda case: case.energy_reason)
    if having and not charts:
        text = "Energies are in the table; no device has both an energy and an accuracy to draw."
        notes.append(element("p", {"class": "note"}, text))
    classes = sorted({row.case.energy.ranks_as for row in having if row.case.energy})
    if len(classes) > 1:
        text = f"Energies are of different scopes or provenance ({'; '.join(map(str, classes))}): they cannot be compared with each other."
        notes.append(element("p", {"class": "note"}, text))
    return _gallery(charts, notes)


def cold_start_charts(comparison: Comparison, styles: SeriesStyles) -> Markup:
    """Return cold start, step by step up to the first output, and memory, a chart for each group."""
    charts = []
    for rows in comparable([row for row in comparison.rows if row.case.cold_start]):
        steps = [_cold_steps(row.case) for row in rows]
        lanes = _lanes(comparison, rows, styles, lambda case: _total(_cold_steps(case)), "ms")
        title = f"{rows[0].case.key.model}: cold start"
        charts.append(part("figure", title, bar_lanes(lanes, steps, title, "Time to the first output, ms"), _shades(steps)))
    for rows in comparable([row for row in comparison.rows if row.case.memory]):
        levels = [_memory_steps(row.case) for row in rows]
        lanes = _lanes(comparison, rows, styles, lambda case: case.peak_mb, "MB")
        title = f"{rows[0].case.key.model}: memory"
        charts.append(part("figure", title, bar_lanes(lanes, levels, title, "Resident memory, MB"), _shades(levels)))
    return _gallery(charts, [])


def _distributions(comparison: Comparison, styles: SeriesStyles) -> tuple[list[Markup], list[Markup]]:
    """Return the latencies of every query, from the raw samples, a chart for each group that may be compared; and who has none."""
    dots = min(DOTS, max(40, DOTS_IN_ALL // max(1, len(comparison.rows))))
    charts: list[Markup] = []
    without: list[ComparisonRow] = []
    for rows in comparable(comparison.rows):
        found = [(row, latency_distribution(row.case.runs, dots)) for row in rows]
        present = [(row, one) for row, one in found if one is not None]
        without += [row for row, one in found if one is None]
        if present:
            lanes = _lanes(comparison, [row for row, _ in present], styles, lambda case: case.p50_ms, "ms")
            title = f"{rows[0].case.key.model}: latency of every query"
            svg = distribution_lanes(lanes, [one for _, one in present], title, "Latency of an inference, ms")
            charts.append(part("figure", title, svg, f"{sum(one.count for _, one in present):,} queries"))
    note = f"{figures.count(len(without), 'case')} came without raw samples, so their latency distribution is not shown."
    texts = [*([DRAWN.format(dots=dots)] if charts else []), *([note] if without else [])]
    return charts, [element("p", {"class": "note"}, text) for text in texts]


def facts(row: ComparisonRow) -> Attributes:
    """Return what a script may narrow a chart or a table to, as `data-...` attributes."""
    key = row.case.key
    return {
        "data-fleet": key.fleet,
        "data-device": key.device,
        "data-board": row.case.newest.environment.board or "unknown board",
        "data-model": key.model,
        "data-runtime": key.runtime,
        "data-precision": key.precision,
        "data-kept": "" if row.is_reference else None,
    }


def _is_hollow(row: ComparisonRow) -> bool:
    return "int" in row.case.key.precision


def _facets(rows: Sequence[ComparisonRow], apart: Callable[[CaseSummary], str]) -> list[list[ComparisonRow]]:
    grouped: dict[tuple[str, ...], list[ComparisonRow]] = {}
    for row in rows:
        case = row.case
        metric = case.accuracy.metric if case.accuracy else ""
        grouped.setdefault((case.key.task, case.key.dataset_sha256, case.key.scenario, metric, apart(case)), []).append(row)
    return list(grouped.values())


def _facet_title(rows: Sequence[ComparisonRow]) -> str:
    newest = rows[0].case.newest
    return f"{newest.dataset.name} ({figures.count(newest.dataset.images, 'image')}), {newest.scenario}"


def _latency_title(rows: Sequence[ComparisonRow]) -> str:
    provenance = rows[0].case.key.provenance
    return _facet_title(rows) if provenance == "measured" else f"{_facet_title(rows)}, {provenance}"


def _energy_class(case: CaseSummary) -> str:
    return "" if case.energy is None else str(case.energy.ranks_as)


def _scatter(
    comparison: Comparison,
    rows: Sequence[ComparisonRow],
    styles: SeriesStyles,
    cost: Callable[[CaseSummary], Spread | None],
    cost_title: str,
    title: str,
) -> Markup:
    cases = [row.case for row in rows]
    names = case_names(cases) if len(rows) <= ALL_LABELLED else short_names(cases)
    points = [
        _point(comparison, row, name, styles, found, row.case.accuracy.value)
        for row, name in zip(rows, names, strict=True)
        if (found := cost(row.case)) and row.case.accuracy
    ]
    metric = metric_name(rows[0].case.accuracy.metric) if rows[0].case.accuracy else "Accuracy"
    note = "Up and left is better. Lines: what nothing of the same series beats; dashed: the reference."
    return part("figure", title, scatter(points, f"{cost_title} against {metric}: {title}", cost_title, metric), note)


def _point(comparison: Comparison, row: ComparisonRow, name: str, styles: SeriesStyles, cost: Spread, value: Spread) -> ScatterPoint:
    key = row.case.key
    who = f"{key.device}, {key.model}, {key.precision} on {runtime_name(row.case)}"
    explanation = f"{who}: {figures.significant(cost.median)}, {figures.accuracy(value.median)}"
    return ScatterPoint(
        cost=cost.median,
        accuracy=value.median,
        series=styles.series(row),
        style=styles.of(row),
        name=name,
        explanation=explanation,
        link=f"#{anchor(comparison, row)}",
        is_reference=row.is_reference,
        is_hollow=_is_hollow(row),
        is_suspect=row.case.suspect > 0,
        is_ranked=row.not_ranked is None,
        facts=facts(row),
    )


def _lanes(
    comparison: Comparison, rows: Sequence[ComparisonRow], styles: SeriesStyles, figure: Callable[[CaseSummary], Spread | None], unit: str
) -> list[Lane]:
    lanes = []
    for row, name in zip(rows, case_names([row.case for row in rows]), strict=True):
        who = [row.case.key.device] if styles.by_device or row.is_reference else []
        found = figure(row.case)
        text = f"{figures.significant(found.median)} {unit}" if found else ""
        lanes.append(Lane(" · ".join([*who, name]), text, styles.of(row), f"#{anchor(comparison, row)}"))
    return lanes


def _cold_steps(case: CaseSummary) -> list[BarPart]:
    start = case.cold_start
    if start is None:
        return []
    process = [BarPart("process", start.process_ms.median, 0)] if start.process_ms else []
    return [
        *process,
        BarPart("import the runtime", start.import_ms.median, 1),
        BarPart("load the model", start.load_ms.median, 2),
        BarPart("first inference", start.first_ms.median, 3),
    ]


def _memory_steps(case: CaseSummary) -> list[BarPart]:
    if case.memory is None:
        return []
    before, loaded, peak = (level.median for level in (case.memory.before_load_mb, case.memory.loaded_mb, case.memory.peak_mb))
    above = max(0.0, peak - max(before, loaded))
    inputs = min(above, case.memory.prepared_inputs_mb.median)
    return [
        BarPart("process and libraries", before, 0),
        BarPart("model loaded", max(0.0, loaded - before), 2),
        BarPart("up to the peak, running", above - inputs, 3),
        BarPart("inputs that the benchmark keeps ready", inputs, 1),
    ]


def _total(parts: Sequence[BarPart]) -> Spread:
    total = sum(part.amount for part in parts)
    return Spread(total, total, total, 1)


def _shades(bars_drawn: Sequence[Sequence[BarPart]]) -> Markup:
    """Return the meaning of the shades of bars."""
    steps = dict.fromkeys((part.step, part.name) for parts in bars_drawn for part in parts if part.amount > 0)
    keys = [element("li", None, element("span", {"class": f"shade step{step}"}), name) for step, name in steps]
    return element("ul", {"class": "legend"}, *keys)


def _gallery(charts: Sequence[Markup], notes: Sequence[Markup]) -> Markup:
    return join([part("gallery", charts) if charts else "", *notes])


def _missing(
    comparison: Comparison, drawn: Sequence[ComparisonRow], what: str, reason: Callable[[CaseSummary], str | None]
) -> list[Markup]:
    """Return why cases have no point: each reason once, with the devices it holds for."""
    absent: dict[str, set[str]] = {}
    for row in comparison.rows:
        if not any(row is one for one in drawn):
            absent.setdefault(reason(row.case) or "too few queries for a median", set()).add(row.case.key.device)
    return [element("p", {"class": "note"}, f"No {what} of {', '.join(sorted(devices))}: {text}.") for text, devices in absent.items()]
