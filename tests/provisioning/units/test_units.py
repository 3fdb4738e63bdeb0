"""The unit files and udev rules of a device."""

import grp
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from edgemeter import provisioning

UNITS = Path(provisioning.__file__).with_name("units")
RULES = UNITS / "70-edgemeter.rules"
CORAL = ("1a6e", "089a"), ("18d1", "9302")


@pytest.mark.needs("systemd-analyze")
def test_systemd_accepts_every_unit(tmp_path):
    """The program systemd finds no unknown key and no wrong value in any unit.

    Programs that a device has and this machine lacks are replaced by stand-ins.
    """
    for unit in UNITS.glob("*.service"):
        (tmp_path / unit.name).write_text(
            re.sub(
                r"^ExecStart=\S+",
                f"ExecStart={shutil.which('true')}",
                unit.read_text(),
                flags=re.MULTILINE,
            )
        )
    units = sorted(tmp_path.glob("*.service"))
    completed = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert units
    assert (completed.returncode, completed.stdout + completed.stderr) == (0, "")


def test_the_agent_can_be_watched_and_comes_back():
    """The agent reports when it is ready, and is restarted without end.

    It is ended when it hangs.
    """
    unit = (UNITS / "edgemeter-agent.service").read_text()
    for line in (
        "Type=notify",
        "Restart=always",
        "StartLimitIntervalSec=0",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "User=edgemeter",
    ):
        assert f"\n{line}\n" in unit
    # Bubblewrap makes namespaces, calls openat2, mounts a /proc: the kernel refuses that where a
    # part of its own is covered.
    for key in (
        "RestrictNamespaces",
        "RestrictSUIDSGID",
        "ProtectKernelTunables",
        "ProtectKernelLogs",
        "ProtectProc",
        "ProcSubset",
    ):
        assert f"\n{key}=" not in unit
    assert unit.index("SystemCallFilter=~") < unit.index(
        "\nSystemCallFilter=mount umount2 pivot_root\n"
    )
    assert int(re.search(r"^WatchdogSec=(\d+)$", unit, re.MULTILINE)[1]) >= 30


@pytest.mark.services
def test_a_sensor_becomes_readable_by_the_group_and_nothing_else_does(tmp_path):
    """The very command of the udev rule makes a sensor readable by the group, and nothing else.

    It runs on a folder like the kernel's, which only root can read.
    """
    group = grp.getgrgid(os.getgid()).gr_name
    for subsystem, opened, closed in (
        ("powercap", ["energy_uj"], ["uevent"]),
        ("hwmon", ["in1_input", "power1_average"], ["name"]),
    ):
        folder = tmp_path / subsystem
        folder.mkdir()
        for name in (*opened, *closed):
            (folder / name).write_text("1\n")
            (folder / name).chmod(0o400)
        command = re.search(
            rf'^SUBSYSTEM=="{subsystem}".*RUN\+="/bin/sh -c \'(.*)\'"$',
            RULES.read_text(),
            re.MULTILINE,
        )[1]
        local_command = (
            command.replace("/sys%p", str(folder))
            .replace("$$", "$")
            .replace("chgrp edgemeter", f"chgrp {group}")
        )
        subprocess.run(["/bin/sh", "-c", local_command], check=True, timeout=150)
        assert all((folder / name).stat().st_mode & 0o777 == 0o440 for name in opened)
        assert all((folder / name).stat().st_mode & 0o777 == 0o400 for name in closed)
