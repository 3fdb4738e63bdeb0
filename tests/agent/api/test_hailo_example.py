"""The example of a vendor's accelerator passes the contract as its owner would run it, with its stand-in for HailoRT."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edgemeter.agent.conformance.runtimes import CHECKS
from tests.fixtures import plugin_site

PACKAGE = Path(__file__).resolve().parents[3] / "docs" / "examples" / "edgemeter-hailo"


@pytest.mark.slow
def test_the_example_passes_the_contract(tmp_path):
    """Found by its entry point; no check is skipped."""
    module = (PACKAGE / "edgemeter_hailo.py").read_text()
    plugin_site.install(tmp_path / "site", "edgemeter_hailo", [("edgemeter.runtimes", "hailo", "edgemeter_hailo:Hailo")], module)
    shutil.copytree(PACKAGE / "tests", tmp_path / "tests")
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", tmp_path / "tests"]
    alone = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=alone, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert f"{len(CHECKS) + 4} passed" in done.stdout
    assert "skipped" not in done.stdout


def test_the_example_states_that_it_was_not_run_on_hardware():
    """In the data sheet and the read-me, and the package's entry point is the one that was tested."""
    assert "Not run on hardware" in (PACKAGE / "edgemeter_hailo.py").read_text().partition("\n")[0]
    assert "has not been run on hardware" in (PACKAGE / "README.md").read_text()
    assert 'hailo = "edgemeter_hailo:Hailo"' in (PACKAGE / "pyproject.toml").read_text()
