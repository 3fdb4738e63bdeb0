"""Facts about the helpers of emulated boards: only a machine that cannot enter an arm64 system skips, a failure is a failure."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.arm64.emulation import succeeded
from tests.requirements import BOARD_PROGRAMS

MAKE_ROOT = Path(__file__).with_name("make_root.sh")


def ended(*command):
    """Run a command and return how it ended."""
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_failure_that_mentions_binfmt_misc_is_a_failure():
    """The exit status comes first, then what refused."""
    code = "sys.stderr.write('a note on binfmt_misc'); sys.exit({})"
    succeeded(ended(sys.executable, "-c", f"import sys; {code.format(0)}"))
    with pytest.raises(AssertionError, match="a note on binfmt_misc"):
        succeeded(ended(sys.executable, "-c", f"import sys; {code.format(3)}"))


def test_a_program_that_boards_need_is_missed_before_anything_is_fetched(tmp_path):
    """All of them are asked for first; a shell without any says which one is absent, and makes no folder."""
    (tools,) = re.findall(r'^board_tools="(.+)"$', MAKE_ROOT.read_text(), re.MULTILINE)
    assert set(BOARD_PROGRAMS) <= set(tools.split())
    command = [shutil.which("sh"), str(MAKE_ROOT), "boards"]
    missed = subprocess.run(
        command, env={"PATH": "", "EDGEMETER_ARM64": str(tmp_path / "arm64")}, capture_output=True, text=True, check=False
    )
    assert missed.returncode == 77, missed.stderr
    assert "is not installed" in missed.stderr
    assert not (tmp_path / "arm64").exists()


@pytest.mark.needs("setpriv")
def test_a_machine_that_refuses_the_mount_skips():
    """As mount says it to a user without rights."""
    refused = ended("setpriv", "--no-new-privs", "--bounding-set=-all", "mount", "-t", "binfmt_misc", "b", "/proc/sys/fs/binfmt_misc")
    if refused.returncode == 0:
        pytest.skip("this machine mounts binfmt_misc for anybody")
    with pytest.raises(pytest.skip.Exception, match="no binfmt_misc"):
        succeeded(refused)
