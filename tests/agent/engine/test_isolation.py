"""Facts about a run's process that dies: what is reported names the file, and is one line."""

import os
import subprocess
import sys

import pytest

from edgemeter.agent import runtimes
from tests.fixtures.plugin_site import install

# As ExecuTorch does on some garbled programs: a check of the library ends the process, after a line on standard error.
MODULE = """
import os, sys

class Fragile:
    VERSION_OF = "fragile"
    def load(self, model, options):
        print("E check failed: tensor_meta in " + model.name, file=sys.stderr, flush=True)
        os.abort()
    def close(self):
        pass
"""


@pytest.mark.slow
def test_a_runtime_that_aborts_while_it_loads_is_one_line_that_names_the_file(tmp_path):
    """Signal, file and remedy, with the library's own last words; no trace."""
    install(tmp_path / "site", "fragile", [(runtimes.ENTRY_POINTS, "fragile", "fragile:Fragile")], MODULE)
    (tmp_path / "garbled.pte").write_bytes(b"\0" * 64)
    completed = subprocess.run(
        [sys.executable, "-m", "edgemeter.agent.cli", "run", "-q", "garbled.pte", "--runtime", "fragile", "--mode", "rapid"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site"), "EDGEMETER_HOME": str(tmp_path / "home")},
    )  # fmt: skip
    assert completed.returncode == 1
    (line,) = [line for line in completed.stderr.splitlines() if "crashed" in line]
    assert "the runtime fragile crashed (signal 6, SIGABRT) while loading '" in line
    assert "garbled.pte'; the file may be garbled: fetch or export it again; its last output: E check failed: tensor_meta" in line
    assert "Traceback" not in completed.stderr
