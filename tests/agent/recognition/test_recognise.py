"""Cards for models that have none."""

from hashlib import sha256
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import model_card
from edgemeter.agent.contract.model_card import UNSURE_FAMILY, made_by_guessing
from edgemeter.agent.recognition import recognise
from edgemeter.agent.runtimes import TensorInfo
from tests.fixtures.rows import table_row
from tests.fixtures.vision_factory import make_loaded, tensors

YOLO = tensors((1, 84, 8400))
SCORES = tensors((1, 1000))
NAMES = {"names": str({i: f"thing {i}" for i in range(80)})}


def recognised(name, inputs, outputs, metadata=None):
    card, guesses = recognise.card_for(
        Path("absent") / name, make_loaded(outputs, inputs, metadata)
    )
    return card, [*map(str, guesses)]


def test_a_card_beside_the_model_wins_and_one_of_another_file_is_reported(tmp_path):
    """With a card nothing is guessed, whatever the shapes.

    A model exported over the old one keeps its card, which may now be wrong.
    """
    (tmp_path / "m.onnx.toml").write_text(
        'name = "mine"\ntask = "detection"\nfamily = "yolov8"\nprecision = "fp32"\nsha256 = '
        f'"{sha256(b"the model").hexdigest()}"\n'
        '[input]\nheight = 8\nwidth = 8\nlayout = "NCHW"\n'
    )
    for content, doubts in ((b"the model", 0), (b"another export", 1)):
        (tmp_path / "m.onnx").write_bytes(content)
        card, guesses = recognise.card_for(
            tmp_path / "m.onnx", make_loaded(SCORES, tensors((1, 3, 640, 640)))
        )
        assert (card.name, card.input.height, len(guesses)) == ("mine", 8, doubts)
        assert all(" unsure: the card is for sha256" in str(guess) for guess in guesses)


def test_a_wrong_card_is_not_passed_over(tmp_path):
    """A typing error in a card is an error and no reason to guess."""
    (tmp_path / "m.onnx.toml").write_text('name = "mine"\ntusk = "detection"\n')
    with pytest.raises(ConfigError, match=r"m\.onnx\.toml"):
        recognise.card_for(tmp_path / "m.onnx", make_loaded(YOLO, tensors((1, 3, 640, 640))))


def test_yolov8_in_onnx():
    """The card has letterbox, RGB, 0..1, the file's names and Ultralytics's detection limit.

    A batch of 8 is recognised too.
    """
    assert (
        recognised("m.onnx", tensors((8, 3, 640, 640)), tensors((8, 84, 8400)))[0].family
        == "yolov8"
    )
    card, guesses = recognised("yolov8n.onnx", tensors((1, 3, 640, 640)), YOLO, NAMES)
    assert (card.name, card.task, card.family, card.precision) == (
        "yolov8n",
        "detection",
        "yolov8",
        "fp32",
    )
    assert card.input == model_card.ImageInput(
        height=640, width=640, layout="NCHW", resize="letterbox"
    )
    assert (card.output.classes, card.output.nms_iou, card.output.max_detections) == (80, 0.7, 300)
    assert card.output.labels[79] == "thing 79"
    assert all(guess.startswith("yolov8n.onnx has no card; guessed: ") for guess in guesses)


def test_open_sides_come_from_the_metadata():
    """A dynamic ONNX file names its size.

    Otherwise the output's grid or the usual size gives it, which is a reported guess.
    """
    inputs = tensors((None, 3, None, None))
    card, _ = recognised(
        "yolov8n.onnx", inputs, tensors((1, 84, None)), {**NAMES, "imgsz": "[320, 416]"}
    )
    assert (card.input.height, card.input.width) == (320, 416)
    card, guesses = recognised("yolov8n.onnx", inputs, tensors((1, 84, None)), NAMES)
    assert card.input.height == 640
    assert any("input 640 x 640, the usual" in guess for guess in guesses)
    card, guesses = recognised("yolov8n.onnx", inputs, tensors((None, 84, 2100)), NAMES)
    assert card.input.height == 320
    assert any("as many cells" in guess for guess in guesses)
    assert recognised("resnet50.onnx", inputs, SCORES)[0].input.height == 224


