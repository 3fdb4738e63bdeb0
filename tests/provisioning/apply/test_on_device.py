"""The script that runs as root on a device, step by step: what it finds right, what it puts right."""

import json
import os
import re
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
        self.prefix, self.bin, self.sysfs = folder / "prefix", folder / "bin", folder / "prefix/sys"
        for path in (self.prefix / "etc", self.bin, self.sysfs):
            path.mkdir(parents=True)
        self.environment = {}

    def plan(self, name, **changed):
        """Return the plan of one step."""
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
        output = subprocess.run(command, text=True, capture_output=True, check=True, timeout=300, env=environment).stdout
        (step,) = [json.loads(line) for line in output.splitlines()]
        return step["state"], step["detail"]

    def program(self, name, text):
        """Let the device have a program."""
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def cpus(self, available="ondemand performance", now="ondemand", count=2):
        """Let the device have CPUs with governors."""
        for index in range(count):
            folder = self.sysfs / f"devices/system/cpu/cpufreq/policy{index}"
            folder.mkdir(parents=True)
            (folder / "scaling_governor").write_text(f"{now}\n")
            (folder / "scaling_available_governors").write_text(f"{available}\n")

    def governors(self):
        """Return the governor of each CPU."""
        return [path.read_text().strip() for path in sorted(self.sysfs.glob("devices/system/cpu/cpufreq/policy*/scaling_governor"))]


@pytest.fixture
def inside(tmp_path):
    """Return a device, seen from inside."""
    return Inside(tmp_path)


@pytest.mark.needs("useradd")
@pytest.mark.skipif(os.geteuid() != 0, reason="useradd --prefix needs root")
def test_the_user_gets_the_groups_that_the_board_has(inside):
    """Those of the board and no others; the second time nothing; a group that comes later is added."""
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


def test_settings_that_a_measurement_has_changed_for_its_time_are_left_alone(inside):
    """They are not taken for the board's own: at its end, or at the next start, they are put back."""
    inside.cpus()
    path = inside.prefix / "var/lib/edgemeter-restore.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    state, detail = inside.step("governor", governor="performance")
    assert (state, "changed the settings for its time" in detail) == ("failed", True)
    assert not (inside.prefix / "etc/edgemeter/governor").exists()


def test_the_governor_is_that_of_fleet_toml_at_each_boot(inside):
    """Its unit reads the file; a dry run changes nothing; what the board already has is left alone."""
    inside.cpus()
    governor = inside.prefix / "etc/edgemeter/governor"
    assert inside.step("governor", governor="performance", dry=True)[0] == "changed"
    assert not governor.exists()
    assert inside.step("governor", governor="performance") == ("changed", "at each boot, policy0, policy1")
    assert governor.read_text() == "performance\n"
    for path in inside.sysfs.glob("devices/system/cpu/cpufreq/policy*/scaling_governor"):
        path.write_text(governor.read_text())
    assert inside.step("governor", governor="performance") == ("ok", "")


@pytest.mark.services
def test_the_governors_unit_sets_every_policy_or_fails(inside):
    """The very command of the unit, on files as the kernel has them."""
    inside.cpus()
    (inside.prefix / "etc/edgemeter").mkdir()
    (inside.prefix / "etc/edgemeter/governor").write_text("performance\n")
    unit = (UNITS / "edgemeter-governor.service").read_text()
    command = re.search(r"^ExecStart=/bin/sh -c '(.*)'$", unit, re.MULTILINE)[1]
    local_command = command.replace("/sys/", f"{inside.sysfs}/").replace("/etc/", f"{inside.prefix}/etc/")
    subprocess.run(["/bin/sh", "-c", local_command], check=True, timeout=150)
    assert inside.governors() == ["performance", "performance"]
    (inside.prefix / "etc/edgemeter/governor").unlink()
    assert subprocess.run(["/bin/sh", "-c", local_command], capture_output=True, check=False, timeout=150).returncode == 1


@pytest.mark.needs("systemctl")
def test_units_are_enabled_below_the_prefix(inside):
    """By systemctl itself."""
    shutil.copytree(UNITS, inside.prefix / "opt/edgemeter/current/units")
    assert inside.sent("service")[0] == "changed"
    for unit in ("agent", "supervisor", "governor"):
        assert (inside.prefix / f"etc/systemd/system/multi-user.target.wants/edgemeter-{unit}.service").is_symlink()
    assert inside.sent("service")[0] == "ok"


def test_an_unknown_governor_is_refused(inside):
    """The message names those of the board, and no file is written."""
    inside.cpus("ondemand powersave")
    assert inside.step("governor", governor="fast; touch /tmp/x") == (
        "failed",
        "unknown governor 'fast; touch /tmp/x': there are ondemand, powersave",
    )
    assert not (inside.prefix / "etc/edgemeter").exists()


def test_the_supervisor_gets_the_python_that_was_brought(inside):
    """And no longer, when there is none."""
    python = "/opt/edgemeter/pythons/3.11/bin/python3"
    assert inside.step("service", python=python)[0] == "changed"
    drop_in = inside.prefix / "etc/systemd/system/edgemeter-supervisor.service.d/python.conf"
    assert "\nExecStart=\nExecStart=/opt/edgemeter/pythons/3.11/bin/python3 /opt/edgemeter/proven/supervisor.py\n" in drop_in.read_text()
    assert inside.step("service")[0] == "changed"
    assert "ExecStart=/usr/bin/python3 " in drop_in.read_text()
    assert inside.step("service")[0] == "ok"
