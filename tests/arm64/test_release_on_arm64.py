"""A real release for arm64 installs there with no network and measures."""

import json
import shutil

import pytest

from edgemeter.provisioning.release import manifest
from tests.arm64.namespace import run_inside

pytestmark = [pytest.mark.arm64, pytest.mark.nightly]


def test_a_release_installs_on_arm64_with_no_network_and_measures(pi4_with_litert, system, tmp_path):
    """By the system's own Python, which has no ensurepip; a network namespace of its own has nothing to reach."""
    manifest.read_release(pi4_with_litert.path, pi4_with_litert.public).unpack(tmp_path)
    shutil.copy(pi4_with_litert.public, tmp_path)
    script = (
        '! "$0" -c "import ensurepip; ensurepip.version()" 2> /dev/null\n'
        '"$0" /mnt/release/install.py --release /mnt/release --root /mnt/opt/edgemeter --public-key /mnt/release/release.pub\n'
        "cd /mnt/opt/edgemeter/current\n"
        "bin/edgemeter --version\n"
        "export EDGEMETER_HOME=/mnt/home\n"
        "model=$(echo lib/python3*/site-packages/edgemeter/models/shipped/edgemeter-shapes_int8.tflite)\n"
        "bin/edgemeter run --model $model --mode rapid --repeats 1 --no-save --output /mnt/release/runs.json\n"
    )
    completed = run_inside(system, tmp_path, script, "--net")
    assert f"install: installed and switched to release {pi4_with_litert.manifest.version}" in completed.stdout
    assert "edgemeter, version" in completed.stdout
    (run,) = json.loads((tmp_path / "runs.json").read_text())["runs"]
    assert (run["environment"]["arch"], run["runtime"]["name"], run["model"]["name"]) == ("aarch64", "litert", "edgemeter-shapes")
    assert run["latency"]["count"] >= 64
    assert run["latency"]["p50_ms"] > 0
