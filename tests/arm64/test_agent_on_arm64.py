"""Tests of the agent in an arm64 system under qemu-user.

Enrolled, it measures a LiteRT and a language model and delivers.
"""

import os
import shutil

import pytest

from edgemeter.provisioning.release import install
from tools.arm64.namespace import run_inside
from tools.fleet.fleet_server import served

pytestmark = [pytest.mark.arm64, pytest.mark.nightly, pytest.mark.mosquitto]

THERE = """
"$0" /mnt/release/install.py --release /mnt/release/pi4.tar --root /mnt/opt/edgemeter \\
  --public-key /mnt/release/release.pub
export EDGEMETER_HOME=/mnt/home EDGEMETER_CONFIG=/mnt/home/config.toml
edgemeter=/mnt/opt/edgemeter/current/bin/edgemeter
models=$(echo /mnt/opt/edgemeter/current/lib/python3*/site-packages/edgemeter/models)
shipped=$models/shipped
notes=$models/language/edgemeter-notes_q8_0.gguf
$edgemeter agent join /mnt/release/join.toml --config $EDGEMETER_CONFIG
$edgemeter run $shipped/edgemeter-shapes_int8.tflite --mode rapid --repeats 1 --delivery-timeout 300
$edgemeter run $notes --prompt-tokens 16 --output-tokens 8 --mode rapid --repeats 1 \\
  --delivery-timeout 300
ls -l /mnt/home/identity
"""


def test_a_release_installs_offline_enrols_measures_and_delivers_over_mtls(pi4, system, tmp_path):
    """A release installs offline on arm64, enrols, measures, and delivers over mTLS.

    It uses the system's own Python, as on a board; the collector and the broker are this machine's.
    """
    folder = tmp_path / "release"
    folder.mkdir()
    for file in (pi4.path, pi4.public, install.__file__):
        shutil.copy(file, folder)
    with served(tmp_path) as server:
        shutil.copy(server.join_file("emulated-01"), folder / "join.toml")
        run_inside(system, folder, THERE, HOME=os.environ.get("HOME", "/"))
        run, spoken = server.runs("emulated-01")
        assert (run.environment.arch, run.runtime.name, run.fleet) == ("aarch64", "litert", "lab")
        assert run.latency.count >= 64
        assert (spoken.environment.arch, spoken.runtime.name, spoken.precision) == (
            "aarch64",
            "llama",
            "q8_0",
        )
        assert (spoken.generation.prompt_tokens, spoken.generation.output_tokens) == (16, 8)
        assert '"emulated-01"' in server.command("show", "emulated-01", "--format", "json")
