"""Facts about the helpers of emulated boards: only a machine that cannot enter an arm64 system skips, a failure is a failure."""

import subprocess
import sys

import pytest

from tests.arm64.emulation import succeeded


def ended(*command):
    """Run a command and return how it ended."""
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_failure_that_mentions_binfmt_misc_is_a_failure():
    """The exit status comes first, then what refused."""
    code = "sys.stderr.write('a note on binfmt_misc'); sys.exit({})"
    succeeded(ended(sys.executable, "-c", f"import sys; {code.format(0)}"))
    with pytest.raises(AssertionError, match="a note on binfmt_misc"):
        succeeded(ended(sys.executable, "-c", f"import sys; {code.format(3)}"))


@pytest.mark.needs("setpriv")
def test_a_machine_that_refuses_the_mount_skips():
    """As mount says it to a user without rights."""
    refused = ended("setpriv", "--no-new-privs", "--bounding-set=-all", "mount", "-t", "binfmt_misc", "b", "/proc/sys/fs/binfmt_misc")
    if refused.returncode == 0:
        pytest.skip("this machine mounts binfmt_misc for anybody")
    with pytest.raises(pytest.skip.Exception, match="no binfmt_misc"):
        succeeded(refused)
