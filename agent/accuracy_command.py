"""What `edgemeter accuracy` does: files in, one accuracy out, as a document."""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgemeter.agent import records
from edgemeter.agent.engine import isolation, job, suites
from edgemeter.agent.engine.verdict import accuracy_rules
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.vision import annotations as ground_truth
from edgemeter.agent.vision import box_form, coco_report, coco_results
from edgemeter.agent.vision.coco_ap import METRICS

# What the value of a metric is called beside its details.
NAMES = {coco_report.METRIC: "ap", "top1": "top1"}


@dataclass(frozen=True, slots=True)
class Scored:
    """What was scored: `accuracy` is None where the ground truth holds nothing to find.

    `detections` and `verdict` are those of a file and of a model, None of the other.
    """

    accuracy: records.Accuracy | None
    images: int
    detections: int | None
    warnings: tuple[str, ...]
    subset: records.Subset | None = None
    verdict: records.Verdict | None = None


def of_detections(annotations: Path, detections: Path, bounds: coco_report.Bounds) -> Scored:
    """Return the accuracy of detections in COCO's result format; every image of the annotations counts.

    Raises:
        EdgemeterError: a file is unreadable or the two do not belong together, or a library is missing.
    """
    document = ground_truth.read(annotations)
    if isinstance(document, dict):
        message = f"{str(annotations)!r} holds one class per file, detections are scored against boxes: give COCO annotations"
        raise ConfigError(message)
    rows = coco_results.read(detections, document)
    identity = hashlib.sha256(annotations.read_bytes()).hexdigest()
    images = [image.id for image in document.images]
    accuracy = coco_report.report(ground_truth.plain(document), rows, images, identity, bounds)
    warnings = (*ground_truth.oddities(document), *coco_results.oddities(rows), *_silent(rows, len(images), document))
    if accuracy is not None:
        warnings += _doubtful(accuracy, ground_truth.plain(document), rows, images)
    return Scored(accuracy, len(images), len(rows), warnings)


def of_model(case: suites.Case, tell: Callable[[job.Event], None]) -> Scored:
    """Return the accuracy of a model on its data set, without timing it, in a process of its own: a crash of a runtime ends only that.

    Raises:
        EdgemeterError: the model, the runtime or the data cannot be used, or there is no ground truth.
    """
    size = Path(case.model).stat().st_size
    work = job.Job(case=case, sha256=case.sha256 or "", size_bytes=size, seed=case.seed, accuracy=True, idle=False, spawned_ns=0)
    found = isolation.score(work, lambda event, _pid: tell(event))
    notes = dict.fromkeys((*found.notes, *(found.accuracy.warnings if found.accuracy else ())))
    return Scored(found.accuracy, found.images, None, tuple(notes), found.subset, _verdict(found))


def _verdict(found: job.Scored) -> records.Verdict:
    """Return whether the answers are worth an accuracy, by those rules of a run that look at nothing else."""
    broken = accuracy_rules.broken(found)
    states = [rule.state for rule, _ in broken]
    state: Literal["valid", "suspect", "invalid"] = "invalid" if "invalid" in states else "suspect" if states else "valid"
    return records.Verdict(state=state, reasons=tuple(f"{rule.name}: {evidence}" for rule, evidence in broken))


def _silent(rows: NDArray[np.float64], images: int, truth: ground_truth.Document) -> tuple[str, ...]:
    """Return what is missing, in words: images without detections count, and who does not know takes the figure for too low."""
    if not truth.annotations:
        return ("the annotations hold no objects: there is no AP",)
    if all(annotation.iscrowd for annotation in truth.annotations):
        return ("the annotations hold crowds only, which nobody has to find: there is no AP",)
    silent = images - len(np.unique(rows[:, coco_results.IMAGE]))
    return (f"{silent} of {images} images have no detections: they count",) if silent else ()


def _doubtful(accuracy: records.Accuracy, truth: Mapping[str, Any], rows: NDArray[np.float64], images: Sequence[int]) -> tuple[str, ...]:
    """Return why an AP near 0 is rather that of a misread file: the boxes read another way, where they score then."""
    objects = sum(not annotation["iscrowd"] for annotation in truth["annotations"])
    if accuracy.value >= accuracy_rules.IMPLAUSIBLE or objects < accuracy_rules.FEW or not len(rows):
        return ()
    about = f"AP {accuracy.value:.3f} on {objects} objects, and nothing in use is below {accuracy_rules.IMPLAUSIBLE}"
    best, name = 0.0, ""
    for other, read in box_form.OTHERS.items():
        reread = rows.copy()
        reread[:, coco_results.X : coco_results.HEIGHT + 1] = read(rows[:, coco_results.X : coco_results.HEIGHT + 1])
        scored = coco_report.value_only(truth, reread, images, "")
        if scored is not None and scored.value > best:
            best, name = scored.value, other
    if best > max(2 * accuracy.value, accuracy_rules.IMPLAUSIBLE):
        return (f"{about}: as {name} the same boxes have AP {best:.3f}; {box_form.FORM}",)
    return (f"{about}: are the boxes in pixels of the photograph, not of the model's input, and the categories those of the annotations?",)


def document(scored: Scored) -> dict[str, Any]:
    """Return the accuracy as plain data with short names; a figure is null where there is nothing to find."""
    one = scored.accuracy
    verdict = {} if scored.verdict is None else {"verdict": scored.verdict.state, "reasons": list(scored.verdict.reasons)}
    if one is None:
        figures: dict[str, Any] = dict.fromkeys(METRICS.values())
        counted = {"images": scored.images, "detections": scored.detections}
        return {**figures, **counted, "per_class": {}, **verdict, "warnings": list(scored.warnings)}
    whole = msgspec.to_builtins(one)
    return {
        NAMES.get(one.metric, one.metric): one.value,
        **one.detail,
        "low": one.low,
        "high": one.high,
        "interval": one.interval,
        "images": scored.images,
        **({} if scored.detections is None else {"detections": scored.detections}),
        "per_class": per_class(one),
        **{key: whole[key] for key in ("by_objects", "group_metric", "groups", "group_gap", "robustness")},
        "dataset_sha256": one.dataset_sha256,
        **({} if scored.subset is None else {"subset": msgspec.to_builtins(scored.subset)}),
        **verdict,
        "warnings": list(scored.warnings),
    }


def per_class(accuracy: records.Accuracy) -> dict[str, float | None]:
    """Return the figure of each class by its name; of several classes of one name the later ones are numbered."""
    seen: Counter[str] = Counter()
    named = {}
    for part in accuracy.per_class:
        seen[part.name] += 1
        named[part.name if seen[part.name] == 1 else f"{part.name} ({seen[part.name]})"] = part.value
    return named
