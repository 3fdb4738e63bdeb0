"""`edgemeter.score`: the metric of a task over plain arrays, without a model or a file."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.suggestions import near
from edgemeter.agent.contract.model_card import CardOutput
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.datasets.clusters import Clusters
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.agent.datasets.dota import OrientedObject
from edgemeter.agent.datasets.items import Item, Kind
from edgemeter.agent.tasks.classification import class_accuracy
from edgemeter.agent.tasks.coco_ap import coco_accuracy
from edgemeter.agent.tasks.coco_matches import BOXES, KEYPOINTS, MASKS, CocoAp, ObjectKind
from edgemeter.agent.tasks.depth import depth_accuracy, depth_errors, protocol_of
from edgemeter.agent.tasks.mask_edges import edges_of
from edgemeter.agent.tasks.oriented_boxes import match, oriented_accuracy
from edgemeter.agent.tasks.parts import units_of
from edgemeter.agent.tasks.pixels import IGNORED, map_accuracy, pixel_counts
from edgemeter.agent.tasks.shapes import COUNT

Objects = Mapping[str, ArrayLike]
Items = Sequence[Any] | NDArray[Any]
Scorer = Callable[[Any, Any, Dataset, Mapping[str, Any]], Accuracy | None]


def score(
    task: str,
    predictions: Items,
    truth: Items,
    *,
    clusters: Sequence[object] | None = None,
    **settings: Any,
) -> Accuracy:
    """Score predictions against ground truth, both plain arrays or lists with one entry for each item.

    Args:
        task: name of the task: `classification`, `detection`, ... as in a model card.
        predictions: of each item: of classes a label or a row of scores; of anomalies a score; of speech and questions a text; of objects a
            dict of `boxes` [n, 4] (x1, y1, x2, y2 in pixels), `masks` [n, h, w], `keypoints` [n, 17, 3] or `corners` [n, 4, 2], with
            `scores` [n] and `labels` [n]; of pixels a map [h, w] of classes or depths.
        truth: the same of each item, without scores; of objects also `iscrowd` (of corners `difficult`) and `area` [n]; of questions a list
            of right answers, empty where there is none; in maps of classes 255, in maps of depths 0 does not count.
        clusters: what each item belongs to (a video, a speaker), for bounds over whole ones.
        settings: of `depth` what a card's `[output]` has
            (`depth="inverse"`, `depth_max_m`, `depth_crop`, ...) and `protocol` (`kitti`, `nyu`).

    Returns:
        The accuracy as in a record: `metric`, `value`, `better`, bounds `low` and `high`, `detail`, `per_class`.

    Raises:
        EdgemeterError: the arrays do not fit each other or the task, or hold nothing to find.
    """
    if task not in _SCORERS:
        raise ConfigError(f"no task is called {task!r}: {near(task, [*_SCORERS])}")
    if len(predictions) != len(truth):
        raise ConfigError(f"there are {len(predictions)} predictions and {len(truth)} items of ground truth: give one for each")
    accepted = {"depth": ("protocol", *CardOutput.__struct_fields__)}.get(task, ())
    if wrong := next((key for key in settings if key not in accepted), None):
        raise TypeError(f"unexpected keyword argument {wrong!r} for the task {task}")
    if clusters is not None and len(clusters) != len(truth):
        raise ConfigError(f"there are {len(clusters)} clusters and {len(truth)} items of ground truth: give one for each")
    names = [f"{index:08d}" for index in range(len(truth))]
    items = tuple(Item(name, Path(name), _ITEMS.get(task, "image")) for name in names)
    of_items = None if clusters is None else Clusters("clusters", dict(zip(names, map(str, clusters), strict=True)))
    data = Dataset("arrays", items, _hash(truth), clusters=of_items)
    try:
        accuracy = _SCORERS[task](predictions, truth, data, settings)
    except (ValueError, TypeError, KeyError, IndexError, msgspec.ValidationError) as error:
        raise ConfigError(f"the arrays are not those of the task {task}: {type(error).__name__}: {error}") from error
    if accuracy is None:
        raise ConfigError("the ground truth holds nothing to find (no object, one class only, nothing said): there is no accuracy")
    return accuracy


def _hash(truth: Any) -> str:
    total = hashlib.sha256()

    def add(value: Any) -> None:
        if isinstance(value, Mapping):
            for key in sorted(value):
                add(str(key))
                add(value[key])
        elif isinstance(value, list | tuple):
            total.update(f"{len(value)} ".encode())
            for each in value:
                add(each)
        else:
            array = np.asarray(value)
            total.update(f"{array.dtype.str} {array.shape} ".encode() + array.tobytes())

    add(truth)
    return total.hexdigest()


def _numbered(predictions: Items, truth: Items) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return labels as numbers, of any others by their order; rows of scores [n, classes] stay. Raises ValueError where they do not fit."""
    values, targets = np.asarray(predictions), np.asarray(truth)
    if targets.ndim != 1 or values.ndim not in (1, 2):
        raise ValueError("labels are [n], scores [n, classes]")
    if values.ndim == 2:
        targets = targets.astype(np.int64)
        if not ((targets >= 0) & (targets < values.shape[1])).all():
            raise ValueError(f"a class of the ground truth is not among the {values.shape[1]} that have scores")
        return values, targets
    if (values.dtype.kind in "iufb") != (targets.dtype.kind in "iufb"):
        raise ValueError("labels are numbers on one side, and words on the other")
    if targets.dtype.kind in "iufb":
        return values, targets
    names = np.unique(np.concatenate([targets, values]))
    return np.searchsorted(names, values), np.searchsorted(names, targets)


