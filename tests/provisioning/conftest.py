"""A root of Debian trixie for this machine: made by mmdebstrap (two minutes, 280 MB, once a session), or the tar $EDGEMETER_TRIXIE_ROOT."""

import os
import subprocess
from pathlib import Path

import pytest

from tests import requirements

PACKAGES = "systemd-sysv,udev,cloud-init,netplan.io,python3,openssl,iproute2,sudo,openssh-server"


@pytest.fixture(scope="session")
def trixie(tmp_path_factory) -> Path:
    """Return the tar of a Debian trixie with cloud-init; skip where it cannot be made."""
    root_tar = os.environ.get("EDGEMETER_TRIXIE_ROOT")
    if root_tar:
        return Path(root_tar)
    if os.geteuid() != 0:
        pytest.skip("chroot needs root")
    program = requirements.program("mmdebstrap", marker="trixie")
    tar = tmp_path_factory.mktemp("trixie") / "root.tar"
    completed = subprocess.run(
        [program, "--variant=minbase", f"--include={PACKAGES}", "trixie", str(tar)],
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    if completed.returncode != 0:
        pytest.skip(f"mmdebstrap cannot reach Debian: {completed.stderr.strip().splitlines()[-1]}")
    return tar
