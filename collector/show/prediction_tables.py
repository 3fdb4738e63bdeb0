"""Kept predictions as tables: what the model of a run gets wrong, and where those of two runs differ."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product

from rich.console import Console

from edgemeter.agent.base.figures import ABSENT, count
from edgemeter.agent.base.metrics import metric_name
from edgemeter.agent.base.terminal import TableColumn, fitted_table, print_text, writable
from edgemeter.agent.contract.kept_predictions import KeptPredictions
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.ledger.run_history import short_id
from edgemeter.collector.predictions.differences import KINDS, SAME, Kind, PredictionDifferences
from edgemeter.collector.predictions.quality import (
    BestThreshold,
    Calibration,
    ConfusionMatrix,
    PrecisionRecallCurve,
    best_threshold,
    calibration,
    confusion,
    precision_recall_curves,
)

# Rows of a table; JSON has all.
MOST_ROWS = 10
DIFFERENT = KINDS.keys() - SAME


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
    thresholds, curves = best_threshold(predictions), precision_recall_curves(predictions)
    return PredictionAnalysis(len(predictions.photographs), score, matrix, calibrated, thresholds, curves)


def show_analysis(analysis: PredictionAnalysis, console: Console) -> None:
    """Print the best thresholds, the most frequent confusions, and the calibration error."""
    least = ""
    if analysis.thresholds:
        least = f" at a score of {analysis.score:g}"
        rows = sorted(analysis.thresholds, key=lambda best: (best.label is not None, -best.right - best.missed))[: MOST_ROWS + 1]
        print_text(console, f"best thresholds (IoU 0.5) of {count(analysis.items, 'photograph')}, the most frequent classes first:")
        columns = [
            _names("class", [best.label or "all" for best in rows], console),
            *(TableColumn(name, [f"{getattr(best, name):.3f}" for best in rows]) for name in ("score", "f1", "precision", "recall")),
            *(TableColumn(name, [str(getattr(best, name)) for best in rows]) for name in ("right", "false", "missed")),
        ]
        console.print(fitted_table(columns, console.width))
    matrix = analysis.confusion
    cells = zip(product(matrix.labels, repeat=2), chain.from_iterable(matrix.counts), strict=True)
    mistakes = [(number, label, other) for (label, other), number in cells if number and label != other]
    mistakes = sorted(mistakes, key=lambda mistake: -mistake[0])[:MOST_ROWS]
    print_text(console, f"most frequent mistakes{least}:" if mistakes else f"no mistakes{least}")
    if mistakes:
        times, annotated, predicted = zip(*mistakes, strict=True)
        texts = [_names("annotated", annotated, console), _names("predicted", predicted, console)]
        console.print(fitted_table([*texts, TableColumn("times", list(map(str, times)))], console.width))
    print_text(console, _calibration_text(analysis.calibration))


def _calibration_text(calibrated: Calibration) -> str:
    if calibrated.error is None:
        return "no calibration error: nothing was predicted"
    has_bounds = calibrated.low is not None and calibrated.high is not None
    bounds = f"95% {calibrated.low:.3f} to {calibrated.high:.3f}" if has_bounds else f"no bounds: {calibrated.reason}"
    shares = ", ".join(f"{entry.mean_score:.2f}: {entry.right_ratio:.2f}" for entry in calibrated.bins if entry.count)
    return (
        f"calibration error {calibrated.error:.3f} ({bounds}; {calibrated.by_chance:.3f} is chance) of {calibrated.count:,} predictions; "
        f"mean score and share that is right: {shares}"
    )


def show_differences(runs: Sequence[RunRecord], compared: PredictionDifferences, console: Console) -> None:
    """Print the kinds of differences by size, those of the classes that differ most, and the photographs in which the device is worst."""
    for side, run in zip(("reference", "device"), runs, strict=True):
        scored = f", {metric_name(run.accuracy.metric)} {run.accuracy.value:.4f}" if run.accuracy else ""
        print_text(console, f"{side}: run {short_id(run.id)}, {run.model.name} {run.precision} on {run.runtime.name}, {run.device}{scored}")
    least = f" of objects with a score of at least {compared.score:g}" if compared.by_size else ""
    print_text(console, "; ".join(filter(None, [f"differences{least}", compared.note])))
    kinds = [kind for kind in KINDS if kind in compared.counts]
    by_size = [TableColumn(size, [_number(counts, kind) for kind in kinds]) for size, counts in compared.by_size.items()]
    total = TableColumn("all", [str(compared.counts[kind]) for kind in kinds])
    meanings = TableColumn("meaning", [KINDS[kind] for kind in kinds], "left", folds=True)
    console.print(fitted_table([TableColumn("kind", kinds, "left"), total, *by_size, meanings], console.width))
    if compared.lowered:
        print_text(console, f"{compared.lowered} of {compared.counts['missed']} missed are found by the device with a lower score")
    for title, parts in (("class", compared.by_label), ("group", compared.by_group)):
        _show_kinds(title, sorted(parts.items(), key=lambda part: -sum(part[1].get(kind, 0) for kind in DIFFERENT)), console)
    worst = [(photo.name, Counter({mark.thing: mark.kind for mark in photo.marks}.values())) for photo in compared.worst(MOST_ROWS)]
    _show_kinds("worst photographs", worst, console)


def _show_kinds(title: str, parts: Sequence[tuple[str, Mapping[Kind, int]]], console: Console) -> None:
    """Print how often each part has each kind of difference; of those that have none nothing."""
    rows = [part for part in parts if not DIFFERENT.isdisjoint(part[1])][:MOST_ROWS]
    if rows:
        columns = [TableColumn(kind, [_number(counts, kind) for _, counts in rows]) for kind in KINDS if kind in DIFFERENT]
        console.print(fitted_table([_names(title, [name for name, _ in rows], console), *columns], console.width))


def _number(counts: Mapping[Kind, int], kind: Kind) -> str:
    return str(counts[kind]) if counts.get(kind) else ABSENT


def _names(heading: str, names: Iterable[str], console: Console) -> TableColumn:
    return TableColumn(heading, [writable(name, console) for name in names], "left", folds=True)