def _classes(predictions: Items, truth: Items, data: Dataset, _: Mapping[str, Any]) -> Accuracy | None:
    values, targets = _numbered(predictions, truth)
    ranked = np.argsort(-values, axis=1, kind="stable") if values.ndim == 2 else values[:, None]
    return class_accuracy(dict(enumerate(ranked.tolist())), targets.tolist(), data)


def _maps(predictions: Items, truth: Items, data: Dataset, _: Mapping[str, Any]) -> Accuracy | None:
    pairs = [(np.asarray(p, np.int64), np.asarray(t, np.int64)) for p, t in zip(predictions, truth, strict=True)]
    counted = [(p[t != IGNORED], t[t != IGNORED]) for p, t in pairs]
    count = 1 + max(int(max(p.max(initial=0), t.max(initial=0))) for p, t in counted)
    return map_accuracy({index: pixel_counts(p, t, count) for index, (p, t) in enumerate(counted)}, range(count), data)


def _depths(predictions: Items, truth: Items, data: Dataset, settings: Mapping[str, Any]) -> Accuracy | None:
    output = msgspec.convert({key: value for key, value in settings.items() if key != "protocol"}, CardOutput)
    protocol = protocol_of(output, [settings.get("protocol", "")])
    if protocol.name != settings.get("protocol", protocol.name):
        raise ConfigError(f"no protocol of depth is called {settings['protocol']!r}: give kitti or nyu, or depth_max_m and depth_crop")
    pairs = enumerate(zip(predictions, truth, strict=True))
    errors = {index: depth_errors(np.asarray(p, np.float64), np.asarray(t, np.float64), protocol) for index, (p, t) in pairs}
    return depth_accuracy({index: its for index, its in errors.items() if its is not None}, protocol, data)


def _oriented(predictions: Sequence[Objects], truth: Sequence[Objects], data: Dataset, _: Mapping[str, Any]) -> Accuracy | None:
    matched = {}
    for index, (predicted, annotated) in enumerate(zip(predictions, truth, strict=True)):
        corners = np.asarray(annotated["corners"], np.float64).reshape(-1, 4, 2).tolist()
        labels = [str(label) for label in np.asarray(annotated["labels"]).tolist()]
        difficult = np.asarray(annotated.get("difficult", np.zeros(len(labels)))).astype(bool).tolist()
        rows = zip(corners, labels, difficult, strict=True)
        objects = [OrientedObject(tuple((x, y) for x, y in its), label, is_difficult) for its, label, is_difficult in rows]
        names = [str(label) for label in np.asarray(predicted["labels"]).tolist()]
        boxes = np.asarray(predicted["corners"], np.float64).reshape(-1, 4, 2)
        matched[index] = match(boxes, np.asarray(predicted["scores"], np.float64), names, objects)
    classes = sorted({name for photograph in matched.values() for name in photograph.objects})
    return oriented_accuracy(matched, classes, data)


