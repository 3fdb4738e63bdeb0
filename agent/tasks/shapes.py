"""Masks (instance segmentation) and keypoints (pose), scored by COCO's average precision."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.coco import Rle, shape_of
from edgemeter.agent.tasks.coco_matches import BOXES, KEYPOINTS, MASKS, ObjectKind
from edgemeter.agent.tasks.detection import Detection, by_boxes
from edgemeter.agent.tasks.mask_edges import Edges, edges_of, edges_of_outline, text_of
from edgemeter.agent.tasks.similarity import SIGMAS
from edgemeter.agent.vision.decoders import Detections, Mask

# COCO's keypoints of a person; the similarity has a tolerance for each.
COUNT = len(SIGMAS)
_SIGMAS = SIGMAS.astype(np.float32)


def by_keypoints(detections: Detections, index: int, other: Detections) -> NDArray[np.float32]:
    """Return the similarity (OKS) of a person's keypoints with those of others.

    The box stands for the person's area.
    """
    if (
        detections.keypoints is None
        or other.keypoints is None
        or detections.keypoints.shape[1] != COUNT
    ):
        return by_boxes(detections, index, other)
    sides = detections.boxes[index, 2:] - detections.boxes[index, :2]
    apart = np.square(detections.keypoints[index, :, :2] - other.keypoints[..., :2]).sum(axis=-1)
    return np.asarray(
        np.exp(-apart / (2 * np.square(2 * _SIGMAS) * max(float(sides.prod()), 1.0))).mean(axis=-1)
    )


def scored_shapes(
    kind: ObjectKind, truth: Mapping[str, Any], shapes: Iterable[tuple[str, int, Any]]
) -> list[Any]:
    """Return the shapes of (owner, image id, shape) for scoring, masks as edges.

    Raises:
        ConfigError: a shape does not fit.
    """
    sizes = {image["id"]: (image["height"], image["width"]) for image in truth["images"]}
    unsized = [number for number, size in sizes.items() if None in size]
    if kind is MASKS and unsized:
        raise ConfigError(
            f"image {unsized[0]} of the annotations has no width and height, and masks need "
            "them: add them"
        )
    return [
        _edges(shape, owner, sizes[image]) if kind is MASKS else _pose(shape, owner)
        for owner, image, shape in shapes
    ]


def with_shapes(kind: ObjectKind, truth: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return COCO's document as plain data with the annotations' shapes, unless boxes.

    The shapes are in the form of `scored_shapes`.
    """
    if kind is BOXES:
        return truth
    owned = (
        (f"annotation {each['id']}", each["image_id"], each.get(kind.key, UNSET))
        for each in truth["annotations"]
    )
    shapes = scored_shapes(
        kind,
        truth,
        ((owner, image, shape_of(owner, shape, kind.key)) for owner, image, shape in owned),
    )
    return {
        **truth,
        "annotations": [
            {**each, kind.key: shape}
            for each, shape in zip(truth["annotations"], shapes, strict=True)
        ],
    }


def _pose(points: Sequence[float], owner: str) -> Sequence[float]:
    if len(points) != 3 * COUNT:
        raise ConfigError(
            f"{owner} has {len(points)} numbers as keypoints, but COCO's poses have {COUNT} "
            "keypoints of three: give such poses"
        )
    return points


def _edges(outline: Any, owner: str, size: tuple[int, int]) -> Edges:
    if isinstance(outline, Rle) and outline.size != size:
        raise ConfigError(
            f"the mask of {owner} has {list(outline.size)} pixels, but its image {list(size)} "
            "(height, width): "
            "give masks of the whole image"
        )
    try:
        return edges_of_outline(outline, *size)
    except ValueError as error:
        raise ConfigError(
            f"the mask of {owner} cannot be read: {error}: export it again"
        ) from error


class Pose(Detection):
    """Keypoints of people."""

    KIND: ClassVar[ObjectKind] = KEYPOINTS
    similar = staticmethod(by_keypoints)

    def _read(self, truth: Mapping[str, Any]) -> Mapping[str, Any]:
        return with_shapes(KEYPOINTS, truth)

    def _shapes(self, _index: int, detections: Detections) -> Iterable[Any]:
        if detections.keypoints is None:
            raise ConfigError(
                f"family {self._model.family!r} finds boxes without keypoints: correct task or "
                "family in the card"
            )
        if (count := detections.keypoints.shape[1]) != COUNT:
            raise ConfigError(
                f"the model finds {count} keypoints, COCO's people have {COUNT}: its poses "
                "cannot be scored"
            )
        return detections.keypoints

    def _written(self, _index: int, shape: Any) -> list[float]:
        points: list[float] = np.asarray(shape, np.float64).ravel().tolist()
        return points


class Segmentation(Detection):
    """Masks, kept as edges, because masks would not fit into a board's memory."""

    KIND: ClassVar[ObjectKind] = MASKS

    def _read(self, truth: Mapping[str, Any]) -> Mapping[str, Any]:
        return with_shapes(MASKS, truth)

    def _shapes(self, index: int, detections: Detections) -> Iterable[Any]:
        if detections.masks is None:
            raise ConfigError(
                f"family {self._model.family!r} finds boxes without masks: correct task or "
                "family in the card"
            )
        return (self._edges_in_photo(index, mask) for mask in detections.masks)

    def _written(self, index: int, shape: Any) -> dict[str, Any]:
        height, width = self._frames[index].photo_height, self._frames[index].photo_width
        return {"size": [height, width], "counts": text_of(shape, height * width)}

    def _edges_in_photo(self, index: int, mask: Mask) -> Edges:
        pixels = np.zeros(
            (self._frames[index].photo_height, self._frames[index].photo_width), np.uint8
        )
        height, width = mask.pixels.shape
        pixels[mask.top : mask.top + height, mask.left : mask.left + width] = mask.pixels
        return edges_of(pixels)
