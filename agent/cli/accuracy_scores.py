"""The accuracy of a model for `edgemeter accuracy`, and the output of that command."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from edgemeter.agent.base.figures import ABSENT
from edgemeter.agent.base.metrics import metric_name
from edgemeter.agent.base.terminal import plain_table, print_text
from edgemeter.agent.contract import model_file
from edgemeter.agent.contract.record_accuracy import Accuracy, PartAccuracy
from edgemeter.agent.contract.record_conditions import Subset, Verdict
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.engine import isolation, job
from edgemeter.agent.tasks.coco_ap import RECALL
from edgemeter.agent.tasks.coco_matches import BOXES, METRICS
from edgemeter.agent.tasks.item_accuracy import SMALLEST_GROUP
from edgemeter.agent.verdict import accuracy_rules
from edgemeter.agent.verdict.rule import verdict_of

NAMES = {BOXES.metric: "ap"}  # What the value of a metric is called beside its details.


@dataclass(frozen=True, slots=True)
class AccuracyScores:
    """The scores of a model; `accuracy` is None where the ground truth holds nothing to find, for the `reason`."""

    accuracy: Accuracy | None
    images: int
    warnings: tuple[str, ...]
    subset: Subset | None
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
        scored.subset,
        verdict_of(accuracy_rules.violated(scored)),
        scored.accuracy_reason,
    )


def document(scored: AccuracyScores) -> dict[str, Any]:
    """Return the accuracy as plain data with short names; a figure is null where there is nothing to find."""
    accuracy = scored.accuracy
    verdict = {"verdict": scored.verdict.state, "reasons": list(scored.verdict.reasons)}
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
        **{key: fields[key] for key in ("low", "high", "interval", "interval_reason")},
        **({} if accuracy.normalisation is None else {"normalisation": accuracy.normalisation}),
        "images": scored.images,
        "per_class": per_class(accuracy),
        **{key: fields[key] for key in ("by_objects", "group_metric", "groups", "group_gap")},
        "dataset_sha256": accuracy.dataset_sha256,
        **({} if scored.subset is None else {"subset": msgspec.to_builtins(scored.subset)}),
        **verdict,
        "warnings": list(scored.warnings),
    }


def per_class(accuracy: Accuracy) -> dict[str, float | None]:
    """Return the figure of each class by its name; of several classes of one name the later ones are numbered."""
    name_counts: Counter[str] = Counter()
    named = {}
    for part in accuracy.per_class:
        name_counts[part.name] += 1
        named[part.name if name_counts[part.name] == 1 else f"{part.name} ({name_counts[part.name]})"] = part.value
    return named


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
    console.print(_table(None, ("", "", "95%"), [(metric_name(key), _figure(value), bound) for key, value, bound in figures]))
    how = {
        "95%": (accuracy.interval or "").removeprefix("95%, "),
        f"no bounds of {metric_name(accuracy.metric)}": accuracy.interval_reason if accuracy.low is None else None,
        "compared by": accuracy.normalisation,
    }
    for heading, text in how.items():
        if text:
            console.print(f"{heading}: {text}", markup=False, highlight=False)
    metric = metric_name(accuracy.metric)
    if accuracy.by_objects:
        console.print(_parts("objects in the image", metric, accuracy.by_objects))
    if accuracy.groups:
        console.print(_parts("group", metric_name(accuracy.group_metric or ""), accuracy.groups))
        if any(group.value is None for group in accuracy.groups):
            counted_in = "objects" if accuracy.group_metric == RECALL else "images"
            console.print(f"a group of fewer than {SMALLEST_GROUP} {counted_in} gets no figure", markup=False, highlight=False)
    if gap := accuracy.group_gap:
        bounds_of_gap = _bounds(gap.low, gap.high) or f"(no bounds, {gap.reason})"
        print_text(console, f"largest gap: {gap.best} {_figure(gap.value)} above {gap.worst} {bounds_of_gap}")
    if accuracy.per_class and with_classes:
        console.print(_parts("class", metric, accuracy.per_class))


def _parts(heading: str, metric: str, parts: Sequence[PartAccuracy]) -> Table:
    is_bounded = any(part.low is not None for part in parts)
    is_of_objects = any(part.objects is not None for part in parts)
    headings = (heading, metric, *(["95%"] if is_bounded else []), "images", *(["objects"] if is_of_objects else []))
    rows = []
    for part in parts:
        bounds = [_bounds(part.low, part.high)] if is_bounded else []
        objects = [f"{part.objects:,}" if part.objects is not None else ABSENT] if is_of_objects else []
        rows.append((part.name, _figure(part.value), *bounds, f"{part.images:,}", *objects))
    return _table(None, headings, rows)


def _table(title: str | None, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = plain_table(*headings, right=headings[1:])
    table.title, table.title_justify = title, "left"
    for row in rows:
        table.add_row(*row)
    return table


def _figure(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.4f}"


def _bounds(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{low:.4f} .. {high:.4f}"
