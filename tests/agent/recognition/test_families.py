"""Families from shapes: each known one, and what only looks like one."""

import pytest

from edgemeter.agent.recognition.metadata import SelfDescription, family_in, task_of
from edgemeter.agent.recognition.recognise import UnknownFamilyError, recognised_family
from edgemeter.agent.runtimes import TensorInfo
from edgemeter.agent.vision.decoders.family import UnknownModel
from tests.fixtures.rows import table_row
from tests.fixtures.vision_factory import tensors

SILENT = SelfDescription((), None, None, None, None)
SIZE = (640, 640)


def described(labels=0, task=None):
    """Return what a file says that names so many classes."""
    return SelfDescription(tuple(f"thing {i}" for i in range(labels)), None, task, None, None)


def family_from(outputs, size, name, words):
    """Return the family of a model with these outputs, input size, file name and metadata."""
    return recognised_family(
        UnknownModel(
            name, (), outputs, size, family_in(name, words), words.labels, task_of(name, words)
        )
    )


def test_shapes_determine_the_family():
    """Fixed and open dimensions, either axis order and other strides are recognised."""
    for shape, size, name, words, family, classes in [
        ((1, 84, 8400), SIZE, "m.onnx", SILENT, "yolov8", 80),
        ((1, 7, 84), (64, 64), "m.onnx", described(3), "yolov8", 3),
        ((1, 84, 4200), (320, 640), "yolo11n.tflite", SILENT, "yolov8", 80),
        ((1, 84, None), SIZE, "m.onnx", described(80, "detect"), "yolov8", 80),
        ((1, 84, None), SIZE, "yolov8n.onnx", SILENT, "yolov8", 80),
        ((1, 8400, 84), SIZE, "yolov8n.onnx", SILENT, "yolov8", 80),
        ((1, 25200, 85), SIZE, "m.onnx", SILENT, "yolov5", 80),
        ((1, 25500, 85), SIZE, "yolov5n6.onnx", SILENT, "yolov5", 80),
        ((1, None, 85), SIZE, "m.onnx", described(80), "yolov5", 80),
        ((1, 3549, 85), (416, 416), "yolox_nano.onnx", SILENT, "yolox", 80),
        ((1, 3549, 7), (416, 416), "m.onnx", SILENT, "yolox", 2),
        ((1, 8400, 85), SIZE, "yolov6n.onnx", SILENT, "yolov5", 80),
        ((1, 8400, 84), SIZE, "m.onnx", SILENT, "yolov8", 80),
        ((1, 300, 6), SIZE, "m.onnx", SILENT, "yolo26", 80),
        ((1, 300, 6), SIZE, "yolov8n.onnx", described(3), "yolo26", 3),
        ((1, None, 6), None, "yolo26n.onnx", SILENT, "yolo26", 80),
        ((1, 25200, 6), SIZE, "m.onnx", SILENT, "yolov5", 1),
        ((1, 300, 84), SIZE, "rtdetr-l.onnx", SILENT, "rt-detr", 80),
        ((1, 1000), (224, 224), "m.onnx", SILENT, "classifier", 1000),
        ((1, 102), (224, 224), "mobilenet_v2_flowers.tflite", SILENT, "classifier", 102),
        ((1, 1, 1, 1001), (224, 224), "m.tflite", SILENT, "classifier", 1001),
        ((1, 5), (224, 224), "m.onnx", described(5), "classifier", 5),
    ]:
        recognised = family_from(tensors(shape), size, name, words)
        assert (recognised.name, recognised.recognition.classes) == (family, classes), (
            f"{shape!r}, {size!r}, {name!r}"
        )


