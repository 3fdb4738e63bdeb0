"""Tests of the script that runs as root on a device.

Each of its steps reports what it found right and what it put right.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edgemeter import provisioning
from edgemeter.provisioning.apply import on_device

UNITS = Path(provisioning.__file__).with_name("units")


class Inside:
    """A device below `prefix`, whose programs are those of `bin` before this machine's."""

    def __init__(self, folder):
        self.prefix, self.bin = folder / "prefix", folder / "bin"
        for path in (self.prefix / "etc", self.bin):
            path.mkdir(parents=True)
        self.environment = {}

    def plan(self, name, **changed):
        return {"prefix": str(self.prefix), "steps": [name], **changed}

    def step(self, name, **changed):
        """Return state and detail of one step, in this process: the device has no program."""
        try:
            return getattr(on_device.LocalDevice(self.plan(name, **changed)), name)()
        except on_device.StepError as error:
            return "failed", str(error)

    def sent(self, name, **changed):
        """Return state and detail of one step as the device runs it, by the script that is sent."""
        environment = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", **self.environment}
        command = [sys.executable, on_device.__file__, json.dumps(self.plan(name, **changed))]
        output = subprocess.run(
            command, text=True, capture_output=True, check=True, timeout=300, env=environment
        ).stdout
        (step,) = [json.loads(line) for line in output.splitlines()]
        return step["state"], step["detail"]

    def program(self, name, text):
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)


@pytest.fixture
def inside(tmp_path):
    return Inside(tmp_path)


@pytest.mark.needs("useradd")
@pytest.mark.skipif(os.geteuid() != 0, reason="useradd --prefix needs root")
def test_the_user_gets_the_groups_that_the_board_has(inside):
    """The user is added to the groups that the board has, and to no others.

    The second time nothing changes; a group that comes later is added.
    """
    (inside.prefix / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (inside.prefix / "etc/group").write_text("root:x:0:\nvideo:x:44:\ngpio:x:994:pi\n")
    for name in ("shadow", "gshadow", "login.defs"):
        (inside.prefix / "etc" / name).write_text("")
    assert inside.sent("user", dry=True) == ("changed", "user edgemeter, groups video gpio")
    assert "edgemeter" not in (inside.prefix / "etc/passwd").read_text()
    assert inside.sent("user") == ("changed", "user edgemeter, groups video gpio")
    groups = (inside.prefix / "etc/group").read_text()
    assert "gpio:x:994:pi,edgemeter\n" in groups
    assert "edgemeter:x:" in groups
    assert "/usr/sbin/nologin" in (inside.prefix / "etc/passwd").read_text()
    assert inside.sent("user") == ("ok", "")
    (inside.prefix / "etc/group").write_text(groups + "spi:x:993:\n")
    assert inside.sent("user") == ("changed", "groups spi")


@pytest.mark.needs("systemctl")
def test_units_are_enabled_below_the_prefix(inside):
    """The program systemctl itself enables the units below the prefix."""
    shutil.copytree(UNITS, inside.prefix / "opt/edgemeter/current/units")
    assert inside.sent("units")[0] == "changed"
    for unit in ("agent", "supervisor"):
        assert (
            inside.prefix / f"etc/systemd/system/multi-user.target.wants/edgemeter-{unit}.service"
        ).is_symlink()
    assert inside.sent("units")[0] == "ok"


@pytest.mark.services
def test_rules_that_changed_are_applied_to_what_is_plugged_in(inside):
    """Changed udev rules are applied to plugged-in devices until the agent has started with them.

    That is done by udev where it runs; afterwards nothing is triggered any more.
    """
    shutil.copytree(UNITS, inside.prefix / "opt/edgemeter/current/units")
    control, calls = inside.prefix / "run/udev/control", inside.prefix / "calls"
    control.parent.mkdir(parents=True)
    control.touch()
    inside.program("udevadm", f'#!/bin/sh\necho "$1" >>{calls}\n')
    for _ in range(2):
        inside.sent("units")
        assert calls.read_text().split() == ["control", *["trigger"] * 4]
        calls.unlink()
    (inside.prefix / "run/edgemeter-apply-restart").unlink()
    assert inside.sent("units")[0] == "ok"
    assert not calls.exists()


def test_the_supervisor_gets_the_python_that_was_brought(inside):
    """The supervisor uses the Python that was brought, and stops doing so when it is gone."""
    python = "/opt/edgemeter/pythons/3.11/bin/python3"
    assert inside.step("units", python=python)[0] == "changed"
    drop_in = inside.prefix / "etc/systemd/system/edgemeter-supervisor.service.d/python.conf"
    assert (
        "\nExecStart=\nExecStart=/opt/edgemeter/pythons/3.11/bin/python3 "
        "/opt/edgemeter/proven/supervisor.py\n"
    ) in drop_in.read_text()
    assert inside.step("units")[0] == "changed"
    assert "ExecStart=/usr/bin/python3 " in drop_in.read_text()
    assert inside.step("units")[0] == "ok"