def test_a_yolo_with_its_normalisation_in_the_graph_takes_pixels():
    """0..1 in an input of whole numbers, or of steps of 1, would be a black picture.

    An input that can hold 0..1 gets it, even in half as many steps.
    """
    for info, mean, sd in [
        (TensorInfo("x", (1, 640, 640, 3), "uint8"), 0, 1),
        (TensorInfo("x", (1, 640, 640, 3), "uint8", 1.0, 0), 0, 1),
        (TensorInfo("x", (1, 640, 640, 3), "int8", 1.0, -128), 0, 1),
        (TensorInfo("x", (1, 640, 640, 3), "int8"), 128, 1),
        (TensorInfo("x", (1, 640, 640, 3), "uint8", 1 / 255, 0), 0, 255),
        (TensorInfo("x", (1, 640, 640, 3), "int8", 0.00787, 0), 0, 255),
        (TensorInfo("x", (1, 640, 640, 3), "int8", 0.00392, -128), 0, 255),
    ]:
        card, _ = recognised("yolo11n.onnx", [info], YOLO, NAMES)
        assert (card.input.mean[0], card.input.sd[0]) == (mean, sd), f"{info!r}"


def test_an_integer_input_too_narrow_for_0_to_255_takes_the_pixel_as_its_value():
    """YOLOX takes 0..255, but one quantised for 0..1 normalises inside the graph.

    Otherwise 254 of 256 values would be cut to one.
    """
    card, guesses = recognised(
        "yolox_nano.tflite",
        [TensorInfo("x", (1, 416, 416, 3), "uint8", 1 / 255, 0)],
        tensors((1, 3549, 85)),
    )
    assert any("unsure: the input's quantisation" in guess for guess in guesses)
    assert (card.input.mean[0], card.input.sd[0]) == pytest.approx((0, 255))


def test_yolox_takes_blue_first_and_pixels():
    """YOLOX has a top-left letterbox, BGR and values of 0..255."""
    card, _ = recognised("yolox_nano.onnx", tensors((1, 3, 416, 416)), tensors((1, 3549, 85)))
    assert (card.input.colour, card.input.resize, card.input.sd[0]) == (
        "BGR",
        "letterbox-top-left",
        1,
    )
    assert card.output.nms_iou == 0.65


def test_torchscript_is_recognised_by_name():
    """The file declares nothing, so every assumption is reported."""
    card, guesses = recognised("yolov5n_320.torchscript.pt", (), ())
    assert (card.name, card.family, card.input.height, card.output.classes) == (
        "yolov5n_320",
        "yolov5",
        320,
        80,
    )
    assert len(guesses) == 4


def test_torchscript_of_ultralytics_is_recognised_by_its_metadata():
    """A file called `best` states its architecture, task and classes.

    It also states whether it suppresses by itself.
    """
    about = {
        "description": "Ultralytics {} model trained on /data/yolox/a.yaml",
        "names": '["a", "b"]',
        "imgsz": "[160, 160]",
    }
    exports = (
        ("YOLO11n", {"task": "detect"}, "yolov8"),
        ("YOLO11n", {"task": "detect", "args": '{"nms": true}', "end2end": "false"}, "yolo26"),
        ("YOLO26n-seg", {"task": "segment", "end2end": "false"}, "yolo-seg"),
        ("YOLO26n-seg", {"task": "segment", "end2end": "true"}, "yolo26-seg"),
        ("YOLO11n-pose", {"task": "pose", "args": '{"nms": false}'}, "yolo-pose"),
        ("YOLO26n-pose", {"task": "pose", "end2end": "true"}, "yolo26-pose"),
    )
    for architecture, further, family in exports:
        with table_row(architecture, further):
            metadata = {
                **about,
                "description": about["description"].format(architecture),
                **further,
            }
            card, _ = recognised("best.torchscript", (), (), metadata)
            assert (card.family, card.output.classes, card.input.height) == (family, 2, 160)


def test_an_ssd_takes_pixels_by_its_quantisation():
    """With uint8, scale 1/128 and zero point 128, the quantised value is the pixel."""
    infos = tensors(
        (),
        (),
        (),
        (),
        names=["TFLite_Detection_PostProcess"]
        + [f"TFLite_Detection_PostProcess:{k}" for k in (1, 2, 3)],
    )
    card, _ = recognised(
        "ssd.tflite", [TensorInfo("x", (1, 300, 300, 3), "uint8", 1 / 128, 127)], infos
    )
    assert (card.input.mean[0], card.input.sd[0], card.input.resize) == (127, 128, "stretch")
    assert (card.output.classes, card.output.nms_iou) == (90, None)