def test_several_outputs_determine_the_family():
    """Sets, lists and maps are recognised in any order.

    What the file does not name is reported, with the key of the card.
    """
    for shapes, name, words, family, classes in [
        (
            [(1, 25200, 85), *((1, 3, side, side, 85) for side in (80, 40, 20))],
            "m.onnx",
            described(80),
            "yolov5",
            80,
        ),
        ([(None, 4), (None,), (None,)], "m.onnx", SILENT, "torchvision", 90),
        ([(100,), (100,), (100, 4)], "ssd.onnx", SILENT, "torchvision", 90),
        ([(1, None, 4), (1, None), (1, None)], "m.onnx", described(91), "torchvision", 90),
        (
            [(None, 4), (None,), (None,), (None, 1, 28, 28)],
            "maskrcnn.onnx",
            described(3),
            "torchvision",
            3,
        ),
    ]:
        recognised = family_from(tensors(*shapes), SIZE, name, words)
        assert (recognised.name, recognised.task, recognised.recognition.classes) == (
            family,
            "detection",
            classes,
        ), f"{shapes!r}, {name!r}"
        assert words.labels or any(
            "output.classes" in doubt for doubt in recognised.recognition.doubts
        ), f"{shapes!r}, {name!r}"


def test_what_a_file_declares_of_its_head_counts_more_than_its_name():
    """Ultralytics 8.4 declares whether a head suppresses, and YOLO26 comes in both forms.

    Its dynamic exports show no size at all.
    """
    for shape, name, end_to_end, head, family in [
        ((1, 84, 2100), "yolo26n.onnx", False, "Detect", "yolov8"),
        ((1, 300, 6), "yolo26n.onnx", True, "Detect", "yolo26"),
        ((1, 300, 6), "best.onnx", False, "RTDETRDecoder", "rt-detr"),
        ((None, None, None), "best.onnx", False, "Detect", "yolov8"),
        ((None, None, None), "yolo26n.onnx", True, "Detect", "yolo26"),
        ((None, None, None), "rtdetr.onnx", False, "RTDETRDecoder", "rt-detr"),
        (None, "yolo26n.torchscript", False, "Detect", "yolov8"),
        (None, "yolo26n.torchscript", True, "Detect", "yolo26"),
    ]:
        words = SelfDescription(
            tuple(f"thing {i}" for i in range(80)), None, "detect", None, None, head, end_to_end
        )
        recognised = family_from(tensors(shape) if shape else [], (320, 320), name, words)
        assert (recognised.name, recognised.recognition.classes) == (family, 80), (
            f"{shape!r}, {name!r}, {end_to_end!r}, {head!r}"
        )


def test_look_alikes_are_doubted_with_the_key_that_settles_it():
    """A shape that fits several families gives a report of what was assumed.

    The report says which key settles it.
    """
    for shape, key in [
        ((1, 8400, 84), "`family`"),
        ((1, 8400, 85), "input.colour"),
        ((1, 300, 84), "`family`"),
        ((1, 300, 6), "output.labels"),
    ]:
        assert any(
            key in doubt
            for doubt in family_from(tensors(shape), SIZE, "m.onnx", SILENT).recognition.doubts
        ), f"{shape!r}"
        assert (
            family_from(tensors((1, 84, 8400)), SIZE, "m.onnx", SILENT).recognition.doubts == ()
        ), f"{shape!r}"


def test_four_outputs_are_a_postprocess_model():
    """The outputs may be in any order, and their shapes read [] before the first call.

    A label file of 91 lines begins with the background.
    """
    for shapes, words, classes in [
        ([(1, 10, 4), (1, 10), (1, 10), (1,)], SILENT, 90),
        ([(1, 25), (1, 25, 4), (1,), (1, 25)], described(90), 90),
        ([(1, 10, 4), (1, 10), (1, 10), (1,)], described(91), 90),
        ([(1, 10, 4), (1, 10), (1, 10), (1,)], described(3), 3),
        ([()] * 4, SILENT, 90),
    ]:
        names = ["TFLite_Detection_PostProcess"] + [
            f"TFLite_Detection_PostProcess:{k}" for k in (1, 2, 3)
        ]
        recognised = family_from(tensors(*shapes, names=names), (300, 300), "m.tflite", words)
        assert (recognised.name, recognised.recognition.classes) == (
            "tflite-postprocess",
            classes,
        ), f"{shapes!r}"
        assert (recognised.recognition.doubts == ()) == bool(words.labels), f"{shapes!r}"


