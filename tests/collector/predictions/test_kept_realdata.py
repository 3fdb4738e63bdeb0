"""Real detectors on real photographs: the curve of what a run keeps beside pycocotools, and what differs between two of them."""

import numpy as np
import pytest

from edgemeter.agent import runtimes, tasks
from edgemeter.agent.contract.kept_predictions import fitted, unpack
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.agent.recognition import recognise
from edgemeter.collector.predictions.differences import differences
from edgemeter.collector.predictions.quality import confusion, precision_recall
from tests.fixtures.kept_factory import precisions_of_pycocotools
from tests.fixtures.rows import table_row

pytestmark = [pytest.mark.realdata, pytest.mark.slow, pytest.mark.long]

PHOTOS = "images/coco_tiny_80"
ANNOTATIONS = "annotations/coco_tiny_80_instances_val2017.json"


def kept_by(model, runtime_name, folder):
    """Return what a run of a model keeps, as it comes out of its record, and its accuracy."""
    data = open_folder(folder / PHOTOS, folder / ANNOTATIONS)
    runtime = runtimes.create(runtime_name)
    try:
        loaded = runtime.load(folder / "models" / model, runtimes.Options(threads=1))
        task = tasks.create(recognise.card_for(folder / "models" / model, loaded)[0], loaded, data)
        for index in range(len(data.items)):
            (inputs,) = tasks.prepared(task, index, loaded)
            runtime.bind(inputs)()
            task.predict(index, [runtime.outputs()])
        return unpack(fitted(task.predictions()).data), task.score("value")
    finally:
        runtime.close()


def test_what_two_detectors_keep_is_what_pycocotools_finds(realdata):
    """Precision at 101 recalls of 80 labels to 1e-6; the mean is the run's AP50 but for the weak; the parts of the difference add up."""
    sides = []
    for model, runtime_name in (("yolox_nano.onnx", "onnx"), ("efficientdet_lite0_int8_metadata.tflite", "litert")):
        with table_row(model):
            predictions, accuracy = kept_by(model, runtime_name, realdata)
            sides.append(predictions)
            expected = precisions_of_pycocotools(predictions)
            assert expected.shape == (101, 80)
            assert (expected > -1).all()
            curves = [precision_recall(predictions, label).precisions for label in predictions.labels]
            np.testing.assert_allclose(np.transpose(curves), expected, atol=1e-6)
            overall = precision_recall(predictions)
            np.testing.assert_allclose(overall.precisions, expected.mean(axis=1), atol=1e-6)
            assert accuracy.detail["ap50"] - 0.06 < overall.ap50 < accuracy.detail["ap50"] + 0.002
    compared = differences(*sides, 0.25)
    matrices = [np.array(confusion(predictions, 0.25).counts) for predictions in sides]
    counts = compared.counts
    assert counts["both"] + counts["moved"] + counts["missed"] + counts["other-class"] == np.trace(matrices[0][:-1, :-1])
    assert counts["both"] + counts["moved"] + counts["gained"] == np.trace(matrices[1][:-1, :-1])
    assert (len(compared.photographs), compared.note, compared.worst(1)[0].worse > 3) == (80, None, True)