def _objects_of(kind: ObjectKind, key: str) -> Scorer:
    """Return what scores objects by their boxes, masks or keypoints, which stand under `key`."""

    def scored(predictions: Sequence[Objects], truth: Sequence[Objects], data: Dataset, _: Mapping[str, Any]) -> Accuracy | None:
        labels = sorted({label for objects in (*predictions, *truth) for label in np.asarray(objects["labels"]).tolist()})
        ids = {label: number for number, label in enumerate(labels, 1)}
        annotations: list[dict[str, Any]] = []
        rows: list[tuple[float, ...]] = []
        shapes: list[Any] = []
        for image, (predicted, annotated) in enumerate(zip(predictions, truth, strict=True)):
            sizes = {np.shape(objects["masks"])[1:] for objects in (annotated, predicted) if np.size(objects.get("masks", ()))}
            if len(sizes) > 1:
                raise ValueError(f"masks of one image differ in size: {sorted(sizes)}")
            for number, (label, part) in enumerate(_parts(annotated, key)):
                about = {"id": len(annotations) + 1, "image_id": image, "category_id": ids[label]}
                figures = {name: float(np.asarray(annotated[name]).ravel()[number]) for name in ("area", "iscrowd") if name in annotated}
                annotations.append({**about, **part, **figures, "iscrowd": int(figures.get("iscrowd", 0))})
            scores = np.asarray(predicted["scores"], np.float64).tolist()
            for value, (label, part) in zip(scores, _parts(predicted, key), strict=True):
                rows.append((image, *part["bbox"], value, ids[label]))
                shapes.append(part[kind.key])
        categories = [{"id": number, "name": str(label)} for label, number in ids.items()]
        names = {image: item.name for image, item in enumerate(data.items)}
        document = {"images": [{"id": image} for image in names], "annotations": annotations, "categories": categories}
        scored_objects = CocoAp(document, np.array(rows, np.float64).reshape(-1, 7), kind, shapes)
        return coco_accuracy(scored_objects, list(names), data.sha256, units=units_of(data.clusters, names))

    return scored


def _parts(objects: Objects, key: str) -> list[tuple[Any, dict[str, Any]]]:
    """Return the label of each object, and box, area and shape as COCO has them; the area is that of the mask, else of the box."""
    labels = np.asarray(objects["labels"]).tolist()
    boxes = np.zeros((len(labels), 4))
    if "boxes" in objects:
        boxes = np.asarray(objects["boxes"], np.float64).reshape(-1, 4)
    shapes: Any = boxes if key == "boxes" else np.asarray(objects[key])
    parts: list[tuple[Any, dict[str, Any]]] = []
    for label, (x1, y1, x2, y2), shape in zip(labels, boxes.tolist(), shapes, strict=True):
        part: dict[str, Any] = {"bbox": [x1, y1, x2 - x1, y2 - y1], "area": max(x2 - x1, 0.0) * max(y2 - y1, 0.0)}
        if key == "masks":
            part |= {"area": float(np.count_nonzero(shape)), "segmentation": edges_of(shape)}
        elif key == "keypoints":
            points = shape.astype(np.float64).reshape(COUNT, 3)
            labelled = points[points[:, 2] > 0, :2]
            if "boxes" not in objects and len(labelled):
                part["area"] = float(np.ptp(labelled, axis=0).prod())
            part["keypoints"] = points.ravel()
        parts.append((label, part))
    return parts


# The kind of a task's items, where they are no photographs.
_ITEMS: Mapping[str, Kind] = {
}  # fmt: skip
_SCORERS: Mapping[str, Scorer] = {
    "classification": _classes,
    "keyword-spotting": _classes,
    "detection": _objects_of(BOXES, "boxes"),
    "segmentation": _objects_of(MASKS, "masks"),
    "pose": _objects_of(KEYPOINTS, "keypoints"),
    "oriented-boxes": _oriented,
    "semantic-segmentation": _maps,
    "depth": _depths,
}
