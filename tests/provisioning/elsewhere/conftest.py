import os
import shutil
import tempfile
from importlib import import_module, metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.contract import suite
from edgemeter.agent.contract.case_settings import Settings
from edgemeter.agent.measuring.settings import SessionSettings
from edgemeter.provisioning.elsewhere import over_ssh
from tests.fixtures.pip_wheel import compiled_pip, repack_wheel
from tests.provisioning.elsewhere.board_bench import BoardBench


@pytest.fixture
def board(tmp_path):
    """Return a board; its sshd ends with the test."""
    on_board = BoardBench(tmp_path / "board")
    yield on_board
    on_board.close()


class SshWorkstation:
    """A workstation that measures on a board; `lines` are what it showed."""

    def __init__(self, folder, board):
        self.lines = []
        self._folder, self._board = folder, board

    def measure(self, *models, report=None, release=None, power=None, **settings):
        """Measure models on the board; return their records, the errors, and the interruption."""
        case = Settings(model=[str(model) for model in models], **settings)
        session = SessionSettings(release=release, power=power)
        written = suite.SuiteFile(name="s", case=[case])
        packed = over_ssh.BoardSuite(
            Path(tempfile.mkdtemp(dir=self._folder)), written, self._folder
        )
        runs = SimpleNamespace(records=[], errors=[], interruption=None)
        try:
            for outcome in over_ssh.measure(
                self._board.target,
                packed,
                session,
                report or self.lines.append,
                self._board.server.options(),
            ):
                (runs.errors if isinstance(outcome, EdgemeterError) else runs.records).append(
                    outcome
                )
        except KeyboardInterrupt as error:
            runs.interruption = error
        return runs


@pytest.fixture
def workstation(tmp_path, board):
    return SshWorkstation(tmp_path, board)


def pack_installed(folder: Path, *extras: str) -> Path:
    """Return `folder` with the wheels that edgemeter with these extras needs, and pip's.

    Edgemeter's own wheel is left out.
    """
    requirements = import_module("pip._vendor.packaging.requirements")
    folder.mkdir()
    shutil.copy2(compiled_pip(), folder)
    waiting = [(requirements.Requirement("edgemeter"), set(extras))]
    packed = set()
    while waiting:
        requirement, wanted_extras = waiting.pop()
        name = requirement.name.lower().replace("_", "-")
        if (name, *sorted(wanted_extras)) in packed:
            continue
        packed.add((name, *sorted(wanted_extras)))
        if name != "edgemeter" and not list(
            folder.glob(f"{requirement.name.replace('-', '_')}-*.whl")
        ):
            repack_wheel(requirement.name, folder)
        for text in metadata.requires(requirement.name) or ():
            dependency = requirements.Requirement(text)
            if dependency.marker is None or any(
                dependency.marker.evaluate({"extra": extra}) for extra in wanted_extras or {""}
            ):
                waiting.append((dependency, set(dependency.extras)))
    return folder


@pytest.fixture(scope="session")
def installed_wheels(tmp_path_factory):
    """Return a folder with the wheels of a release that runs .tflite files, and a home folder.

    The home folder is for the releases that are made of the wheels.
    """
    folder = tmp_path_factory.mktemp("elsewhere")
    return SimpleNamespace(wheels=pack_installed(folder / "wheels", "litert"), home=folder / "home")


@pytest.fixture
def index(monkeypatch, installed_wheels):
    """Let pip find those wheels and no others, and find a release that another test has made."""
    for name in ("EXTRA_INDEX_URL", "INDEX_URL"):
        monkeypatch.delenv(f"PIP_{name}", raising=False)
    for name, value in {
        "CONFIG_FILE": os.devnull,
        "NO_INDEX": "1",
        "FIND_LINKS": str(installed_wheels.wheels),
    }.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setenv("EDGEMETER_HOME", str(installed_wheels.home))