def test_tensorflows_own_graphs_count_classes_from_one():
    """In a saved model converted by tf2onnx, class 1 is COCO's id 1 and class 0 is nothing.

    TFLite's operator subtracts 1.
    """
    for name, classes in [("ssd.onnx", 91), ("ssd.tflite", 90)]:
        shapes = {
            "num_detections:0": (None,),
            "detection_boxes:0": (None, None, 4),
            "detection_scores:0": (None, None),
        }
        outputs = [TensorInfo(key, shape, "float32") for key, shape in shapes.items()]
        recognised = family_from(
            [*outputs, TensorInfo("detection_classes:0", (None, None), "float32")],
            (300, 300),
            name,
            SILENT,
        )
        assert (recognised.name, recognised.recognition.classes) == (
            "tflite-postprocess",
            classes,
        ), f"{name!r}"


def test_without_outputs_the_file_name_determines_the_family():
    """TorchScript declares no outputs, so its file name gives the family and the classes.

    Without named classes there is a doubt.
    """
    for name, family in [
        ("yolov5n_640.torchscript.pt", "yolov5"),
        ("yolov5nu.pt", "yolov8"),
        ("yolov10n.torchscript", "yolo26"),
        ("rtdetr-l.torchscript", "rt-detr"),
    ]:
        with table_row(name):
            recognised = family_from([], SIZE, name, SILENT)
            assert (recognised.name, recognised.recognition.classes, recognised.why) == (
                family,
                80,
                "the file name",
            )
            assert "80 classes" in recognised.recognition.doubts[0]
            assert "output.classes" in recognised.recognition.doubts[0]
            assert family_from([], SIZE, name, described(3)).recognition.classes == 3


def test_what_only_resembles_a_family_is_refused():
    """End-to-end heads, masks, poses, features and other inputs lead to no guess."""
    for shapes, size, name, words, why in [
        ([(1, 116, 8400), (1, 32, 160, 160)], SIZE, "m.onnx", SILENT, "no known family"),
        (
            [(1, 56, 8400)],
            SIZE,
            "yolov8n-pose.onnx",
            described(3, "pose"),
            "yolo-pose with 1 classes, but it names 3",
        ),
        ([(1, 56, 8400)], SIZE, "m.onnx", described(1), "52 classes, but it names 1"),
        ([(1, 300, 7)], SIZE, "m.onnx", SILENT, r"\[1, 300, 7\] on an input of 640 x 640"),
        ([(1, 84, 8400)], (320, 320), "m.onnx", SILENT, "no known family"),
        (
            [(1, 1280)],
            (224, 224),
            "features.onnx",
            SILENT,
            r"\[1, 1280\] on an input of 224 x 224 fits no known family",
        ),
        ([(1, 7)], (224, 224), "m.onnx", described(3), "no known family"),
        (
            [(1, 19248, 4), (1, 19248, 81), (1, 19248, 32), (1, 32, 138, 138)],
            (550, 550),
            "yolact.onnx",
            SILENT,
            "no known family",
        ),
        ([], SIZE, "model.pt", SILENT, "its file name contains no known family"),
        ([], None, "yolov8n-pose.torchscript", SILENT, "the task 'pose'"),
        ([()], SIZE, "m.tflite", SILENT, "no known family"),
    ]:
        with table_row(shapes, name), pytest.raises(UnknownFamilyError, match=why):
            family_from(tensors(*shapes), size, name, words)


def test_a_head_for_another_task_is_not_taken_for_a_detector_without_a_question_mark():
    """Heads of poses, oriented boxes, masks and landmarks have more columns in the same rows.

    No metadata names their classes or task.
    """
    for shape, name, said_of_it in [
        ((1, 56, 8400), "m.onnx", "yolov8 with 52 classes, or one class and 17 keypoints?"),
        ((1, 20, 8400), "m.onnx", "yolov8 with 16 classes?"),
        (
            (1, 25200, 57),
            "yolov7-w6.onnx",
            "yolov5 with 52 classes, or one class and 17 keypoints?",
        ),
        ((1, 25200, 16), "m.onnx", "yolov5 with 11 classes?"),
    ]:
        with table_row(shape, name):
            recognised = family_from(tensors(shape), SIZE, name, SILENT)
            assert (recognised.recognition.family_doubt or "").startswith(said_of_it)
            assert "set `task`" in (recognised.recognition.family_doubt or "")
            assert not any("those of COCO" in doubt for doubt in recognised.recognition.doubts)