def test_a_label_file_with_background_is_shifted():
    """With 91 lines for 90 classes, the label of class k is one line further."""
    infos = tensors((1, 10, 4), (1, 10), (1, 10), (1,))
    card, _ = recognised(
        "ssd.tflite",
        tensors((1, 300, 300, 3), dtype="uint8"),
        infos,
        {"labels.txt": "\n".join(f"l{i}" for i in range(91))},
    )
    assert (card.output.classes, card.output.label_offset, len(card.output.labels)) == (90, 1, 91)


def test_a_classifier_with_background_is_shifted_back():
    """1001 scores are 1000 classes: score k is class k - 1.

    The label list loses its first line.
    """
    lines = "\n".join(["background", *(f"l{i}" for i in range(1000))])
    card, _ = recognised(
        "m_quant.tflite",
        [TensorInfo("x", (1, 224, 224, 3), "int8", 1 / 128, 0)],
        tensors((1, 1001)),
        {"labels.txt": lines},
    )
    assert (card.output.label_offset, card.output.labels[0], card.task) == (
        -1,
        "l0",
        "classification",
    )
    assert (card.input.resize, card.input.crop_ratio, card.input.mean[0]) == (
        "centre-crop",
        0.875,
        128,
    )


def test_a_classifier_is_resized_as_its_trainer_does():
    """TensorFlow's trainers shrink the whole photograph, and PyTorch's recipes crop it.

    ImageNet's evaluation crops too, and EfficientNet-Lite crops 32 pixels.
    """
    for classes, shape, metadata, resize in [
        (2, (1, 96, 96, 3), {}, "stretch-smooth"),
        (10, (1, 3, 32, 32), {}, "centre-crop"),
        (1000, (1, 224, 224, 3), {}, "centre-crop"),
        (2, (1, 224, 224, 3), {"task": "classify"}, "centre-crop"),
    ]:
        card, notes = recognised(
            "mobilenet_vww.tflite", tensors(shape), tensors((1, classes)), metadata
        )
        assert card.input.resize == resize
        assert any("set input.resize" in note for note in notes) == (resize == "stretch-smooth")
    card, _ = recognised("efficientnet_lite2.tflite", tensors((1, 260, 260, 3)), SCORES)
    assert card.input.crop_ratio == pytest.approx(260 / 292)


def test_a_float_classifiers_range_is_read_or_guessed_aloud():
    """The file's statement counts, otherwise the framework's usual range with a warning."""
    for name, metadata, mean, sd, guessed in [
        ("m.tflite", {}, 127.5, 127.5, True),
        ("m.onnx", {}, 123.675, 58.395, True),
        ("m_tf2onnx.onnx", {}, 127.5, 127.5, True),
        ("efficientnet_lite0_fp32.tflite", {}, 127, 128, True),
        ("efficientnet-lite4-11.onnx", {}, 127, 128, True),
        ("m.tflite", {"input_mean": "0", "input_sd": "255"}, 0, 255, False),
        ("m.onnx", {"task": "classify"}, 0, 255, False),
    ]:
        shape = (1, 224, 224, 3) if "tflite" in name or "tf2onnx" in name else (1, 3, 224, 224)
        card, guesses = recognised(name, tensors(shape), SCORES, metadata)
        assert (card.input.mean[0], card.input.sd[0]) == (mean, sd), f"{name!r}, {metadata!r}"
        assert any("a wrong guess costs accuracy" in guess for guess in guesses) == guessed, (
            f"{name!r}, {metadata!r}"
        )


