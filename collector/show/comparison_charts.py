"""The charts of a comparison, each for comparable cases.

A text names the cases that are missing in them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import msgspec
import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.metrics import metric_name
from edgemeter.agent.contract.case_identity import CaseKey
from edgemeter.agent.contract.figures import ACCURACY, ENERGY, LATENCY, TOO_FEW_QUERIES
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.samples import unpack
from edgemeter.collector.charts import scatter, specs
from edgemeter.collector.charts.chart import Chart, rows_table
from edgemeter.collector.compare.comparison import ComparedCase, Comparison
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.runs.cases import grouped, names_of
from edgemeter.collector.runs.relation import load_text
from edgemeter.collector.show.series_style import SeriesStyles
from edgemeter.collector.show.words import case_names, listed, outcome_of, work_text

# Devices that are named where something is missing.
NAMED = 8
# Above this number of points, none has a label.
MOST_LABELLED = 10
MS_PER_NS = 1e-6
COST_TITLES = {LATENCY: "Latency p50, ms", ENERGY: "Energy per inference, gross, mJ"}
HOW_TO_READ_MARKS = (
    "Cost falls to the left, accuracy rises to the top. Bars are 95% intervals. The star is the "
    "reference. The tooltip of a mark shows the"
    " decision. A mark with a number combines that many boards of one type, or overlapping "
    "cases; it has the colour of the text if they"
    " belong to several series. Zoom in or open the table to see each."
)
# The standing of a board that is drawn with the others of its type.
OF_SEVERAL = "a board of several"


@dataclass(frozen=True, slots=True)
class Charts:
    """Charts, and the missing cases with the reasons."""

    charts: tuple[Chart, ...]
    notes: tuple[str, ...] = ()


def latency_against_accuracy(
    comparison: Comparison, styles: SeriesStyles, *, with_boards: bool = False
) -> Charts:
    """Return charts of latency against accuracy.

    There is one for each task, set of data, scenario, load and metric.

    With `with_boards` the table behind it also has each board of a combined row, which a page shows
    if one of them was selected.
    """
    drawn_rows = [row for row in comparison.rows if row.case.p50_ms and row.case.accuracy]
    charts = [
        _against_accuracy(rows, styles, LATENCY, _provenance, with_boards=with_boards)
        for rows in _facets(drawn_rows, _provenance)
    ]
    return Charts(
        tuple(charts),
        tuple(_missing(comparison, drawn_rows, "accuracy", lambda case: case.accuracy_reason)),
    )


def energy_against_accuracy(
    comparison: Comparison, styles: SeriesStyles, *, with_boards: bool = False
) -> Charts:
    """Return energy against accuracy, as `latency_against_accuracy` does.

    There is a chart for each class of energies.
    """
    having = [row for row in comparison.rows if row.case.energy and ENERGY in row.case.figures]
    charts = [
        _against_accuracy(rows, styles, ENERGY, _energy_class, with_boards=with_boards)
        for rows in _facets([row for row in having if row.case.accuracy], _energy_class)
        if not all(map(styles.is_reference, rows))
    ]
    notes = _missing(comparison, having, "energy", lambda case: case.energy_reason)
    if having and not charts:
        notes.append(
            "Energies are in the table; no device has both an energy and an accuracy to draw."
        )
    classes = sorted({row.case.energy.ranks_as for row in having if row.case.energy})
    if len(classes) > 1:
        named = "; ".join(map(str, classes))
        notes.append(
            f"Energies are of different scopes or provenance ({named}): they cannot be compared "
            "with each other."
        )
    return Charts(tuple(charts), tuple(notes))


def distribution_chart(run: RunRecord, steps: int) -> Chart | None:
    """Return the share of queries at most as slow; None without usable raw samples.

    It is at even ranks, including the extremes.
    """
    latency_series = next(
        (series for series in run.samples if series.name == "latency" and series.unit == "ns"), None
    )
    try:
        every_latency = unpack(latency_series) * MS_PER_NS if latency_series else np.empty(0)
    except ConfigError:
        return None
    latencies = np.sort(every_latency[np.isfinite(every_latency) & (every_latency > 0)])
    if not latencies.size:
        return None
    ranks = np.unique(
        np.linspace(0, latencies.size - 1, min(steps, latencies.size)).round().astype(np.int64)
    )
    amounts = [float(latencies[rank]) for rank in ranks]
    return Chart(
        "Cumulative share of queries",
        specs.cumulative("latency, ms", amounts),
        rows_table(
            [
                {"value": amount, "share": float((rank + 1) / latencies.size)}
                for rank, amount in zip(ranks, amounts, strict=True)
            ]
        ),
    )


def anchor(row: ComparedCase) -> str:
    """Return the fragment of `row` on a page."""
    identity = row.case.key, [board.case.key.device for board in row.boards]
    return f"case-{sha256(msgspec.json.encode(identity)).hexdigest()[:12]}"


def facts(row: ComparedCase) -> dict[str, str | float | None]:
    """Return the `data-...` attributes by which a script filters a chart or a table.

    A row of several boards has no device.
    """
    attributes: dict[str, str | float | None] = {
        f"data-{name}": getattr(row.case.key, name)
        for name in ("fleet", "device", "model", "runtime", "precision")
    }
    if row.boards:
        attributes["data-device"] = None
    return attributes | {"data-board": row.board, "data-kept": "" if row.is_reference else None}


def _facets(
    rows: Sequence[ComparedCase], kind: Callable[[CaseSummary], str]
) -> list[list[ComparedCase]]:
    def facet(case: CaseSummary) -> tuple[str, ...]:
        key, metric = case.key, case.accuracy.metric if case.accuracy else ""
        return key.task, key.dataset_sha256, key.scenario, load_text(key), metric, kind(case)

    return list(grouped((facet(row.case), row) for row in rows).values())


def _provenance(case: CaseSummary) -> str:
    return "" if case.key.provenance == "measured" else case.key.provenance


def _energy_class(case: CaseSummary) -> str:
    return "" if case.energy is None else str(case.energy.ranks_as)


def _against_accuracy(
    rows: Sequence[ComparedCase],
    styles: SeriesStyles,
    cost: str,
    kind: Callable[[CaseSummary], str],
    *,
    with_boards: bool,
) -> Chart:
    """Return the chart of rows of one kind that have a figure `cost` and an accuracy."""
    bounds = [_bounds_of(row.case, cost) for row in rows]
    ranked = [
        f"not ranked: {row.not_ranked}" if row.not_ranked else outcome_of(row) for row in rows
    ]
    standings = [
        "the reference" if styles.is_reference(row) else standing
        for row, standing in zip(rows, ranked, strict=True)
    ]
    labels = (
        case_names([row.case for row in rows]) if len(rows) <= MOST_LABELLED else [None] * len(rows)
    )
    boards = [(board, row) for row in rows if with_boards for board in row.boards]
    called = names_of((row.case.key for row in (*rows, *(board for board, _ in boards))), _called)
    values = [
        _mark(row, styles, called)
        | bounds[index]
        | {
            "standing": standings[index],
            "label": labels[index], "boards": max(1, len(row.boards)), "of": None,
        }
        for index, row in enumerate(rows)
    ]  # fmt: skip
    values_of_boards = [
        _mark(board, styles, called)
        | _bounds_of(board.case, cost)
        | {"standing": OF_SEVERAL, "label": None, "boards": 1, "of": anchor(row)}
        for board, row in boards
        if board.case.accuracy and cost in board.case.figures
    ]
    ordered = sorted(
        {styles.series(row): styles.of(row) for row in rows}.items(),
        key=lambda item: (item[0] == "reference", item[0]),
    )
    legend = tuple((name, f"var(--{style.colour})", style.shape) for name, style in ordered)
    metric = metric_name(rows[0].case.accuracy.metric) if rows[0].case.accuracy else "Accuracy"
    spec = scatter.against_accuracy(COST_TITLES[cost], metric, legend, values)
    subject = ", ".join(filter(None, (work_text(rows[0].case), kind(rows[0].case))))
    title = f"{COST_TITLES[cost].partition(',')[0]} against {metric}: {subject}"
    return Chart(title, spec, rows_table([*values, *values_of_boards]), legend=legend)


def _mark(row: ComparedCase, styles: SeriesStyles, called: Mapping[CaseKey, str]) -> dict[str, Any]:
    return {
        "case": called[row.case.key], "series": styles.series(row),
        "verdict": _verdict(row), "anchor": anchor(row),
        **{
            name.removeprefix("data-"): value
            for name, value in facts(row).items()
            if name != "data-kept"
        },
    }  # fmt: skip


def _verdict(row: ComparedCase) -> str:
    disturbed = sum(board.case.disturbed > 0 for board in row.boards)
    return (
        f"{disturbed} of {len(row.boards)} boards disturbed"
        if 0 < disturbed < len(row.boards)
        else row.case.verdict
    )


def _called(key: CaseKey) -> str:
    return f"{key.device}, {key.model}, {key.precision} on {key.runtime_text}"


def _bounds_of(case: CaseSummary, name: str) -> dict[str, float | None]:
    """Return that figure and the accuracy of a case, which has both, with their intervals."""
    cost, accuracy = case.figures[name], case.figures[ACCURACY]
    return {
        "cost": cost.value, "cost_low": cost.low, "cost_high": cost.high,
        "accuracy": accuracy.value, "accuracy_low": accuracy.low, "accuracy_high": accuracy.high,
    }  # fmt: skip


def _missing(
    comparison: Comparison,
    rows: Sequence[ComparedCase],
    word: str,
    reason: Callable[[CaseSummary], str | None],
) -> list[str]:
    """Return why cases have no point: each reason once, with its devices."""
    drawn_ids = set(map(id, rows))
    absent = [row.case for row in comparison.rows if id(row) not in drawn_ids]
    devices_by_reason = grouped(
        (reason(case) or TOO_FEW_QUERIES, case.key.device) for case in absent
    )
    return [
        f"No {word} of {listed(sorted(set(devices)), NAMED)}: {text}."
        for text, devices in devices_by_reason.items()
    ]
