"""Detection: boxes in photographs, scored by COCO's average precision.

The base of masks and keypoints is here too.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import Card, CardOutput
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.agent.runtimes import Loaded, with_batch_of_1
from edgemeter.agent.tasks import Inputs, Outputs, Parts
from edgemeter.agent.tasks.class_fit import category_ids
from edgemeter.agent.tasks.coco_accuracy import coco_accuracy
from edgemeter.agent.tasks.coco_matches import BOXES, KEYPOINTS, CocoAp, ObjectKind
from edgemeter.agent.tasks.photo_items import PhotoTask
from edgemeter.agent.vision.decoders import Detections, create
from edgemeter.agent.vision.preprocess import values_of_first

# The usual threshold of detectors in use.
SHOWN_SCORE = 0.25
# A box just below the threshold on one side may match a shown box of the other.
PARTNER_SCORE = 0.15
# The best boxes of a photograph, above noise, decide whether boxes have an extent.
BEST_BOXES, NOISE_SCORE = 10, 0.05
# Detectors find no smaller objects, in pixels of the input.
LEAST_EXTENT_PX = 2.0
# COCO's loosest match.
SAME_IOU = 0.5
# The most detections of a class in a photograph that COCO counts. Source: cocoapi `cocoeval.py`,
# `maxDets`.
COUNTED = 100
# The similarity (0..1) of one object, by index, with all of another output: float32 [n].
Similarity = Callable[[Detections, int, Detections], NDArray[np.float32]]


def by_boxes(detections: Detections, index: int, other: Detections) -> NDArray[np.float32]:
    """Return the overlap (intersection over union) of the box with the others."""
    box, boxes = detections.boxes[index], other.boxes
    sides = np.clip(np.minimum(box[2:], boxes[:, 2:]) - np.maximum(box[:2], boxes[:, :2]), 0, None)
    shared = sides.prod(axis=1)
    union = (box[2:] - box[:2]).prod() + (boxes[:, 2:] - boxes[:, :2]).prod(axis=1) - shared
    return np.asarray(np.divide(shared, union, out=np.zeros_like(shared), where=union > 0))


def matched_ratio(
    detections: Detections, other: Detections, similar: Similarity = by_boxes
) -> float | None:
    """Return the share (0..1) of the shown objects of both sides that have a match.

    The match is on the other side; the share is None if there are no objects.
    """
    are_shown = detections.scores >= SHOWN_SCORE, other.scores >= SHOWN_SCORE
    total = int(are_shown[0].sum() + are_shown[1].sum())
    if total == 0:
        return None
    matched = _matched(detections, are_shown[0], other, similar) + _matched(
        other, are_shown[1], detections, similar
    )
    return matched / total


def _matched(
    detections: Detections, are_shown: NDArray[np.bool_], other: Detections, similar: Similarity
) -> int:
    """Return the number of shown boxes with a match.

    A match has the same class and enough overlap; each box gets the best one left.
    """
    free = other.scores >= PARTNER_SCORE
    matched = 0
    for index in np.nonzero(are_shown)[0]:
        overlap = np.where(
            free & (other.classes == detections.classes[index]),
            similar(detections, int(index), other),
            0.0,
        )
        if overlap.size and overlap.max() >= SAME_IOU:
            free[overlap.argmax()] = False
            matched += 1
    return matched


class Detection(PhotoTask):
    """Decodes the outputs of each photograph, and scores all detections."""

    KIND: ClassVar[ObjectKind] = BOXES
    similar = staticmethod(by_boxes)

    def __init__(self, model: Card, loaded: Loaded, data: Dataset) -> None:
        if data.has_truth and data.truth is None:
            truth_kind = (
                "one class per photograph" if data.classes is not None else "that of another task"
            )
            raise ConfigError(
                f"model {model.name!r} finds objects, the ground truth of {data.name!r} is "
                f"{truth_kind}: give COCO annotations"
            )
        super().__init__(model, loaded, data)
        self._decoder = create(model, with_batch_of_1(loaded))
        self._boxes: dict[int, Detections] = {}
        # The shapes to score, unless these are boxes.
        self._predictions: dict[int, Sequence[Any]] = {}
        # Photographs with as many detections as the card allows.
        self._full: set[int] = set()
        self._truth = None if data.truth is None else self._read(data.truth)
        truth = data.truth or {"images": (), "categories": ()}
        self._categories = (
            category_ids(model, truth["categories"], loaded.outputs, truth.get("groupings", ()))
            if data.truth
            else ()
        )
        self._images = {image["id"]: image for image in truth["images"]}

    def prepare(self, index: int) -> Sequence[Inputs]:
        """Return the one call for photograph `index`, whose size must be the annotated one."""
        calls = super().prepare(index)
        if self._data.image_ids is not None:
            image, frame = self._images[self._data.image_ids[index]], self._frames[index]
            annotated = image["width"], image["height"]
            if None not in annotated and annotated != (frame.photo_width, frame.photo_height):
                raise ConfigError(
                    f"the annotations are for {self._data.items[index].name!r} at {annotated[0]} "
                    f"x {annotated[1]}, it is "
                    f"{frame.photo_width} x {frame.photo_height} (upright): give the photographs "
                    "they were made for"
                )
        return calls

    def predict(self, index: int, calls: Sequence[Outputs]) -> NDArray[np.float32]:
        """Decode and keep the detections of photograph `index`; return their scores.

        The photograph was prepared before; the scores are float32 [n].
        """
        detections = self._decode(index, calls)
        self._predictions[index] = self._kept(index, detections)
        if len(detections.scores) >= self._model.output.max_detections:
            self._full.add(index)
        return detections.scores

    def same_predictions(
        self, index: int, calls: Sequence[Outputs], other: Sequence[Outputs]
    ) -> float | None:
        """Return the share of the objects in two raw outputs that have a match in the other.

        It is None if there are no objects.
        """
        return matched_ratio(self._decode(index, calls), self._decode(index, other), self.similar)

    def _decode(self, index: int, calls: Sequence[Outputs]) -> Detections:
        return self._decoder.decode(values_of_first(calls[0], self._loaded), self._frames[index])

    def score(self, parts: Parts = "all") -> Accuracy | None:
        """Return COCO AP over all decoded photographs.

        It is None without ground truth, or without objects in it.
        """
        truth, image_ids = self._truth, self._data.image_ids
        if truth is None or image_ids is None or not self._predictions:
            return None
        decoded = sorted(self._predictions)
        rows = np.concatenate(
            [self._rows(image_ids[index], self._boxes[index]) for index in decoded]
        )
        shapes = [shape for index in decoded for shape in self._predictions[index]]
        names = {image_ids[index]: self._data.items[index].name for index in decoded}
        copies = {image_ids[index]: image_ids[first] for index, first in self._data.copies.items()}
        accuracy = coco_accuracy(
            CocoAp(truth, rows, self.KIND, shapes), list(names), self._data.sha256, parts, copies
        )
        if accuracy is None:
            return None
        return msgspec.structs.replace(
            accuracy, warnings=(*self._data.warnings, *accuracy.warnings, *self._cut_early())
        )

    def _cut_early(self) -> tuple[str, ...]:
        """Return a warning if the card cuts off detections.

        It allows fewer than usual then, and some photographs have that many.
        """
        limit = self._model.output.max_detections
        if (
            not self._full
            or self.KIND is KEYPOINTS
            or limit >= min(CardOutput().max_detections, COUNTED * len(self._categories))
        ):
            return ()
        return (
            (
                f"AP may be too low: the card keeps {limit} detections of a photograph, which "
                f"{len(self._full)} of {len(self._predictions)} photographs have, and COCO counts "
                f"{COUNTED} of each class: remove output.max_detections"
            ),
        )

    def box_extents(self) -> tuple[int, int]:
        """Return the number of photographs with boxes that count, and of those without extent.

        The latter are the photographs whose best boxes mostly have no extent.
        """
        are_flat = [
            self._are_flat(index, boxes)
            for index, boxes in self._boxes.items()
            if boxes.scores.max(initial=0.0) >= NOISE_SCORE
        ]
        return len(are_flat), sum(are_flat)

    def _are_flat(self, index: int, detections: Detections) -> bool:
        frame, best = (
            self._frames[index],
            detections.boxes[:BEST_BOXES][detections.scores[:BEST_BOXES] >= NOISE_SCORE],
        )
        inside = np.clip(best, 0, [frame.photo_width, frame.photo_height] * 2)
        sides_px = (inside[:, 2:] - inside[:, :2]) * [frame.scale_x, frame.scale_y]
        are_flat = (sides_px.max(axis=1) < LEAST_EXTENT_PX) | (sides_px.min(axis=1) <= 0)
        return bool(are_flat.mean() > 0.5)

    def results(self) -> list[dict[str, Any]]:
        """Return the COCO results of all decoded photographs in scoring order.

        There must be ground truth.
        """
        image_ids, results = self._data.image_ids or (), []
        for index in sorted(self._boxes):
            rows = self._rows(image_ids[index], self._boxes[index]).tolist()
            written_id = self._images[image_ids[index]].get("text_id") or image_ids[index]
            for (_, *box, score, category), shape in zip(
                rows, self._predictions[index] or repeat(None), strict=False
            ):
                result = {
                    "image_id": written_id,
                    "category_id": int(category),
                    "bbox": box,
                    "score": score,
                }
                results.append(
                    result
                    if shape is None
                    else {**result, self.KIND.key: self._written(index, shape)}
                )
        return results

    def _written(self, _index: int, shape: Any) -> Any:
        """Return a shape in the form of COCO's results."""
        return shape

    def _kept(self, index: int, detections: Detections) -> Sequence[Any]:
        """Keep the boxes of one photograph, and return the shapes to score.

        They are the shapes of objects with a category of the annotations.
        """
        self._boxes[index] = replace(detections, masks=None, keypoints=None)
        shapes = self._shapes(index, detections)
        if self._truth is None or self.KIND is BOXES:
            return ()
        return [
            shape
            for shape, is_known in zip(shapes, self._known(detections)[0], strict=True)
            if is_known
        ]

    def _shapes(self, _index: int, _detections: Detections) -> Iterable[Any]:
        """Return the shapes of the objects, none for boxes.

        Raises:
            ConfigError: the shapes are missing.
        """
        return ()

    def _read(self, truth: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the ground truth with its shapes, if the kind has any."""
        return truth

    def _rows(self, image_id: int, detections: Detections) -> NDArray[np.float64]:
        """Return a row [n, 7] for each detection, without classes that have no category.

        A row is image id, x, y, width, height, score and category id.
        """
        have_category, ids = self._known(detections)
        boxes = detections.boxes[have_category].astype(np.float64)
        return np.column_stack(
            [
                np.full(len(ids), image_id),
                boxes[:, :2],
                boxes[:, 2:] - boxes[:, :2],
                detections.scores[have_category],
                ids,
            ]
        )

    def _known(self, detections: Detections) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Return which objects have a category of the annotations, bool [n], and its ids.

        The ids of these categories are int64.
        """
        unknown = [
            k for k in np.unique(detections.classes).tolist() if not 0 <= k < len(self._categories)
        ]
        if unknown:
            raise ConfigError(
                f"the model found class {unknown[0]}, its card has {len(self._categories)} "
                "classes: correct output.classes"
            )
        have_category = np.array([category is not None for category in self._categories], np.bool_)[
            detections.classes
        ]
        return have_category, np.array([category or 0 for category in self._categories], np.int64)[
            detections.classes[have_category]
        ]
