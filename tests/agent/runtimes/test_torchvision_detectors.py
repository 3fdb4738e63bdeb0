"""Scripted torchvision detectors find by the normal commands what torchvision finds."""

import json
import subprocess
import sys

import pytest

from tests import requirements
from tools.peers import torchvision_detectors
from tools.peers.torchvision_detectors import MODELS, PHOTOGRAPHS

pytestmark = [pytest.mark.torchvision, pytest.mark.nightly]


@pytest.fixture(scope="module")
def detectors(tmp_path_factory):
    """Return the models' folder, an environment to run them in and the differences.

    A model's difference is the one between torchvision and our runtime.
    """
    folder, libraries = tmp_path_factory.mktemp("detectors"), tmp_path_factory.mktemp("libraries")
    torchvision_detectors.write_photographs(folder / "photographs")
    environment = torchvision_detectors.environment(requirements.torchvision_folder(), libraries)
    program = [sys.executable, "-W", "ignore", torchvision_detectors.__file__, folder, *MODELS]
    completed = subprocess.run(
        program, env=environment, capture_output=True, text=True, check=False, timeout=1800
    )
    assert completed.returncode == 0, completed.stderr
    return folder, environment, json.loads(completed.stdout)


@pytest.mark.parametrize("name", MODELS)
def test_a_scripted_detector_finds_what_torchvision_finds(detectors, name):
    """Boxes, scores, labels, masks and keypoints agree to rounding.

    They agree bit by bit where the same kernels run.
    """
    difference = detectors[2][name]
    assert difference["objects"] > 20 * len(PHOTOGRAPHS)
    assert difference == {
        "objects": difference["objects"],
        "labels": True,
        "other": pytest.approx(0, abs=1e-3),
    }
