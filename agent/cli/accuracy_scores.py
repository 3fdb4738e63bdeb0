"""The work and the output of `edgemeter accuracy`: results in COCO's format, or a model, scored against ground truth."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.figures import ABSENT
from edgemeter.agent.base.metrics import metric_name
from edgemeter.agent.base.terminal import plain_table, print_text
from edgemeter.agent.contract.record_accuracy import Accuracy, PartAccuracy, Robustness
from edgemeter.agent.contract.record_conditions import Subset, Verdict
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.datasets import coco
from edgemeter.agent.datasets.clusters import clusters_of
from edgemeter.agent.datasets.coco import CocoDocument, plain_document
from edgemeter.agent.datasets.coco_results import HEIGHT, IMAGE, X, read_results, result_oddities
from edgemeter.agent.engine import isolation, job
from edgemeter.agent.tasks.coco_ap import METRIC, METRICS, RECALL, Bounds, coco_accuracy
from edgemeter.agent.tasks.item_accuracy import SMALLEST_GROUP
from edgemeter.agent.tasks.parts import units_of
from edgemeter.agent.verdict import accuracy_rules

SEVERITIES = 5
NAMES = {METRIC: "ap"}  # What the value of a metric is called beside its details.


@dataclass(frozen=True, slots=True)
class AccuracyScores:
    """The scores of one call; `accuracy` is None where the ground truth holds nothing to find.

    `detections` and `verdict` are those of a file and of a model, None of the other.
    """

    accuracy: Accuracy | None
    images: int
    detections: int | None
    warnings: tuple[str, ...]
    subset: Subset | None = None
    verdict: Verdict | None = None


def of_detections(annotations: Path, detections: Path, bounds: Bounds, cluster_by: str | None = None) -> AccuracyScores:
    """Return the accuracy of detections in COCO's result format; every image of the annotations counts. `cluster_by` as of `clusters_of`.

    Raises:
        EdgemeterError: a file is unreadable or the two do not belong together, or a library is missing.
    """
    document = coco.read_annotations(annotations)
    if isinstance(document, dict):
        raise ConfigError(f"{str(annotations)!r} holds one class per file, detections are scored against boxes: give COCO annotations")
    rows = read_results(detections, document)
    identity = hashlib.sha256(annotations.read_bytes()).hexdigest()
    images = [image.id for image in document.images]
    # An image without a file name has no prefix and no folder.
    names = {image.id: image.file_name or str(image.id) for image in document.images}
    fields = {key: {names[number]: text for number, text in of.items()} for key, of in coco.image_fields(annotations).items()}
    units = units_of(clusters_of(list(names.values()), fields, cluster_by), names)
    accuracy = coco_accuracy(plain_document(document), rows, images, identity, bounds, units=units)
    warnings = (*coco.annotation_oddities(document), *result_oddities(rows), *_silent(rows, len(images), document))
    if accuracy is not None:
        warnings += _doubtful(accuracy, plain_document(document), rows, images)
    return AccuracyScores(accuracy, len(images), len(rows), warnings)


def of_model(case: Case, on_event: Callable[[job.Event], None]) -> AccuracyScores:
    """Return the accuracy of a model on its data set, untimed and in a separate process, so that a runtime's crash ends only that.

    Raises:
        EdgemeterError: the model, the runtime or the data cannot be used, or there is no ground truth.
    """
    size = Path(case.model).stat().st_size
    work = job.RunJob(case=case, sha256=case.sha256 or "", size_bytes=size, seed=case.seed, accuracy=True, idle=False, spawned_ns=0)
    scored = isolation.score_isolated(work, lambda event, _pid: on_event(event))
    notes = dict.fromkeys((*scored.notes, *(scored.accuracy.warnings if scored.accuracy else ())))
    return AccuracyScores(scored.accuracy, scored.images, None, tuple(notes), scored.subset, _verdict(scored))


def _verdict(scored: job.Scored) -> Verdict:
    """Return whether the answers are worth an accuracy, by those rules of a run that look at nothing else."""
    broken = accuracy_rules.violated(scored)
    states = [rule.state for rule, _ in broken]
    state: Literal["valid", "suspect", "invalid"] = "invalid" if "invalid" in states else "suspect" if states else "valid"
    return Verdict(state=state, reasons=tuple(f"{rule.name}: {evidence}" for rule, evidence in broken))


def _silent(rows: NDArray[np.float64], images: int, truth: CocoDocument) -> tuple[str, ...]:
    """Return the warnings about the score: images without detections lower it, which a reader cannot see from the figure."""
    if not truth.annotations:
        return ("the annotations contain no objects, so there is no AP",)
    if all(annotation.iscrowd for annotation in truth.annotations):
        return ("the annotations contain crowds only, which need not be detected, so there is no AP",)
    silent = images - len(np.unique(rows[:, IMAGE]))
    return (f"{silent} of {images} images have no detections; their objects count as missed",) if silent else ()


def _doubtful(accuracy: Accuracy, truth: Mapping[str, Any], rows: NDArray[np.float64], images: Sequence[int]) -> tuple[str, ...]:
    """Return why an AP near 0 is rather that of a misread file: the boxes read another way, where they score then."""
    objects = sum(not annotation["iscrowd"] for annotation in truth["annotations"])
    if accuracy.value >= accuracy_rules.IMPLAUSIBLE or objects < accuracy_rules.FEW or not len(rows):
        return ()
    about = f"AP {accuracy.value:.3f} on {objects} objects, and nothing in use is below {accuracy_rules.IMPLAUSIBLE}"
    best, name = 0.0, ""
    for other, read in coco.OTHER_BOX_FORMS.items():
        reread = rows.copy()
        reread[:, X : HEIGHT + 1] = read(rows[:, X : HEIGHT + 1])
        scored = coco_accuracy(truth, reread, images, "", parts="value")
        if scored is not None and scored.value > best:
            best, name = scored.value, other
    if best > max(2 * accuracy.value, accuracy_rules.IMPLAUSIBLE):
        return (f"{about}: as {name} the same boxes have AP {best:.3f}; {coco.BOX_FORM}",)
    return (f"{about}: are the boxes in pixels of the photograph, not of the model's input, and the categories those of the annotations?",)


def document(scored: AccuracyScores) -> dict[str, Any]:
    """Return the accuracy as plain data with short names; a figure is null where there is nothing to find."""
    accuracy = scored.accuracy
    verdict = {} if scored.verdict is None else {"verdict": scored.verdict.state, "reasons": list(scored.verdict.reasons)}
    if accuracy is None:
        figures: dict[str, Any] = dict.fromkeys(METRICS.values())
        counted = {"images": scored.images, "detections": scored.detections}
        return {**figures, **counted, "per_class": {}, **verdict, "warnings": list(scored.warnings)}
    fields = msgspec.to_builtins(accuracy)
    return {
        NAMES.get(accuracy.metric, accuracy.metric): accuracy.value,
        **accuracy.detail,
        **{key: fields[key] for key in ("low", "high", "interval", "interval_reason", "clusters")},
        **({} if accuracy.normalisation is None else {"normalisation": accuracy.normalisation}),
        "images": scored.images,
        **({} if scored.detections is None else {"detections": scored.detections}),
        "per_class": per_class(accuracy),
        **{key: fields[key] for key in ("by_objects", "group_metric", "groups", "group_gap", "robustness")},
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
    counted = f"{scored.images:,} images" + ("" if scored.detections is None else f", {scored.detections:,} detections")
    if (accuracy := scored.accuracy) is None:
        console.print(f"{counted}: no accuracy", highlight=False)
        return
    name = NAMES.get(accuracy.metric, accuracy.metric)
    # A figure's bounds stand beside it, not below it.
    named = [key for key in accuracy.detail if not key.endswith(("_low", "_high"))]
    bounds = {key: _bounds(accuracy.detail.get(f"{key}_low"), accuracy.detail.get(f"{key}_high")) for key in named}
    figures = [(name, accuracy.value, _bounds(accuracy.low, accuracy.high)), *((key, accuracy.detail[key], bounds[key]) for key in named)]
    console.print(_table(counted, ("", "", "95%"), [(metric_name(key), _figure(value), bound) for key, value, bound in figures]))
    if accuracy.interval:
        console.print(f"95%: {accuracy.interval.removeprefix('95%, ')}", markup=False, highlight=False)
    if accuracy.low is None and accuracy.interval_reason:
        console.print(f"no bounds of {metric_name(accuracy.metric)}: {accuracy.interval_reason}", markup=False, highlight=False)
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
    if accuracy.robustness:
        console.print(_corruptions(metric, accuracy.value, accuracy.robustness))


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


def _corruptions(metric: str, clean: float, robustness: Robustness) -> Table:
    headings = (f"{metric} at severity", "0", *(str(level + 1) for level in range(SEVERITIES)), "mean")
    rows = [
        (corruption.name, _figure(clean), *map(_figure, corruption.values), _figure(mean(corruption.values)))
        for corruption in robustness.corruptions
    ]
    drop = f"mean {_figure(robustness.mean_value)}, {_figure(robustness.drop_value)} below the clean {metric} (seed {robustness.seed})"
    return _table(drop, headings, rows)


def mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of the figures; None unless all are there."""
    figures = [value for value in values if value is not None]
    return sum(figures) / len(figures) if figures and len(figures) == len(values) else None


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
