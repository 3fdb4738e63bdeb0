"""Fixtures of the tests on arm64: the arm64 system, and a release for it from real wheels."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from edgemeter.provisioning.release import boards, release_file
from tests import requirements
from tests.fixtures import small_release
from tools.arm64 import card, emulation
from tools.arm64.board import HOST
from tools.fleet.fleet_server import served


@pytest.fixture(scope="module")
def system():
    folder = requirements.arm64_folder()
    if folder is None:
        raise RuntimeError(
            "no arm64 system is here: the test that enters it must carry the marker `arm64`"
        )
    return folder / "root"


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    reach = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        tmp_path_factory.mktemp("reach"),
        "click",
    ]
    if (
        subprocess.run([str(word) for word in reach], capture_output=True, check=False).returncode
        != 0
    ):
        pytest.skip("no package index can be reached")


@pytest.fixture(scope="module")
def pi4(index, tmp_path_factory):  # noqa: ARG001 - has to be there
    """Return a release for a Raspberry Pi 4 with LiteRT and llama.cpp, and its key.

    The wheels are real.
    """
    folder = tmp_path_factory.mktemp("pi4")
    key, public = small_release.keys(folder)
    target = boards.release_target("pi4")
    built = release_file.build_release(
        target, ("litert", "llama"), folder / "pi4.tar", lambda _: None, key=key
    )
    return SimpleNamespace(path=built.path, manifest=built.manifest, key=key, public=public)


@pytest.fixture(scope="module")
def board_files(tmp_path_factory):
    emulation.folder()
    folder = tmp_path_factory.mktemp("arm64")
    card.initrd(folder / "initrd")
    card.blank(folder / "blank.img")
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served(tmp_path_factory.mktemp("server"), HOST) as running:
        running.command(
            "release",
            "build",
            "--board",
            "pi4",
            "--python",
            "3.13",
            "--output",
            running.folder.parent / "pi4.tar",
        )
        yield running
