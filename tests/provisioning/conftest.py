"""A root of Debian trixie for this machine: made by mmdebstrap (two minutes, 280 MB, once a session), or the tar $EDGEMETER_TRIXIE_ROOT."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

PACKAGES = "systemd-sysv,udev,cloud-init,netplan.io,python3,openssl,iproute2,sudo,openssh-server"


@pytest.fixture(scope="session")
def trixie(tmp_path_factory) -> Path:
    """Return the tar of a Debian trixie with cloud-init, or skip."""
    given = os.environ.get("EDGEMETER_TRIXIE_ROOT")
    if given:
        return Path(given)
    if os.geteuid() != 0:
        pytest.skip("chroot needs root")
    program = shutil.which("mmdebstrap")
    if program is None:
        pytest.skip("mmdebstrap is not here (apt install mmdebstrap)")
    tar = tmp_path_factory.mktemp("trixie") / "root.tar"
    made = subprocess.run(
        [program, "--variant=minbase", f"--include={PACKAGES}", "trixie", str(tar)],
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    if made.returncode != 0:
        pytest.skip(f"mmdebstrap cannot reach Debian: {made.stderr.strip().splitlines()[-1]}")
    return tar
