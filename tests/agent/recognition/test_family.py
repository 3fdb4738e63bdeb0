"""Families from shapes: each known one, and what only looks like one."""

import pytest

from edgemeter.agent.recognition.family import UnknownFamilyError, find
from edgemeter.agent.recognition.self_description import SelfDescription
from tests.fixtures.vision_factory import tensors

SILENT = SelfDescription((), None, None, None, None)
SIZE = (640, 640)


def said(labels=0, task=None):
    """Return what a file says that names so many classes."""
    return SelfDescription(tuple(f"thing {i}" for i in range(labels)), None, task, None, None)


@pytest.mark.parametrize(
    ("shape", "size", "name", "words", "family", "classes"),
    [
        ((1, 84, 8400), SIZE, "m.onnx", SILENT, "yolov8", 80),
        ((1, 7, 84), (64, 64), "m.onnx", said(3), "yolov8", 3),
        ((1, 84, 4200), (320, 640), "yolo11n.tflite", SILENT, "yolov8", 80),
        ((1, 84, None), SIZE, "m.onnx", said(80, "detect"), "yolov8", 80),
        ((1, 84, None), SIZE, "yolov8n.onnx", SILENT, "yolov8", 80),
        ((1, 8400, 84), SIZE, "yolov8n.onnx", SILENT, "yolov8", 80),
        ((1, 8400, 84), SIZE, "m.onnx", said(80), "yolov8", 80),
        ((1, 25200, 85), SIZE, "m.onnx", SILENT, "yolov5", 80),
        ((1, 25500, 85), SIZE, "yolov5n6.onnx", SILENT, "yolov5", 80),
        ((1, None, 85), SIZE, "m.onnx", said(80), "yolov5", 80),
        ((1, 3549, 85), (416, 416), "yolox_nano.onnx", SILENT, "yolox", 80),
        ((1, 3549, 7), (416, 416), "m.onnx", SILENT, "yolox", 2),
        ((1, 1000), (224, 224), "m.onnx", SILENT, "classifier", 1000),
        ((1, 1001), (224, 224), "m.tflite", SILENT, "classifier", 1001),
        ((1, 1, 1, 1001), (224, 224), "m.tflite", SILENT, "classifier", 1001),
        ((None, 1000), (224, 224), "m.onnx", SILENT, "classifier", 1000),
        ((1, 5), (224, 224), "m.onnx", said(5), "classifier", 5),
    ],
)
def test_shapes_tell_the_family(shape, size, name, words, family, classes):
    """Fixed and open dimensions, either axis order, other strides."""
    found = find(tensors(shape), size, name, words)
    assert (found.name, found.classes) == (family, classes)


def test_yolov5_with_its_raw_maps_is_recognised():
    """Old exports give four outputs."""
    maps = [(1, 3, side, side, 85) for side in (80, 40, 20)]
    assert find(tensors((1, 25200, 85), *maps), SIZE, "m.onnx", SILENT).name == "yolov5"


@pytest.mark.parametrize(
    ("shapes", "words", "classes"),
    [
        ([(1, 10, 4), (1, 10), (1, 10), (1,)], SILENT, 90),
        ([(1, 25), (1, 25, 4), (1,), (1, 25)], said(90), 90),
        ([(1, 10, 4), (1, 10), (1, 10), (1,)], said(91), 90),
        ([(1, 10, 4), (1, 10), (1, 10), (1,)], said(3), 3),
        ([()] * 4, SILENT, 90),
    ],
)
def test_four_outputs_are_a_postprocess_model(shapes, words, classes):
    """In any order, and before the first call, when shapes read []; a label file of 91 lines begins with the background."""
    names = ["TFLite_Detection_PostProcess"] + [f"TFLite_Detection_PostProcess:{k}" for k in (1, 2, 3)]
    found = find(tensors(*shapes, names=names), (300, 300), "m.tflite", words)
    assert (found.name, found.classes) == ("tflite-postprocess", classes)
    assert (found.doubt is None) == bool(words.labels)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("yolov5n_640.torchscript.pt", "yolov5"),
        ("YOLOv7.pt", "yolov5"),
        ("yolo11s.torchscript", "yolov8"),
        ("yolov8n.pt", "yolov8"),
        ("yolox_s.pt", "yolox"),
    ],
)
def test_without_outputs_the_file_name_tells(name, family):
    """TorchScript declares nothing."""
    found = find([], SIZE, name, SILENT)
    assert (found.name, found.classes, found.why) == (family, 80, "the file name")
    assert "80 classes" in found.doubt
    assert find([], SIZE, name, said(3)).classes == 3


@pytest.mark.parametrize(
    ("shapes", "size", "name", "words", "why"),
    [
        ([(1, 300, 6)], SIZE, "yolo26n.onnx", SILENT, r"\[1, 300, 6\] on an input of 640 x 640"),
        ([(1, 116, 8400), (1, 32, 160, 160)], SIZE, "yolov8n-seg.onnx", SILENT, "no known family"),
        ([(1, 56, 8400)], SIZE, "yolov8n-pose.onnx", said(1, "pose"), "task is 'pose'"),
        ([(1, 56, 8400)], SIZE, "yolov8n-pose.onnx", said(1), "52 classes, but it names 1"),
        ([(1, 8400, 85)], SIZE, "yolov6n.onnx", SILENT, "no known family"),
        ([(1, 84, 8400)], (320, 320), "m.onnx", SILENT, "no known family"),
        ([(1, 1280)], (224, 224), "features.onnx", SILENT, "1280 values, which may be scores or features"),
        ([(1, 19248, 4), (1, 19248, 81)], SIZE, "m.onnx", SILENT, "no known family"),
        ([(1, 10), (1, 10), (1, 10), (1, 10)], SIZE, "m.tflite", SILENT, "no known family"),
        ([], SIZE, "model.pt", SILENT, "its file name tells no family"),
        ([], SIZE, "yolov8n-pose.pt", said(1, "pose"), "no family"),
        ([()], SIZE, "m.tflite", SILENT, "no known family"),
    ],
)
def test_what_only_looks_like_a_family_is_refused(shapes, size, name, words, why):
    """End-to-end heads, masks, poses, features, other inputs: no guess."""
    with pytest.raises(UnknownFamilyError, match=why):
        find(tensors(*shapes), size, name, words)
