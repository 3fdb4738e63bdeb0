"""The charts that say why an accuracy is what it is, or why two differ, from the kept predictions: confusions, curves, reliability."""

from collections.abc import Mapping, Sequence

from edgemeter.agent.base import figures
from edgemeter.collector.charts import accuracy_specs
from edgemeter.collector.charts.chart import Chart, rows_table
from edgemeter.collector.predictions.quality import Calibration, ConfusionMatrix, PrecisionRecallCurve
from edgemeter.collector.show.series_style import numbered_style

# Rows and columns of a matrix: more classes cannot be read at once.
CLASSES = 10
NOTHING_THERE, MISSED = "(nothing there)", "(missed)"
_Counts = Sequence[Sequence[int]]


def confusion_chart(matrices: Sequence[ConfusionMatrix], *, has_background: bool) -> Chart | None:
    """Return the confusions of one run, or what those of the second have more or less than those of the first; None where there are none.

    Of two runs of the same labels; with `has_background` the last is where nothing is. Classes with the most (differing) confusions come
    first, the others are summed.
    """
    labels, counts = matrices[-1].labels, matrices[-1].counts
    before = matrices[0].counts if len(matrices) > 1 else [[0] * len(row) for row in counts]
    weights = [[abs(cell - was) for cell, was in zip(row, row_before, strict=True)] for row, row_before in zip(counts, before, strict=True)]
    named = range(len(labels) - has_background)
    errors = {
        index: sum(weights[index][other] + weights[other][index] for other in range(len(labels)) if other != index) for index in named
    }
    ranked = [index for index in sorted(named, key=lambda index: -errors[index]) if errors[index]][:CLASSES]
    if not ranked:
        return None
    remaining = [index for index in named if index not in ranked]
    if len(remaining) == 1:
        ranked, remaining = ranked + remaining, []
    groups = [[index] for index in ranked] + ([remaining] if remaining else [])
    names = [labels[index] for index in ranked] + ([f"({len(remaining)} others)"] if remaining else [])
    lanes, columns = list(names), list(names)
    if has_background:
        groups, lanes, columns = [*groups, [len(labels) - 1]], [*lanes, NOTHING_THERE], [*columns, MISSED]
    rows = [
        {"truth": lane, "predicted": column, **_cell(_sum(counts, group, other), _sum(before, group, other) if len(matrices) > 1 else None,
                                                     is_right=group is other)}
        for lane, group in zip(lanes, groups, strict=True) for column, other in zip(columns, groups, strict=True)
    ]  # fmt: skip
    title = "Confusions: B against A" if len(matrices) > 1 else "Confusions"
    text = "Rows: what is there; columns: what was found."
    text += " A cell: the change, below it the counts of A and B." if len(matrices) > 1 else ""
    spec = accuracy_specs.confusion_matrix(lanes, columns, has_below=len(matrices) > 1)
    return Chart(title, spec, rows_table(rows), text, kind="wide matrix")


def _sum(counts: _Counts, rows: Sequence[int], columns: Sequence[int]) -> int:
    return sum(counts[row][column] for row in rows for column in columns)


def _cell(count: int, before: int | None, *, is_right: bool) -> dict[str, str | float]:
    if before is None:
        return {"value": 0 if is_right else count, "text": f"{count:,}" if count else "", "below": ""}
    if count == before:
        return {"value": 0, "text": "", "below": f"{count:,}" if count else ""}
    return {"value": abs(count - before), "text": figures.typeset(f"{count - before:+,}"), "below": f"{before:,} → {count:,}"}


def precision_recall_chart(curves: Mapping[str, PrecisionRecallCurve], least_score: float) -> Chart:
    """Return precision over recall, a line for each run by its name, of objects with at least this score."""
    rows = [
        {"series": name, "recall": step / (len(curve.precisions) - 1), "precision": precision}
        for name, curve in curves.items() for step, precision in enumerate(curve.precisions)
    ]  # fmt: skip
    legend = _legend(list(curves))
    named = "; ".join(f"{name}: {figures.accuracy(curve.ap50)}" for name, curve in curves.items())
    text = f"Mean over the classes at IoU 0.5. AP50 of the kept objects, whose score is at least {least_score:g}: {named}."
    return Chart("Precision over recall", accuracy_specs.precision_recall(legend), rows_table(rows), text, _shown(legend))


def reliability_chart(calibrations: Mapping[str, Calibration]) -> Chart:
    """Return the share of predictions that is right over their score, a line for each run by its name; a dot is as large as its count."""
    rows = [
        {"series": name, "score": part.mean_score, "right": part.right_ratio, "count": part.count}
        for name, calibration in calibrations.items() for part in calibration.bins if part.count
    ]  # fmt: skip
    legend = _legend(list(calibrations))
    text = f"Expected calibration error {'; '.join(_error_text(name, calibration) for name, calibration in calibrations.items())}."
    return Chart("Reliability of the scores", accuracy_specs.reliability(legend), rows_table(rows), text, _shown(legend))


def _error_text(name: str, calibration: Calibration) -> str:
    if calibration.error is None:
        return f"{name}: of no prediction there is none"
    bounds = "" if calibration.low is None or calibration.high is None else f" ({calibration.low:.3f} to {calibration.high:.3f})"
    chance = "" if calibration.by_chance is None else f", {calibration.by_chance:.3f} of it expected by chance"
    return f"{name}: {calibration.error:.3f}{bounds} over {figures.count(calibration.count, 'prediction')}{chance}"


def _legend(names: Sequence[str]) -> tuple[tuple[str, str, str], ...]:
    return tuple((name, numbered_style(index).paint, "circle") for index, name in enumerate(names))


def _shown(legend: tuple[tuple[str, str, str], ...]) -> tuple[tuple[str, str, str], ...]:
    return legend if len(legend) > 1 else ()