def test_named_classes_a_stated_task_or_cocos_80_leave_no_question():
    """Each of these confirms what the file is."""
    for shape, words in [
        ((1, 84, 8400), SILENT),
        ((1, 25200, 85), SILENT),
        ((1, 56, 8400), described(52)),
        ((1, 7, 8400), described(0, "detect")),
    ]:
        assert (
            family_from(tensors(shape), SIZE, "m.onnx", words).recognition.family_doubt is None
        ), f"{shape!r}"


LISTS = ((1, 1), (1, 100, 4), (1, 100), (1, 100))
OF_EXPORTERS = ("num_dets", "det_boxes", "det_scores", "det_classes")


def outputs_of(names, shapes=LISTS, integers=(0, 3)):
    return [
        TensorInfo(name, shape, "int32" if k in integers else "float32")
        for k, (name, shape) in enumerate(zip(names, shapes, strict=True))
    ]


def test_lists_with_an_integer_count_are_labelled_lists():
    """Labels may be declared as floats.

    TensorFlow's own graphs, with y first, are recognised by their names.
    """
    for names, integers, family in [
        (OF_EXPORTERS, (0, 3), "detr-lists"),
        (("a", "b", "c", "d"), (0,), "detr-lists"),
        (
            ("num_detections", "detection_boxes", "detection_scores", "detection_classes"),
            (0,),
            "tflite-postprocess",
        ),
    ]:
        with table_row(names, integers):
            shapes = LISTS if family == "detr-lists" else ((1,), *LISTS[1:])
            assert (
                family_from(outputs_of(names, shapes, integers), SIZE, "m.onnx", described(3)).name
                == family
            )


def test_other_lists_stay_what_they_are():
    """Lists without a count, or with floats throughout, are not labelled lists."""
    for outputs, family in [
        (
            outputs_of(("boxes", "labels", "scores"), ((100, 4), (100,), (100,)), integers=(1,)),
            "torchvision",
        ),
        (
            outputs_of(
                ("boxes", "labels", "scores", "masks"),
                ((100, 4), (100,), (100,), (100, 1, 28, 28)),
                integers=(1,),
            ),
            "torchvision",
        ),
        (outputs_of(("a", "b", "c", "d"), (*LISTS[1:], (1,)), integers=()), "tflite-postprocess"),
        (
            outputs_of(
                ("num_detections", "detection_boxes", "detection_scores", "detection_classes"),
                ((1,), *LISTS[1:]),
                integers=(),
            ),
            "tflite-postprocess",
        ),
    ]:
        assert family_from(outputs, SIZE, "m.onnx", described(3)).name == family, f"{family!r}"


def test_heads_for_other_tasks_are_known_by_metadata_or_name():
    """Columns beside the classes belong to the task.

    Classes that nothing names are doubted; those of people are not.
    """
    for shapes, name, words, expected in [
        (
            [(1, 116, 8400), (1, 32, 160, 160)],
            "yolov8n-seg.onnx",
            SILENT,
            ("yolo-seg", "segmentation", 80),
        ),
        (
            [(1, 160, 160, 32), (1, 39, 8400)],
            "m.tflite",
            described(3, "segment"),
            ("yolo-seg", "segmentation", 3),
        ),
        (
            [(1, 300, 38), (1, 32, 160, 160)],
            "yolo11s-seg.onnx",
            described(80, "segment"),
            ("yolo26-seg", "segmentation", 80),
        ),
        ([(1, 56, 8400)], "yolo11n-pose.onnx", SILENT, ("yolo-pose", "pose", 1)),
        ([(1, 56, 8400)], "m.onnx", described(1, "pose"), ("yolo-pose", "pose", 1)),
        ([(1, 300, 57)], "yolo26n-pose.onnx", described(1, "pose"), ("yolo26-pose", "pose", 1)),
    ]:
        recognised = family_from(tensors(*shapes), SIZE, name, words)
        assert (recognised.name, recognised.task, recognised.recognition.classes) == expected, (
            f"{shapes!r}, {name!r}"
        )
        assert bool(recognised.recognition.doubts) == (
            not words.labels and recognised.recognition.classes > 1
        ), f"{shapes!r}, {name!r}"
