"""Accuracy of real models on real photographs, recognised without a card, against an independent runner's figures."""

import pytest

from edgemeter.agent import runtimes, tasks
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.agent.recognition import recognise

pytestmark = [pytest.mark.realdata, pytest.mark.slow]

# AP, AP50, AP75 on coco_tiny_80 by an independent runner with pycocotools: the README of the real data.
# It left boxes unclipped at the edge of the photograph (SSD's AP rises by 0.0017 with it), and took the 100 best detections.
PUBLISHED = {
    "coco_ssd_mobilenet_v1_1.0_quant_2018_06_29.tflite": ("litert", 0.2020, 0.3374, 0.2118),
    "efficientdet_lite0_int8_metadata.tflite": ("litert", 0.3012, 0.4485, 0.3246),
    "yolov8n_full_integer_quant.tflite": ("litert", 0.3647, 0.5357, 0.4011),
    "yolov8n.onnx": ("onnx", 0.4018, 0.5539, 0.4301),
    "yolox_nano.onnx": ("onnx", 0.3038, 0.4677, 0.3170),
    "yolov5n_640.torchscript.pt": ("pytorch", 0.3185, 0.4866, 0.3459),
}
DISTRIBUTIONS = {"litert": "ai_edge_litert", "onnx": "onnxruntime", "pytorch": "torch"}
# TorchScript takes a minute and a half of a core for what the others take a few seconds.
PARAMETERS = [pytest.param(name, marks=[pytest.mark.torch, pytest.mark.release] if name.endswith(".pt") else []) for name in PUBLISHED]


def scored(model, runtime_name, data):
    """Return the accuracy of a model on a data set, run as a session runs it."""
    pytest.importorskip(DISTRIBUTIONS[runtime_name], reason=f"{runtime_name} is not installed")
    runtime = runtimes.create(runtime_name)
    try:
        loaded = runtime.load(model, runtimes.Options(threads=2))
        work = tasks.create(recognise.card_for(model, loaded)[0], loaded, data)
        for index in range(len(data.items)):
            (inputs,) = tasks.prepared(work, index, loaded)
            runtime.bind(inputs)()
            work.predict(index, [runtime.outputs()])
        return work.score()
    finally:
        runtime.close()


@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.long
def test_detectors_score_as_published(realdata, name):
    """AP and AP50 within 0.003, AP75 within 0.004, on all 80 photographs."""
    runtime, ap, ap50, ap75 = PUBLISHED[name]
    data = open_folder(realdata / "images" / "coco_tiny_80", realdata / "annotations" / "coco_tiny_80_instances_val2017.json")
    score = scored(realdata / "models" / name, runtime, data)
    assert (score.metric, score.images) == ("coco_ap", 80)
    assert score.value == pytest.approx(ap, abs=0.003)
    assert score.detail["ap50"] == pytest.approx(ap50, abs=0.003)
    assert score.detail["ap75"] == pytest.approx(ap75, abs=0.004)


# Top-1 of an independent runner on 200 photographs; within two standard errors of a share on 60.
@pytest.mark.parametrize(
    ("name", "top1", "apart"), [("mobilenet_v2_1.0_224_quant.tflite", 0.88, 0.084), ("mobilenet_v1_0.25_128_quant.tflite", 0.54, 0.129)]
)
@pytest.mark.long
def test_classifiers_score_as_published(realdata, name, top1, apart):
    """Sixty photographs of sixty classes; the background class of the model is taken off."""
    data = open_folder(realdata / "images" / "imagenet_60", realdata / "annotations" / "imagenet_60_index.json")
    score = scored(realdata / "models" / name, "litert", data)
    assert (score.metric, score.images) == ("top1", 60)
    assert score.value == pytest.approx(top1, abs=apart)
    assert score.detail["top5"] > score.value
