"""Facts about completion in a shell: what bash completes on a terminal, and what the other shells are given."""

import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest

BIN = str(Path(sys.executable).parent)
PATIENCE_S = 60.0


class Bash:
    """An interactive bash on a terminal, in which completion was switched on as docs/completion.md says."""

    def __init__(self, folder: Path) -> None:
        self.terminal, end = pty.openpty()
        environment = {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(folder), "TERM": "dumb", "PS1": "> ", "INPUTRC": "/dev/null"}
        self.process = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-i"], stdin=end, stdout=end, stderr=end, env=environment, cwd=folder, start_new_session=True
        )
        os.close(end)
        self.type('eval "$(_EDGEMETER_COMPLETE=bash_source edgemeter)" && echo rea""dy\n')
        self.read_until("ready")

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self.terminal, keys.encode())

    def read_until(self, text: str) -> str:
        """Return what the terminal shows up to `text`."""
        printed = ""
        while text not in printed:
            if not select.select([self.terminal], [], [], PATIENCE_S)[0]:
                pytest.fail(f"{text!r} was not shown: {printed!r}")
            printed += os.read(self.terminal, 4096).decode(errors="replace")
        return printed

    def close(self) -> None:
        """End the shell."""
        self.process.kill()
        self.process.wait()
        os.close(self.terminal)


@pytest.fixture
def bash(tmp_path):
    """A bash in a folder with one folder and one model."""
    folder = tmp_path
    (folder / "photos-of-the-yard").mkdir()
    (folder / "own_model.tflite").touch()
    shell = Bash(folder)
    yield shell
    shell.close()


@pytest.mark.needs("bash")
def test_bash_completes(bash):
    """Commands, options, sensors, models of the catalogue and files, by the key that everybody presses."""
    for typed, completed in (
        ("edgemeter sens\t", "edgemeter sensors "),
        ("edgemeter run --annot\t", "--annotations "),
        ("edgemeter run --power rapl,pi5\t", "rapl,pi5_pmic "),
        ("edgemeter run -m own\t", "own_model.tflite "),
        ("edgemeter run edgemeter-shapes_int8.t\t", "edgemeter-shapes_int8.tflite "),
        ("edgemeter run -i pho\t", "photos-of-the-yard/"),
    ):
        bash.type(typed)
        bash.read_until(completed)
        bash.type("\x15")