def test_endings_determine_precision_and_the_shared_name():
    """All files of one model share a name that fits a topic and a tag."""
    for file, name, precision in [
        ("yolov8n_float16.tflite", "yolov8n", "fp16"),
        ("yolov8n_dynamic_range_quant.tflite", "yolov8n", "int8-dynamic"),
        ("yolov8n-int8.onnx", "yolov8n", "int8"),
        ("yolov8n.fp32.onnx", "yolov8n", "fp32"),
        ("mobilenet_v1_0.25_128_quant_edgetpu.tflite", "mobilenet_v1_0.25_128", "int8"),
        ("int8.onnx", "int8", "fp32"),
        ("größe /x.onnx", "x", "fp32"),
        ("-ü.onnx", "model", "fp32"),
    ]:
        with table_row(file):
            card, guesses = recognised(file, tensors((1, 3, 640, 640)), YOLO)
            assert (card.name, card.precision) == (name, precision)
            assert recognise.name_of(Path(file)) == name
            assert any(f"precision {precision}" in guess for guess in guesses)


def test_what_is_not_recognised_names_what_to_write():
    """The error gives the reason, the file to write and the keys it needs."""
    for inputs, outputs, why in [
        (
            tensors((1, 1, 28, 28)),
            tensors((1, 10)),
            r"inputs \[\[1, 1, 28, 28\]\] are not one picture",
        ),
        (tensors((1, 3, 640, 640), (1, 2)), YOLO, "are not one picture"),
        (tensors((1, 128)), SCORES, "are not one picture"),
        (
            tensors((1, 3, 640, 640)),
            tensors((1, 300, 7)),
            r"output \[1, 300, 7\] on an input of 640 x 640",
        ),
        (tensors((1, 3, 128, 128)), tensors((1, 336, 4), (1, 300, 5)), "cannot identify"),
        (
            tensors((1, 3, None, None)),
            tensors((1, None)),
            r"output \[1, \?\] on an input of open size",
        ),
    ]:
        with table_row(inputs, outputs):
            with pytest.raises(ConfigError, match=why) as refusal:
                recognised("net.onnx", inputs, outputs)
            words = (
                "'net.onnx.toml'",
                "task",
                "family",
                "yolov8",
                "classifier",
                "precision",
                "[input]",
                "layout",
                "[output]",
                "classes",
            )
            assert [word for word in words if word not in str(refusal.value)] == []
            assert "\n" not in str(refusal.value)


def test_end_to_end_models_suppress_nothing():
    """YOLO26 and torchvision's models have suppressed already, and DETR needs no suppression."""
    card, _ = recognised("yolo26n.onnx", tensors((1, 3, 640, 640)), tensors((1, 300, 6)), NAMES)
    assert (card.family, card.input.resize, card.input.sd[0], card.output.nms_iou) == (
        "yolo26",
        "letterbox",
        255,
        None,
    )
    card, _ = recognised(
        "rtdetr.onnx", tensors((1, 3, 640, 640)), tensors((1, 300, 80), (1, 300, 4))
    )
    assert (card.input.resize, card.input.mean[0], card.input.sd[0], card.output.nms_iou) == (
        "stretch",
        0,
        255,
        None,
    )
    card, _ = recognised("detr.onnx", tensors((1, 3, 800, 800)), tensors((1, 100, 92), (1, 100, 4)))
    assert (card.output.classes, card.input.mean[0]) == (91, 123.675)


def test_torchvisions_detectors_take_one_picture_without_a_batch():
    """Three axes with open sides mean that the model resizes by itself.

    Photographs keep their size, which is reported as a guess.
    """
    card, guesses = recognised(
        "fasterrcnn.onnx", tensors((3, None, None)), tensors((None, 4), (None,), (None,))
    )
    assert (card.family, card.input.layout, card.input.height, card.output.classes) == (
        "torchvision",
        "NCHW",
        800,
        90,
    )
    assert card.input.resize == "none"
    assert any(
        "random pictures are 800 x 800" in guess and "input.resize" in guess for guess in guesses
    )


def test_a_script_that_takes_pictures_of_any_size_is_a_detector_of_torchvisions_kind():
    """The input's type shows the kind of a script without outputs, whatever its file's name.

    Mask R-CNN's name shows that it segments.
    """
    for name, task in (
        ("best.pt", "detection"),
        ("resnet50_of_mine.pt", "detection"),
        ("maskrcnn_resnet50_fpn.pt", "segmentation"),
    ):
        card, guesses = recognised(name, tensors((3, None, None)), [])
        assert (card.family, card.task, card.input.resize, card.input.sd[0]) == (
            "torchvision",
            task,
            "none",
            255,
        ), name
        assert any("pictures of any size" in guess for guess in guesses) == (task == "detection"), (
            name
        )


