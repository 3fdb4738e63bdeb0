"""What emulated boards are made of: the folder of `make_root.sh` and the programs of Debian."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests import requirements

# What mount and the shell print where a user namespace has no binfmt_misc of its own.
NO_BINFMT = re.compile(
    r"mount: .*binfmt_misc: (permission denied|must be superuser|unknown filesystem)|cannot create .*binfmt_misc/register|unshare failed"
)


def folder() -> Path:
    """Return the folder of `make_root.sh boards`; skip the test where we are not root."""
    if os.geteuid() != 0:
        pytest.skip("the root file system's owners are kept by root only")
    made = requirements.boards_folder()
    if made is None:
        raise RuntimeError("no boards' system is here: the test that starts a board must carry the marker `emulated_board`")
    return made


def run(*words: str | Path, **more: object) -> bytes:
    """Run a program of Debian's and return what it printed; the test fails with its words when it fails."""
    command = [requirements.program(str(words[0])), *map(str, words[1:])]
    done = subprocess.run(command, capture_output=True, check=False, **more)  # type: ignore[call-overload]
    if done.returncode:
        message = f"{words[0]}: {done.stderr.decode(errors='replace')}{done.stdout.decode(errors='replace')}"
        raise AssertionError(message)
    return bytes(done.stdout)


def succeeded(done: "subprocess.CompletedProcess[str]") -> None:
    """Fail unless a command in the arm64 system ended well; skip where such a system cannot be entered on this machine."""
    if done.returncode != 0 and NO_BINFMT.search(done.stderr):
        pytest.skip(f"no binfmt_misc in a user namespace here (Linux >= 6.7): {done.stderr.strip()}")
    assert done.returncode == 0, done.stdout + done.stderr
