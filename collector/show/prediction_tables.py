"""Kept predictions as tables: what the model of a run gets wrong, and where those of two runs differ."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console

from edgemeter.agent.base.figures import ABSENT, count, significant
from edgemeter.agent.base.terminal import TableColumn, fitted_table, print_text, writable
from edgemeter.agent.contract.kept_predictions import KeptPredictions
from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector.predictions.differences import KINDS, SAME, PhotographDifferences, PredictionDifferences
from edgemeter.collector.predictions.quality import (
    BestThreshold,
    Calibration,
    ConfusionMatrix,
    PrecisionRecallCurve,
    best_threshold,
    calibration,
    confusion,
    precision_recall,
)

# Rows of a table; JSON has all.
MOST_ROWS = 10


@dataclass(frozen=True, slots=True)
class PredictionAnalysis:
    """The analysis of one run's kept predictions; of a classifier there are no curves and thresholds."""

    items: int
    score: float
    confusion: ConfusionMatrix
    calibration: Calibration
    thresholds: tuple[BestThreshold, ...] = ()
    curves: tuple[PrecisionRecallCurve, ...] = ()


def analysis_of(predictions: KeptPredictions, score: float) -> PredictionAnalysis:
    """Return the analysis, the confusion matrix of objects with at least this score."""
    score = max(score, predictions.least_score)
    matrix, calibrated = confusion(predictions, score), calibration(predictions)
    if predictions.answers:
        return PredictionAnalysis(len(predictions.answers), score, matrix, calibrated)
    curves = tuple(curve for label in (None, *predictions.labels) if (curve := precision_recall(predictions, label)) is not None)
    return PredictionAnalysis(len(predictions.photographs), score, matrix, calibrated, best_threshold(predictions), curves)


def show_analysis(analysis: PredictionAnalysis, console: Console) -> None:
    """Print the best thresholds, the most frequent confusions, and the calibration error."""
    if analysis.thresholds:
        objects = {curve.label: curve.objects for curve in analysis.curves}
        ap50 = {curve.label: curve.ap50 for curve in analysis.curves}
        rows = sorted(analysis.thresholds, key=lambda best: (best.label is not None, -objects.get(best.label, 0)))[: MOST_ROWS + 1]
        print_text(console, f"best thresholds (IoU 0.5) of {count(analysis.items, 'photograph')}, the most frequent classes first:")
        columns = [
            TableColumn("class", [_safe(best.label or "all", console) for best in rows], "left"),
            TableColumn("objects", [str(objects.get(best.label, "")) for best in rows]),
            TableColumn("AP50", [f"{ap50[best.label]:.3f}" if best.label in ap50 else ABSENT for best in rows], rank=1),
            TableColumn("threshold", [f"{best.score:.3f}" for best in rows]),
            *(TableColumn(name.upper() if name == "f1" else name, [f"{getattr(best, name):.3f}" for best in rows])
              for name in ("f1", "precision", "recall")),
            *(TableColumn(name, [str(getattr(best, name)) for best in rows]) for name in ("right", "false", "missed")),
        ]  # fmt: skip
        console.print(fitted_table(columns, console.width))
    confused = _confused(analysis.confusion)
    least = f" at a score of {analysis.score:g}" if analysis.thresholds else ""
    print_text(console, f"most frequent mistakes{least}:" if confused else f"no mistakes{least}")
    if confused:
        columns = [
            TableColumn("annotated", [_safe(label, console) for label, _, _ in confused], "left"),
            TableColumn("predicted", [_safe(label, console) for _, label, _ in confused], "left"),
            TableColumn("times", [str(number) for _, _, number in confused]),
        ]
        console.print(fitted_table(columns, console.width))
    print_text(console, _calibration_text(analysis.calibration))


def _confused(matrix: ConfusionMatrix) -> list[tuple[str, str, int]]:
    cells = (
        (label, other, number)
        for label, row in zip(matrix.labels, matrix.counts, strict=True)
        for other, number in zip(matrix.labels, row, strict=True)
        if number and label != other
    )
    return sorted(cells, key=lambda cell: -cell[2])[:MOST_ROWS]


