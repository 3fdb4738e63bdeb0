"""The factories of frameworks that are too heavy for the environment of the other tests: their tests run in one of their own."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.requirements import ROOT

FOLDER = Path(__file__).parent


@pytest.mark.long
@pytest.mark.frameworks
@pytest.mark.parametrize("name", ["tensorflow_saved_model", "ultralytics_yolo"])
def test_a_heavy_framework_passes_its_tests(name, tmp_path):
    """All of them, and none is skipped."""
    command = [
        os.environ["EDGEMETER_FRAMEWORKS"],
        "-m",
        "pytest",
        "-q",
        "--basetemp",
        str(tmp_path / "pytest"),
        str(FOLDER / f"test_{name}.py"),
    ]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert re.search(r"^\d+ passed in ", ended.stdout, re.MULTILINE), ended.stdout
