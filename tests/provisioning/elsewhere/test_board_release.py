"""The release for a board: the fleet's if it fits and has the runtimes, else one that is made."""

from dataclasses import replace
from importlib import metadata

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.case_settings import Settings
from edgemeter.provisioning.apply.board import ExaminedBoard, Interpreter
from edgemeter.provisioning.content.store import ContentStore
from edgemeter.provisioning.elsewhere import board_release
from edgemeter.provisioning.inventory.fleet_file import open_registry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.release import manifest
from edgemeter.provisioning.update import releases
from tests.fixtures import device_release, small_release
from tests.fixtures.replay_case import write_replay

TARGET = small_release.this_target()
PYTHON = Interpreter(TARGET.python_text, "/usr/bin/python3")
BOARD = ExaminedBoard(
    arch=TARGET.arch, system="Debian", board="Raspberry Pi 5 Model B Rev 1.0", pythons=(PYTHON,), glibc=TARGET.glibc, rights="none",
    has_systemd=True, has_openssl=False, home="/home/pi", disk="/", free_bytes=0, home_disk="/", home_free_bytes=0, release=None,
    manifest_sha256=None,
)  # fmt: skip


@pytest.mark.needs("openssl")
@pytest.mark.parametrize(("version", "is_used"), [(metadata.version("edgemeter").partition("+")[0], True), ("0.0.1", False)])
def test_a_release_of_the_fleet_is_used_if_it_is_of_this_version(tmp_path, workstation, version, is_used):
    """Verified by the fleet's key; one of another version would write other results."""
    fleet = FleetFolder(tmp_path / "fleet")
    path = device_release.make(tmp_path / "made", fleet, f"{version}+12345678", python=TARGET.python_text)
    fleet.fleet_file.write_text('fleet = "lab"\n')
    with open_registry(fleet) as registry:
        releases.add_release(fleet, registry, manifest.read_release(path, fleet.release_public_key))
    assert len(board_release._of_fleet(fleet, BOARD, print)) == is_used
    if is_used:
        offered, python = board_release.release_for(BOARD, PYTHON, (), None, fleet, tmp_path, workstation.lines.append)
        assert (offered.manifest.version, python) == (f"{version}+12345678", PYTHON)
        next(ContentStore(fleet.content)._folder.iterdir()).write_bytes(b"other")
        assert board_release._of_fleet(fleet, BOARD, workstation.lines.append) == []
        assert "not every release of the fleet is used" in workstation.lines[-1]


@pytest.mark.services
@pytest.mark.usefixtures("index")
def test_a_board_of_another_kind_gets_the_wheels_of_its_own(tmp_path, workstation):
    """Those of this machine are not for it, and the message names what it would need."""
    other = replace(BOARD, arch="aarch64" if TARGET.arch == "x86_64" else "x86_64")
    with pytest.raises(ConfigError, match=f"no wheels for .*{other.arch}, Python {TARGET.python_text}"):
        board_release.release_for(other, PYTHON, (), None, workstation.options["fleet_folder"], tmp_path, print)


def test_this_python_is_preferred():
    """Wheels for it are certainly there; the first that will do stands for it otherwise."""
    older, newer = Interpreter("3.9", "/usr/bin/python3"), Interpreter("3.99", "/opt/python")
    assert board_release.interpreter_of(replace(BOARD, pythons=(older, newer, PYTHON)), "pi") == PYTHON
    assert board_release.interpreter_of(replace(BOARD, pythons=(older, newer)), "pi") == newer


def test_a_release_has_the_extras_of_the_runtimes_only(tmp_path):
    """A small board on a slow line gets nothing that it does not run."""
    write_replay(tmp_path)
    # What was installed before an extra was added does not offer it.
    offered = metadata.metadata("edgemeter").get_all("Provides-Extra")
    for case, extras in (
        (Settings(model="m.tflite"), ("litert",)),
        (Settings(model="m_edgetpu.tflite", runtime="edgetpu"), ("coral",)),
        (Settings(model="m.onnx", runtime=["onnx", "openvino"]), ("onnx", "openvino")),
        (Settings(model="m.gguf"), ("llama",)),
        (Settings(model="m.replay.json"), ()),
        (Settings(model="m.tflite", data="0a-a.MP4.zip"), ("litert", "video")),
    ):
        assert board_release.extras_of([case], tmp_path) == tuple(extra for extra in extras if extra in offered), case
