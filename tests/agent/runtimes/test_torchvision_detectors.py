"""torchvision's detectors, scripted, by the normal commands: equal to what torchvision itself finds."""

import json
import subprocess
import sys

import pytest

from tests import requirements
from tests.fixtures import torchvision_detectors
from tests.fixtures.torchvision_detectors import MODELS, PHOTOGRAPHS

pytestmark = [pytest.mark.torchvision, pytest.mark.nightly]


@pytest.fixture(scope="module")
def detectors(tmp_path_factory):
    """Return the folder of the models' files, an environment in which they run, and what differs from ours, by model."""
    folder, libraries = tmp_path_factory.mktemp("detectors"), tmp_path_factory.mktemp("libraries")
    torchvision_detectors.write_photographs(folder / "photographs")
    environment = torchvision_detectors.environment(requirements.torchvision_folder(), libraries)
    program = [sys.executable, "-W", "ignore", torchvision_detectors.__file__, folder, *MODELS]
    completed = subprocess.run(program, env=environment, capture_output=True, text=True, check=False, timeout=1800)
    assert completed.returncode == 0, completed.stderr
    return folder, environment, json.loads(completed.stdout)


def edgemeter(environment, *arguments):
    """Return what a command prints as JSON, in a process that finds torchvision."""
    command = [sys.executable, "-m", "edgemeter.agent.cli", *map(str, arguments)]
    completed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert completed.returncode in {0, 1}, completed.stderr
    return json.loads(completed.stdout)


@pytest.mark.parametrize("name", MODELS)
def test_a_scripted_detector_finds_what_torchvision_finds(detectors, name):
    """Boxes, scores, labels, and masks or keypoints where there are any, to rounding: bit by bit where the same kernels run."""
    difference = detectors[2][name]
    assert difference["objects"] > 20 * len(PHOTOGRAPHS)
    assert difference == {"objects": difference["objects"], "labels": True, "other": pytest.approx(0, abs=1e-3)}


def test_a_run_of_a_scripted_detector_has_the_sizes_that_it_timed(detectors):
    """Photographs keep their size; random pictures, which there are without photographs, have the card's."""
    folder, environment, _ = detectors
    model, quick = folder / "ssdlite320_mobilenet_v3_large.pt", ("--mode", "rapid", "--repeats", "1", "--json")
    (run,) = edgemeter(environment, "run", "--model", model, "--data", folder / "photographs", *quick)["runs"]
    assert run["runtime"]["facts"]["timed_shapes"] == "4, from [3, 132, 96] to [3, 192, 240]"
    assert (run["output_check"]["compared"], run["output_check"]["differing"]) == (4, 0)
    (run,) = edgemeter(environment, "run", "--model", model, *quick)["runs"]
    assert [tensor["shape"] for tensor in run["inputs"]] == [[3, 320, 320]]
