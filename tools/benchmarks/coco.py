"""COCO evaluation against pycocotools: as fast as wanted, and the same AP.

The made-up boxes are the same, and as dense as those of val2017. Both begin with the document and
the detections as plain data, and end with the twelve figures; ours also with the bounds of AP over
images, which take twenty evaluations more. Both compute in one thread and wait for nothing, so
processor time is judged: of the seconds that the peer takes, others get their part of a shared
machine.
"""

import statistics
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from io import StringIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.tasks.coco_matches import CocoAp
from tools.benchmarks.harness import Comparison, LeftOutError, Line, at_most, compared, in_turn

# A fifth of val2017, which has 5,000 images and 36,781 boxes; detectors give up to 100 detections
# an image.
IMAGES, OBJECTS, DETECTIONS, CATEGORIES = 1_000, 7_356, 100_000, 80
WIDTH, HEIGHT = 640.0, 480.0
SECONDS = 90.0
# An evaluation of ours is short beside the peer's.
OUR_EVALUATIONS = 9
RATIO = 0.005
EQUAL = 1e-9


def comparisons() -> Iterator[Comparison]:
    """Yield the time of an evaluation beside pycocotools'."""
    if find_spec("pycocotools") is None:
        raise LeftOutError("pycocotools is not installed (extra `dev`)")
    truth, rows = made_up(IMAGES, OBJECTS, DETECTIONS)
    figures, peer = _ours(truth, rows), "pycocotools without"
    line = Line(
        f"COCO evaluation with bounds, {IMAGES:,} images, {DETECTIONS:,} detections",
        "CPU s",
        peer,
        at_most(RATIO),
    )

    def our_s() -> float:
        return statistics.median(_timed_s(_ours, truth, rows)[0] for _ in range(OUR_EVALUATIONS))

    def peer_s() -> float:
        taken_s, peer_figures = _timed_s(_peer, truth, rows)
        if (apart := float(np.abs(np.subtract(figures, peer_figures)).max())) > EQUAL:
            raise ValueError(
                f"our twelve figures differ from pycocotools' by up to {apart:g}: their times "
                "cannot be compared"
            )
        return taken_s

    yield compared(line, in_turn(our_s, peer_s), SECONDS)


def made_up(
    images: int, objects: int, detections: int
) -> tuple[dict[str, Any], NDArray[np.float64]]:
    """Return a COCO document and detections [n, 7].

    A third of them is near an object, of its class mostly, the rest anywhere.
    """
    draw = np.random.default_rng(0)
    sides = np.exp(draw.uniform(np.log(8), np.log(300), (objects, 2)))
    corners = draw.random((objects, 2)) * ([WIDTH, HEIGHT] - sides)
    boxes = np.column_stack([corners, sides]).round(2)
    of_image, category = (
        draw.integers(1, images + 1, objects),
        np.minimum(draw.exponential(12, objects).astype(int), CATEGORIES - 1) + 1,
    )
    truth = {
        "images": [{"id": number} for number in range(1, images + 1)],
        "categories": [{"id": number, "name": str(number)} for number in range(1, CATEGORIES + 1)],
        "annotations": [
            {
                "id": number + 1,
                "image_id": int(of_image[number]),
                "category_id": int(category[number]),
                "bbox": boxes[number].tolist(),
                "area": float(sides[number].prod() * 0.6),
                "iscrowd": int(number % 80 == 0),
            }
            for number in range(objects)
        ],
    }
    near = draw.integers(0, objects, detections // 3)
    moved = boxes[near] + draw.normal(0, 0.08, (len(near), 4)) * np.tile(sides[near], 2)
    is_right = draw.random(len(near)) < 0.9
    classes = np.where(is_right, category[near], draw.integers(1, CATEGORIES + 1, len(near)))
    hits = np.column_stack(
        [
            of_image[near],
            moved[:, :2],
            np.maximum(moved[:, 2:], 1),
            draw.beta(3, 2, len(near)),
            classes,
        ]
    )
    remaining = detections - len(near)
    places, extents = draw.random((remaining, 2)) * 300, draw.uniform(5, 300, (remaining, 2))
    anywhere = [
        draw.integers(1, images + 1, remaining),
        places,
        extents,
        draw.beta(1, 6, remaining),
        draw.integers(1, CATEGORIES + 1, remaining),
    ]
    return truth, np.concatenate([hits, np.column_stack(anywhere)])


def _timed_s(
    evaluate: Any, truth: dict[str, Any], rows: NDArray[np.float64]
) -> tuple[float, list[float]]:
    begin = time.process_time()
    figures = evaluate(truth, rows)
    return time.process_time() - begin, figures


def _ours(truth: dict[str, Any], rows: NDArray[np.float64]) -> list[float]:
    scored, image_ids = CocoAp(truth, rows), [image["id"] for image in truth["images"]]
    if scored.ap.bounded(image_ids).low is None:
        raise ValueError("AP has no bounds")
    return [
        -1.0 if value is None else value for value in scored.figures(image_ids).overall.values()
    ]


def _peer(truth: dict[str, Any], rows: NDArray[np.float64]) -> list[float]:
    with redirect_stdout(StringIO()):
        coco_truth = import_module("pycocotools.coco").COCO()
        coco_truth.dataset = truth
        coco_truth.createIndex()
        evaluation = import_module("pycocotools.cocoeval").COCOeval(
            coco_truth, coco_truth.loadRes(rows), "bbox"
        )
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return [float(value) for value in evaluation.stats]
