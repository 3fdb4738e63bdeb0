"""A task from the command to the comparison: a timed run has its accuracy, and tasks are never compared with each other."""

import json
import os
import subprocess
import sys

import pytest

from edgemeter.agent.contract import record
from edgemeter.collector.runs.cases import series_of
from edgemeter.collector.runs.run_figures import figures_of
from tests.fixtures import onnx_factory
from tests.fixtures.comparison_factory import compare_runs, make_reference, make_run
from tests.fixtures.task_data import CARD, outlined_photographs, photographed_people, photographed_ships


def measured(folder, model, annotations):
    """Return the record of a rapid run, as `edgemeter run` prints it."""
    command = ["run", "--model", str(model), "--data", str(folder / "images"), "--annotations", str(annotations), "--mode", "rapid"]
    completed = subprocess.run(
        [sys.executable, "-m", "edgemeter.agent.cli", *command, "--repeats", "1", "--json"],
        capture_output=True, text=True, check=False, env={**os.environ, "EDGEMETER_HOME": str(folder / "home")},
    )  # fmt: skip
    assert completed.returncode == 0, completed.stderr
    (run,) = json.loads(completed.stdout)["runs"]
    return record.decode(json.dumps(run).encode())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "family", "make", "write", "label", "metric"),
    [
        ("segmentation", "yolo-seg", onnx_factory.segmenter, outlined_photographs, "box", "coco_mask_ap"),
        ("pose", "movenet", onnx_factory.single_pose, photographed_people, "person", "coco_keypoint_ap"),
        ("oriented-boxes", "yolo-obb", onnx_factory.oriented, photographed_ships, "ship", "dota_map50"),
    ],
)
def test_a_run_is_timed_and_scored(tmp_path, task, family, make, write, label, metric):
    """The outputs of timed queries are those of the accuracy pass, the metric is in the record, the trend and the fleet's page know it."""
    annotations, model = write(tmp_path), make(tmp_path / "tiny.onnx")
    settings = "nms_iou = 0.7" if family.startswith("yolo") else ""
    model.with_name("tiny.onnx.toml").write_text(CARD.format(task=task, family=family, more=settings).replace('"box"', f'"{label}"'))
    run = measured(tmp_path, model, annotations)
    assert (run.model.task, run.accuracy.metric, run.accuracy.value) == (task, metric, pytest.approx(1.0))
    assert (run.output_check.differing, run.answers.objects, run.answers.found) == (0, 24, 24)
    assert series_of(run).task == task
    assert figures_of(run).accuracy_kind.startswith(f"{metric} over 24 images")


def test_tasks_are_never_compared_with_each_other():
    """The same file on the same photographs: boxes with boxes, masks with masks."""
    comparison = compare_runs(make_reference(), make_run(task="segmentation"))
    assert not [row for row in comparison.rows if not row.is_reference]
    same = compare_runs(make_reference(task="segmentation"), make_run(task="segmentation"))
    assert [row.case.key.task for row in same.rows if not row.is_reference] == ["segmentation"]
