"""A fleet without a broker, one with its broker and service, and the root of a Debian trixie."""

import os
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.provisioning.identity import enforcement
from tests import requirements
from tests.provisioning.identity.lab import Lab

PACKAGES = "systemd-sysv,udev,cloud-init,netplan.io,python3,openssl,iproute2,sudo,openssh-server"


@pytest.fixture
def no_broker(monkeypatch):
    """Let no broker answer the commands."""

    def refuse(address, _client_id, _state):
        raise UnavailableError(f"no MQTT broker answers at {address}")

    monkeypatch.setattr(enforcement, "end_session", refuse)


@pytest.fixture
def lab(tmp_path, no_broker):  # noqa: ARG001 - for what it does
    with ExitStack() as stack:
        yield Lab(tmp_path, stack, (8883, 8443))


@pytest.fixture
def broker_lab(tmp_path):
    """Return a fleet whose broker does not run yet.

    A test that starts the broker needs the marker `mosquitto`.
    """
    with ExitStack() as stack:
        yield Lab(tmp_path, stack)


@pytest.fixture
def running_lab(broker_lab):
    return broker_lab.start()


@pytest.fixture(scope="session")
def trixie(tmp_path_factory) -> Path:
    """Return the tar of a Debian trixie with cloud-init.

    It is made by mmdebstrap (two minutes, 280 MB), or it is that of $EDGEMETER_TRIXIE_ROOT.
    """
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
