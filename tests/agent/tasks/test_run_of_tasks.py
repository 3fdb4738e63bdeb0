"""A task from the command to the comparison: a run writes predictions that pycocotools scores alike."""

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from edgemeter.agent.contract import record
from tests.fixtures.command import edgemeter
from tests.fixtures.comparison_factory import compare_runs, make_reference, make_run

SHIPPED = Path(__file__).resolve().parents[3] / "models" / "shipped"
SCENES = SHIPPED.parent / "scenes"


def measured(folder, model, annotations, *options, images=None):
    """Return the record of a rapid run, as `edgemeter run` prints it."""
    data = ["--data", str(images or folder / "images"), "--annotations", str(annotations)]
    command = ["run", "--model", str(model), *data, "--mode", "rapid", *map(str, options)]
    completed = subprocess.run(
        [sys.executable, "-m", "edgemeter.agent.cli", *command, "--repeats", "1", "--json"],
        capture_output=True, text=True, check=False, env={**os.environ, "EDGEMETER_HOME": str(folder / "home")},
    )  # fmt: skip
    assert completed.returncode == 0, completed.stderr
    (run,) = json.loads(completed.stdout)["runs"]
    return record.decode(json.dumps(run).encode())


def ap_by_pycocotools(annotations, predictions, kind):
    """Return the AP of a file of COCO results against a file of annotations."""
    with redirect_stdout(io.StringIO()):
        truth = COCO(str(annotations))
        evaluation = COCOeval(truth, truth.loadRes(str(predictions)), kind)
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return evaluation.stats[0]


@pytest.mark.services
def test_pycocotools_finds_the_ap_of_the_record_in_the_predictions_of_a_run(tmp_path):
    """To the last digit, of a model that errs; each result has what COCO's and FiftyOne's readers need."""
    annotations, results = SCENES / "annotations.json", tmp_path / "found.json"
    model = SHIPPED / "edgemeter-shapes_int8.tflite"
    run = measured(tmp_path, model, annotations, "--predictions", results, images=SCENES / "images")
    assert 0.5 < run.accuracy.value < 0.9
    assert run.accuracy.value == ap_by_pycocotools(annotations, results, "bbox")
    assert {tuple(result) for result in json.loads(results.read_text())} == {("image_id", "category_id", "bbox", "score")}
    refused = edgemeter("run", "--model", model, "--data", SCENES / "images", "--predictions", results)
    assert (refused.returncode, "give annotations = FILE.json of COCO" in refused.stderr) == (2, True)


def test_tasks_are_never_compared_with_each_other():
    """The same file on the same photographs: boxes with boxes, masks with masks."""
    comparison = compare_runs(make_reference(), make_run(task="segmentation"))
    assert not [row for row in comparison.rows if not row.is_reference]
    same = compare_runs(make_reference(task="segmentation"), make_run(task="segmentation"))
    assert [row.case.key.task for row in same.rows if not row.is_reference] == ["segmentation"]
