"""Accuracy of real models on real photographs: detectors against pycocotools, classifiers against an independent runner's figures."""

import pytest

from edgemeter.agent.contract import model_file
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.models.catalogue.catalogue import CATALOGUE_FILE, read_catalogue
from tests.benchmarks.detectors import DETECTORS, FROZEN, PACKAGE, file_of_detector, our_accuracy, reference, scored

pytestmark = [pytest.mark.realdata, pytest.mark.nightly]


def _parameter(detector):
    marks = [pytest.mark.needs(module={"litert": "ai_edge_litert", "onnx": "onnxruntime"}.get(detector.runtime, detector.runtime))]
    if detector.runtime == "pytorch":
        # TorchScript takes a minute and a half of a core for what the others take a few seconds.
        marks = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")]
    if detector.to:
        marks.append(pytest.mark.convert)
    if detector.file == FROZEN:
        marks.append(pytest.mark.needs(module=PACKAGE))
    return pytest.param(detector, id=detector.name, marks=marks)


def catalogued(path, otherwise):
    """Return the score that the catalogue states for a file with this hash."""
    scores = {
        entry.sha256: entry.accuracy.value for entry in read_catalogue(CATALOGUE_FILE).entry if entry.accuracy and entry.accuracy.images
    }
    return scores.get(model_file.sha256(path), otherwise)


@pytest.mark.parametrize("detector", [_parameter(detector) for detector in DETECTORS])
def test_detectors_score_as_pycocotools_does(detector, tmp_path):
    """To 0.001 on what other code decoded, 300 a photograph: AP, AP50 and AR (100 detections); AP to 0.002 without any cut."""
    accuracy = our_accuracy(detector, tmp_path)
    expected, uncut = reference(file_of_detector(detector, tmp_path), detector.find)
    assert (accuracy.metric, accuracy.images) == ("coco_ap", 80)
    assert (accuracy.value, accuracy.detail["ap50"], accuracy.detail["ar_100"]) == pytest.approx(expected, abs=1e-3)
    assert accuracy.value == pytest.approx(uncut[0], abs=2e-3)
    assert accuracy.value == pytest.approx(catalogued(file_of_detector(detector, tmp_path), accuracy.value), abs=1e-3)


# Top-1 of an independent runner on 200 photographs; within two standard errors of a share on 60.
@pytest.mark.parametrize(
    ("name", "top1", "apart"), [("mobilenet_v2_1.0_224_quant.tflite", 0.88, 0.084), ("mobilenet_v1_0.25_128_quant.tflite", 0.54, 0.129)]
)
def test_classifiers_score_as_published(realdata, name, top1, apart):
    """Sixty photographs of sixty classes; the background class of the model is taken off."""
    data = open_folder(realdata / "images" / "imagenet_60", realdata / "annotations" / "imagenet_60_index.json")
    score = scored(realdata / "models" / name, "litert", data)
    assert (score.metric, score.images) == ("top1", 60)
    assert score.value == pytest.approx(top1, abs=apart)
    assert score.detail["top5"] > score.value
    assert score.value == pytest.approx(catalogued(realdata / "models" / name, None), abs=1e-3)
