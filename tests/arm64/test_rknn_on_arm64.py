"""RKNN's real library in an arm64 system under qemu-user: it imports, reads the files that our reader reads, and finds no NPU."""

import shutil
import subprocess
import sys

import pytest

from tests import requirements
from tests.arm64.namespace import run_inside
from tests.fixtures.rknn_stand_in import written

pytestmark = [pytest.mark.arm64_bookworm, pytest.mark.slow]

PACKAGES = ("rknn-toolkit-lite2==2.5.0", "numpy", "psutil", "ruamel.yaml", "msgspec")
THERE = """
for wheel in /mnt/release/*.whl; do
    python3.11 -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extractall("/mnt/site")' "$wheel"
done
PYTHONPATH=/mnt/site:/mnt/release HOME=/mnt python3.11 /mnt/release/there.py
"""
PROGRAM = """
from pathlib import Path
from rknnlite.api import RKNNLite
from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.runtimes import Options, create
from edgemeter.agent.runtimes.rknn import _CORES

model = Path("/mnt/release/model.rknn")
print([name for name in _CORES.values() if not hasattr(RKNNLite, name)])
print(RKNNLite().list_support_target_platform(str(model))["support_target_platform"])
for path in (model, Path("/mnt/release/there.py")):
    runtime = create("rknn")
    try:
        runtime.load(path, Options(backend="core0"))
    except (ConfigError, UnavailableError) as error:
        print(type(error).__name__, error)
    runtime.close()
"""


def test_the_real_library_reads_our_files_and_states_that_no_npu_is_here(index, tmp_path):  # noqa: ARG001 - has to be there
    """As on a board without a driver: one line, with what the library says; a core's name is an attribute of it."""
    fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--python-version", "3.11"]
    platforms = [word for glibc in (17, 27, 28, 34) for word in ("--platform", f"manylinux_2_{glibc}_aarch64")]
    subprocess.run([*fetch, *platforms, "--dest", tmp_path, *PACKAGES], check=True)
    shutil.copytree(requirements.ROOT / "agent", tmp_path / "edgemeter" / "agent", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "there.py").write_text(PROGRAM)
    written(tmp_path / "model.rknn", {"x": (1, 3, 8, 8)}, {"y": (1, 3, 8, 8)})
    lines = run_inside(requirements.bookworm_folder() / "root", tmp_path, THERE).stdout.splitlines()
    cores, *_, platforms, no_npu, no_model = (line for line in lines if line.strip("*"))
    assert (cores, platforms) == ("[]", "['RK3588']")
    assert no_npu.startswith("UnavailableError RKNN cannot run '/mnt/release/model.rknn' here: ")
    assert "Please specify the target in init_runtime!" in no_npu
    assert no_model.startswith("ConfigError '/mnt/release/there.py' is no model of RKNN")