def _calibration_text(calibrated: Calibration) -> str:
    if calibrated.error is None or calibrated.by_chance is None:
        return "no calibration error: nothing was predicted"
    bounds = (
        f"no bounds: {calibrated.reason}"
        if calibrated.low is None or calibrated.high is None
        else f"95% {calibrated.low:.3f} to {calibrated.high:.3f}"
    )
    bins = ", ".join(
        f"{entry.mean_score:.2f}: {entry.right_ratio:.2f}"
        for entry in calibrated.bins
        if entry.mean_score is not None and entry.right_ratio is not None
    )
    return (
        f"calibration error {calibrated.error:.3f} ({bounds}; {calibrated.by_chance:.3f} is chance) of {calibrated.count:,} predictions; "
        f"mean score and share that is right: {bins}"
    )


def show_differences(runs: Sequence[RunRecord], compared: PredictionDifferences, console: Console) -> None:
    """Print the kinds of differences by size, those of the classes that differ most, and the photographs in which the device is worst."""
    for side, run in zip(("reference", "device"), runs, strict=True):
        scored = f", {run.accuracy.metric} {significant(run.accuracy.value, 4)}" if run.accuracy else ""
        print_text(console, f"{side}: run {run.id[:8]}, {run.model.name} {run.precision} on {run.runtime.name}, {run.device}{scored}")
    if compared.note:
        print_text(console, compared.note)
    is_of_boxes = bool(compared.by_size)
    least = f", of objects with a score of at least {compared.score:g}" if is_of_boxes else ""
    print_text(console, f"differences{least}:")
    kinds = [kind for kind in KINDS if kind in compared.counts]
    by_size = [TableColumn(size, [_number(counts, kind) for kind in kinds]) for size, counts in compared.by_size.items()]
    total = TableColumn("all", [str(compared.counts[kind]) for kind in kinds])
    meanings = TableColumn("meaning", [KINDS[kind] for kind in kinds], "left", folds=True)
    console.print(fitted_table([TableColumn("kind", kinds, "left"), total, *by_size, meanings], console.width))
    if compared.lowered:
        print_text(console, f"{compared.lowered} of {compared.counts['missed']} missed are found by the device with a lower score")
    for title, parts in (("class", compared.by_label), ("group", compared.by_group)):
        _show_parts(title, parts, console)
    _show_worst(compared.worst(MOST_ROWS), console)


def _show_parts(title: str, parts: Mapping[str, Mapping[str, int]], console: Console) -> None:
    differing = [(name, counts) for name, counts in parts.items() if any(kind not in SAME for kind in counts)]
    differing.sort(key=lambda part: (-sum(number for kind, number in part[1].items() if kind not in SAME), part[0]))
    if differing:
        rows = differing[:MOST_ROWS]
        columns = [TableColumn(kind, [_number(counts, kind) for _, counts in rows]) for kind in KINDS]
        console.print(fitted_table([TableColumn(title, [_safe(name, console) for name, _ in rows], "left"), *columns], console.width))


def _show_worst(worst: Iterable[PhotographDifferences], console: Console) -> None:
    rows = list(worst)
    if rows:
        kinds = [Counter[str]({mark.thing: mark.kind for mark in photograph.marks}.values()) for photograph in rows]
        columns = [TableColumn(kind, [_number(counts, kind) for counts in kinds]) for kind in KINDS if kind not in SAME]
        names = TableColumn("worst photographs", [_safe(photograph.name, console) for photograph in rows], "left", folds=True)
        console.print(fitted_table([names, TableColumn("worse", [str(row.worse) for row in rows]), *columns], console.width))


def _number(counts: Mapping[str, int], kind: str) -> str:
    return str(counts[kind]) if counts.get(kind) else ABSENT


def _safe(text: str, console: Console) -> str:
    return writable(text, console)
