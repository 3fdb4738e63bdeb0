"""The accuracy of a model for `edgemeter models score`, and the output of that command."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from edgemeter.agent.base.figures import ABSENT
from edgemeter.agent.base.metrics import metric_name
from edgemeter.agent.base.terminal import plain_table
from edgemeter.agent.contract import model_file
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.contract.record_conditions import Verdict
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.engine import isolation, job
from edgemeter.agent.tasks.coco_matches import BOXES, METRICS
from edgemeter.agent.verdict.judge import judge_outputs
from edgemeter.agent.verdict.rule import Facts

NAMES = {BOXES.metric: "ap"}  # What the value of a metric is called beside its details.


@dataclass(frozen=True, slots=True)
class AccuracyScores:
    """The scores of a model; `accuracy` is None where the ground truth holds nothing to find, for the `reason`."""

    accuracy: Accuracy | None
    images: int
    warnings: tuple[str, ...]
    drawn_from: int | None
    verdict: Verdict
    reason: str | None


def of_model(case: Case, on_event: Callable[[job.Event], None]) -> AccuracyScores:
    """Return the accuracy of a model on its data set, untimed and in a separate process, so that a runtime's crash ends only that.

    Raises:
        EdgemeterError: the model, the runtime or the data cannot be used, or there is no ground truth.
    """
    size_bytes = model_file.size_bytes(Path(case.model))
    work = job.RunJob(case=case, sha256=case.sha256 or "", size_bytes=size_bytes, seed=case.seed, accuracy=True, idle=False, spawned_ns=0)
    scored = isolation.score_isolated(work, lambda event, _pid: on_event(event))
    notes = dict.fromkeys((*scored.notes, *(scored.accuracy.warnings if scored.accuracy else ())))
    return AccuracyScores(
        scored.accuracy,
        scored.images,
        tuple(notes),
        scored.drawn_from,
        judge_outputs(Facts(scored)),
        scored.accuracy_reason,
    )


def document(scored: AccuracyScores) -> dict[str, Any]:
    """Return the accuracy as plain data with short names; a figure is null where there is nothing to find."""
    accuracy = scored.accuracy
    verdict = {"verdict": scored.verdict.state, "violations": msgspec.to_builtins(scored.verdict.violations)}
    if accuracy is None:
        figures: dict[str, Any] = dict.fromkeys(("metric", "value", "better", *METRICS))
        why = {"reason": scored.reason, **verdict, "warnings": list(scored.warnings)}
        return {**figures, "images": scored.images, "per_class": {}, **why}
    fields = msgspec.to_builtins(accuracy)
    return {
        "metric": accuracy.metric,
        "value": accuracy.value,
        "better": accuracy.better,
        NAMES.get(accuracy.metric, accuracy.metric): accuracy.value,
        **accuracy.detail,
        **{key: fields[key] for key in ("low", "high", "interval_reason")},
        **({} if accuracy.normalisation is None else {"normalisation": accuracy.normalisation}),
        "images": scored.images,
        "per_class": accuracy.per_class,
        "dataset_sha256": accuracy.dataset_sha256,
        **({} if scored.drawn_from is None else {"drawn_from": scored.drawn_from}),
        **verdict,
        "warnings": list(scored.warnings),
    }


def show(scored: AccuracyScores, console: Console | None = None, *, with_classes: bool) -> None:
    """Print all of it, the classes only where they are asked for: there may be a thousand."""
    console = console or Console()
    counted = f"{scored.images:,} images"
    if (accuracy := scored.accuracy) is None:
        console.print(f"{counted}: no accuracy", highlight=False)
        return
    name = NAMES.get(accuracy.metric, accuracy.metric)
    # A figure's bounds stand beside it, not below it.
    named = [key for key in accuracy.detail if not key.endswith(("_low", "_high"))]
    bounds = {key: _bounds(accuracy.detail.get(f"{key}_low"), accuracy.detail.get(f"{key}_high")) for key in named}
    figures = [(name, accuracy.value, _bounds(accuracy.low, accuracy.high)), *((key, accuracy.detail[key], bounds[key]) for key in named)]
    console.print(counted, highlight=False)
    console.print(_table(("", "", "95%"), [(metric_name(key), _figure(value), bound) for key, value, bound in figures]))
    how = {
        f"no bounds of {metric_name(accuracy.metric)}": accuracy.interval_reason if accuracy.low is None else None,
        "compared by": accuracy.normalisation,
    }
    for heading, text in how.items():
        if text:
            console.print(f"{heading}: {text}", markup=False, highlight=False)
    if accuracy.per_class and with_classes:
        console.print(_classes(accuracy))


def _classes(accuracy: Accuracy) -> Table:
    counts = accuracy.per_class_objects
    headings = ("class", metric_name(accuracy.metric), *(["objects"] if counts else []))
    return _table(
        headings, [(name, _figure(value), *([f"{counts[name]:,}"] if counts else [])) for name, value in accuracy.per_class.items()]
    )


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = plain_table(*headings, right=headings[1:])
    for row in rows:
        table.add_row(*row)
    return table


def _figure(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.4f}"


def _bounds(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{low:.4f} .. {high:.4f}"
