"""Photograph to tensor without OpenCV, and tensor to boxes, on one thread.

The peers are the same with OpenCV, and OpenCV's routines.
"""

import time
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from edgemeter.agent import runtimes
from edgemeter.agent.contract import model_card
from edgemeter.agent.runtimes import Loaded, TensorInfo
from edgemeter.agent.vision import decoders, photograph, preprocess
from edgemeter.agent.vision.decoders import PhotoFrame
from edgemeter.agent.vision.preprocess import Preprocessor
from edgemeter.agent.vision.resize import Resize, fastest_resize, resize_bilinear
from tools.benchmarks.harness import (
    Comparison,
    LeftOutError,
    Line,
    at_most,
    compared,
    in_turn,
    real_models,
)

SIDE, SMALLER = 640, 320
PHOTOGRAPHS = 12
SECONDS = 8.0
LIMIT = 1.5
MODEL = "yolov8n.onnx"
IOU = 0.7
THRESHOLD = 0.25
INPUT = model_card.ImageInput(height=SIDE, width=SIDE, layout="NCHW", resize="letterbox")


def comparisons() -> Iterator[Comparison]:
    """Yield letterbox and normalise, from pixels and from files, and decode and suppress.

    Yields none where OpenCV is not installed.
    """
    if find_spec("cv2") is None:
        raise LeftOutError("OpenCV is not installed (extra `dev`)")
    models = real_models()
    cv2 = import_module("cv2")
    cv2.setNumThreads(1)
    images = models.parent / "images"
    as_wide = sorted((images / "coco_tiny_80").glob("*.jpg"))[:PHOTOGRAPHS]
    larger = sorted((images / "samples").glob("*.jpg"))
    # Photographs of COCO are as wide as the larger input, so that few are resized; each is for the
    # smaller.
    yield _without_opencv(as_wide, SIDE)
    yield _without_opencv([*as_wide, *larger], SMALLER)
    if find_spec("onnxruntime") is None:
        raise LeftOutError("ONNX Runtime is not installed")
    yield _decoding(cv2, list(_answers(models / MODEL, as_wide)))


def _without_opencv(files: list[Path], side: int) -> Comparison:
    image_input = model_card.ImageInput(height=side, width=side, layout="NCHW", resize="letterbox")
    preprocessor = Preprocessor(image_input, TensorInfo("images", (1, 3, side, side), "float32"))
    photos = [photograph.read(file) for file in files]

    def with_resize(resize: Resize) -> Callable[[], list[Any]]:
        def tensors() -> list[Any]:
            with patch.object(preprocess, "fastest_resize", lambda: resize):
                return [preprocessor.load_photo(photo)[0] for photo in photos]

        return tensors

    line = Line(
        f"letterbox and normalise without OpenCV, {len(files)} photographs to {side} px",
        "ms",
        "ours with OpenCV",
        at_most(LIMIT),
    )
    return _compared(line, with_resize(resize_bilinear), with_resize(fastest_resize()), len(files))


def _answers(model: Path, files: list[Path]) -> Iterator[tuple[np.ndarray, PhotoFrame]]:
    """Yield the model's tensor for each photograph, and how the photograph lies in its input."""
    preprocessor = Preprocessor(INPUT, TensorInfo("images", (1, 3, SIDE, SIDE), "float32"))
    runtime = runtimes.create("onnx")
    try:
        runtime.load(model, runtimes.Options())
        for file in files:
            tensor, frame = preprocessor.load(file)
            runtime.bind([tensor])()
            yield runtime.outputs()[0], frame
    finally:
        runtime.close()


def _decoding(cv2: Any, answers: list[tuple[np.ndarray, PhotoFrame]]) -> Comparison:
    name = f"decode and suppress, YOLOv8 at {SIDE} px, score > {THRESHOLD:g}"
    card = model_card.Card(
        name="bench",
        task="detection",
        family="yolov8",
        precision="fp32",
        input=INPUT,
        output=model_card.CardOutput(classes=80, nms_iou=IOU, score_threshold=THRESHOLD),
    )
    decoder = decoders.create(card, Loaded("none", "0", "cpu", (), (), {}, 0, 0))

    def our_boxes() -> list[Any]:
        return [decoder.decode([tensor], frame) for tensor, frame in answers]

    def peer() -> list[Any]:
        return [_suppressed(cv2, tensor, frame) for tensor, frame in answers]

    line = Line(name, "ms", "the best class per anchor, cv2.dnn.NMSBoxesBatched", at_most(1.0))
    return _compared(line, our_boxes, peer, len(answers))


def _suppressed(cv2: Any, tensor: Any, frame: PhotoFrame) -> tuple[Any, Any, Any]:
    """Return boxes in the photograph, scores and classes as users write it.

    They score one class an anchor, where ours scores every class.
    """
    rows = tensor[0].T
    best = rows[:, 4:].max(axis=1)
    is_above = best > THRESHOLD
    rows, best = rows[is_above], best[is_above]
    classes = rows[:, 4:].argmax(axis=1).astype(np.int32)
    corners = np.concatenate([rows[:, :2] - rows[:, 2:4] / 2, rows[:, 2:4]], axis=1)
    selected = np.asarray(
        cv2.dnn.NMSBoxesBatched(corners, best, classes, THRESHOLD, IOU), np.int64
    ).ravel()[:300]
    boxes = (corners[selected] - [frame.offset_x, frame.offset_y, 0, 0]) / (
        [frame.scale_x, frame.scale_y] * 2
    )
    return boxes, best[selected], classes[selected]


def _compared(
    line: Line, measured: Callable[[], object], peer: Callable[[], object], photographs: int
) -> Comparison:
    def ms(work: Callable[[], object]) -> float:
        begin = time.perf_counter_ns()
        work()
        return (time.perf_counter_ns() - begin) / 1e6 / photographs

    return compared(line, in_turn(lambda: ms(measured), lambda: ms(peer)), SECONDS)
