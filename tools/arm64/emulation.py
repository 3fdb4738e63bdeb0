"""The parts of emulated boards: the folder of `make_root.sh` and the programs of Debian."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests import requirements

# Errors of mount and the shell where a user namespace has no binfmt_misc of its own.
NO_BINFMT = re.compile(
    r"mount: .*binfmt_misc: (permission denied|must be superuser|unknown filesystem)|cannot "
    r"create .*binfmt_misc/register|unshare failed"
)


def folder() -> Path:
    """Return the folder of `make_root.sh boards`; skip the test where we are not root."""
    if os.geteuid() != 0:
        pytest.skip("the root file system's owners are kept by root only")
    boards = requirements.boards_folder()
    if boards is None:
        raise RuntimeError(
            "no boards' system is here: the test that starts a board must carry the marker "
            "`emulated_board`"
        )
    return boards


def run(*words: str | Path, **settings: object) -> bytes:
    """Run a program of Debian's and return its output.

    The test fails with its words when it fails.
    """
    command = [requirements.program(str(words[0])), *map(str, words[1:])]
    completed = subprocess.run(  # type: ignore[call-overload]
        command, capture_output=True, check=False, **settings
    )
    if completed.returncode:
        message = (
            f"{words[0]}: {completed.stderr.decode(errors='replace')}"
            f"{completed.stdout.decode(errors='replace')}"
        )
        raise AssertionError(message)
    return bytes(completed.stdout)


def succeeded(completed: "subprocess.CompletedProcess[str]") -> None:
    """Fail unless a command in the arm64 system ended well.

    The test is skipped where such a system cannot be entered on this machine.
    """
    if completed.returncode != 0 and NO_BINFMT.search(completed.stderr):
        pytest.skip(
            f"no binfmt_misc in a user namespace here (Linux >= 6.7): {completed.stderr.strip()}"
        )
    assert completed.returncode == 0, completed.stdout + completed.stderr