def test_a_card_that_was_guessed_keeps_the_doubt_about_its_family(tmp_path):
    """`models add` and `models convert` write their guesses, which only the user settles."""
    loaded = make_loaded(tensors((1, 56, 8400)), tensors((1, 3, 640, 640)))
    card, guesses = recognise.recognise(tmp_path / "pose.onnx", loaded)
    written = made_by_guessing(guesses)
    head = f'name = "pose"\ntask = "detection"\nfamily = "{card.family}"\nprecision = "fp32"\n'
    rest_of_card = (
        '[input]\nheight = 640\nwidth = 640\nlayout = "NCHW"\n[made]\nfamily_doubt = '
        f'"{written["family_doubt"]}"\n'
    )
    (tmp_path / "pose.onnx.toml").write_text(head + rest_of_card)
    _, (doubt,) = recognise.card_for(tmp_path / "pose.onnx", loaded)
    assert doubt.kind == UNSURE_FAMILY
    assert doubt.text.startswith(written["family_doubt"])
    assert "remove family_doubt from [made]" in doubt.text


def test_boxes_and_scores_are_a_set_or_a_row_for_each_anchor():
    """Few rows are DETR's queries; many rows, or the cells of a grid, are anchors.

    Labels give the number of classes, otherwise annotations do.
    """
    for shapes, name, labels, categories, family, classes in [
        ([(1, 100, 92), (1, 100, 4)], "detr-r50.onnx", 0, None, "detr", 91),
        ([(1, 300, 4), (1, 300, 91)], "rf-detr.onnx", 0, None, "detr", 91),
        ([(1, 300, 6), (1, 300, 4)], "m.onnx", 6, None, "detr", 6),
        ([(1, 300, 6), (1, 300, 4)], "rtdetr.onnx", 0, 5, "detr", 6),
        ([(1, 300, 6), (1, 300, 4)], "m.onnx", 0, None, "detr", 5),
        ([(1, 300, 6), (1, 300, 4)], "m.onnx", 0, 6, "detr", 6),
        ([(1, 8400, 4), (1, 8400, 80)], "m.onnx", 0, None, "boxes-scores", 80),
        ([(1, 8400, 3), (1, 8400, 4)], "yolo_nas_s.onnx", 0, None, "boxes-scores", 3),
        ([(1, 8400, 4), (1, 8400, 3)], "best.onnx", 3, None, "boxes-scores", 3),
        ([(1, 3000, 4), (1, 3000, 7)], "ssd.onnx", 0, None, "boxes-scores", 6),
        ([(1, 3000, 4), (1, 3000, 7)], "ssd.onnx", 0, 7, "boxes-scores", 7),
    ]:
        metadata = {"names": str([f"thing {number}" for number in range(labels)])} if labels else {}
        with table_row(shapes, name, labels, categories):
            loaded = make_loaded(tensors(*shapes), tensors((1, 3, 640, 640)), metadata)
            card, guesses = recognise.card_for(
                Path("absent") / name,
                loaded,
                [f"kind {number}" for number in range(categories or 0)],
            )
            assert (card.family, card.output.classes) == (family, classes)
            assert labels or any("output.classes" in guess.text for guess in guesses)


def test_annotations_of_their_own_count_classes_that_outputs_do_not_show():
    """Lists may hold any number of classes.

    They are COCO's if the annotations are, or if there are none.
    """
    for shapes, name, usual in [
        ([(None, 4), (None,), (None,)], "m.onnx", 90),
        ([(1, 300, 6)], "m.onnx", 80),
        ([(1, 10, 4), (1, 10), (1, 10), (1,)], "m.tflite", 90),
        ([], "yolov5n.torchscript", 80),
    ]:
        for categories, classes in (
            ((), usual),
            (("person", "cat"), usual),
            (("disc", "ring", "cat"), 3),
        ):
            with table_row(shapes, name, categories):
                loaded = make_loaded(tensors(*shapes), tensors((1, 3, 640, 640)))
                card, guesses = recognise.card_for(Path("absent") / name, loaded, categories)
                assert card.output.classes == classes
                assert any("output.labels" in guess.text for guess in guesses)
