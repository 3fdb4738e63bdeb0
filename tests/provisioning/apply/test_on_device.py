"""The script that runs as root on a device, step by step: what it finds right, what it puts right."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from edgemeter.provisioning.apply import applying, on_device

NVPMODEL = """#!/bin/sh
[ "$1" = -q ] || echo "$2" > "$STATE.asked"
[ "$1" = -m ] && [ "$2" != 0 ] && echo "$2" > "$STATE"
id=$(cat "$STATE")
[ "$1" = -q ] && { echo "NV Power Mode: $(sed -n "s/.*ID=$id NAME=\\([^ ]*\\) .*/\\1/p" "$CONF")"; echo "$id"; }
exit 0
"""
MODES = (
    "# comment\n< POWER_MODEL ID=0 NAME=MAXN_SUPER >\nCPU_ONLINE CORE_0 1\n< POWER_MODEL ID=1 NAME=25W >\n< POWER_MODEL ID=2 NAME=15W >\n"
)


class Inside:
    """A device below `prefix`, whose programs are those of `bin` before this machine's."""

    def __init__(self, folder):
        self.prefix, self.bin, self.sysfs = folder / "prefix", folder / "bin", folder / "prefix/sys"
        for path in (self.prefix / "etc", self.bin, self.sysfs):
            path.mkdir(parents=True)
        self.environment = {}

    def plan(self, name, **changed):
        """Return the plan of one step."""
        return {
            "prefix": str(self.prefix),
            "dry": False,
            "steps": [name],
            "install": None,
            "release": "nothing -> 1.0.0",
            "is_newer": False,
            "public_key": "key",
            "join": None,
            "rejoin": False,
            "python_drop_in": applying.PYTHON_DROP_IN.format("/usr/bin/python3"),
            "governor_unit": applying.GOVERNOR_UNIT.read_text().format(changed.get("governor", "")),
            **changed,
        }

    def step(self, name, **changed):
        """Return state and detail of one step, in this process: the device has no program."""
        try:
            return getattr(on_device.LocalDevice(self.plan(name, **changed)), name)()
        except on_device.StepError as error:
            return "failed", str(error)

    def sent(self, name, **changed):
        """Return state and detail of one step as the device runs it, by the script that is sent."""
        program = applying.device_program(self.plan(name, **changed))
        environment = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", **self.environment}
        command = [sys.executable, "-"]
        output = subprocess.run(command, input=program, text=True, capture_output=True, check=True, timeout=300, env=environment).stdout
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
            if available:
                (folder / "scaling_available_governors").write_text(f"{available}\n")

    def governors(self):
        """Return the governor of each CPU."""
        return [path.read_text().strip() for path in sorted(self.sysfs.glob("devices/system/cpu/cpufreq/policy*/scaling_governor"))]


@pytest.fixture
def inside(tmp_path):
    """Return a device, seen from inside."""
    return Inside(tmp_path)


@pytest.fixture
def jetson(inside):
    """Return a Jetson in the mode 25W, whose mode 0 needs a boot."""
    inside.program("nvpmodel", NVPMODEL)
    (inside.prefix / "etc/nvpmodel.conf").write_text(MODES)
    (inside.prefix / "state").write_text("1\n")
    inside.environment = {"STATE": str(inside.prefix / "state"), "CONF": str(inside.prefix / "etc/nvpmodel.conf")}
    return inside


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


@pytest.mark.services
def test_power_mode_is_set_by_name_or_number_and_found_right(jetson):
    """Name and number are those of nvpmodel.conf; a dry run asks nvpmodel for nothing.

    nvpmodel ends well and does nothing without a boot; an unknown mode names the board's own.
    """
    assert jetson.sent("power_mode", power_mode="25W") == ("ok", "1 25W")
    assert jetson.sent("power_mode", power_mode="1") == ("ok", "1 25W")
    assert jetson.sent("power_mode", power_mode="15W", dry=True) == ("changed", "1 25W -> 15W")
    assert not (jetson.prefix / "state.asked").exists()
    assert jetson.sent("power_mode", power_mode="15W") == ("changed", "1 25W -> 15W")
    assert jetson.sent("power_mode", power_mode="2") == ("ok", "2 15W")
    for mode, remedy in (("MAXN_SUPER", "nvpmodel -m 0"), ("30W", "MAXN_SUPER, 25W, 15W")):
        state, detail = jetson.sent("power_mode", power_mode=mode)
        assert (state, remedy in detail) == ("failed", True), (mode, detail)


def test_settings_that_a_measurement_has_changed_for_its_time_are_left_alone(inside):
    """They are not taken for the board's own: at its end, or at the next start, they are put back."""
    inside.cpus()
    path = inside.prefix / "var/lib/edgemeter-restore.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    for step, setting in (("power_mode", "25W"), ("governor", "performance")):
        state, detail = inside.step(step, **{step: setting})
        assert (state, "changed the settings for its time" in detail) == ("failed", True)
    assert inside.governors() == ["ondemand", "ondemand"]


def test_the_governor_holds_now_and_after_each_boot(inside):
    """The files of the kernel, and a unit for the next boots; the second time nothing; a dry run changes nothing."""
    inside.cpus()
    assert inside.step("governor", governor="performance", dry=True)[0] == "changed"
    assert inside.governors() == ["ondemand", "ondemand"]
    assert inside.step("governor", governor="performance")[0] == "changed"
    assert inside.governors() == ["performance", "performance"]
    assert "echo performance >" in (inside.prefix / "etc/systemd/system/edgemeter-governor.service").read_text()
    assert inside.step("governor", governor="performance")[0] == "ok"


@pytest.mark.needs("systemctl", "systemd-analyze")
def test_units_are_enabled_below_the_prefix(inside):
    """By systemctl itself; `systemd-analyze verify` finds nothing wrong in the governor's unit."""
    inside.cpus()
    shutil.copytree(applying.GOVERNOR_UNIT.parent, inside.prefix / "opt/edgemeter/current/units")
    assert inside.sent("service")[0] == inside.sent("governor", governor="performance")[0] == "changed"
    assert (inside.prefix / "etc/systemd/system/multi-user.target.wants/edgemeter-agent.service").is_symlink()
    assert inside.sent("service")[0] == "ok"
    unit = inside.prefix / "etc/systemd/system/edgemeter-governor.service"
    verified = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False, timeout=300)
    assert (verified.returncode, verified.stderr) == (0, "")


def test_an_unknown_governor_is_refused(inside, tmp_path):
    """Also where the kernel lists none: what stands in fleet.toml gets into no shell."""
    for device, available in ((inside, "ondemand powersave"), (Inside(tmp_path / "other"), "")):
        device.cpus(available)
        assert device.step("governor", governor="fast; touch /tmp/x")[0] == "failed"
        assert not (device.prefix / "etc/systemd/system").exists()


def test_the_supervisor_gets_the_python_that_was_brought(inside):
    """And no longer, when there is none."""
    python = "/opt/edgemeter/pythons/3.11/bin/python3"
    assert inside.step("service", python_drop_in=applying.PYTHON_DROP_IN.format(python))[0] == "changed"
    drop_in = inside.prefix / "etc/systemd/system/edgemeter-supervisor.service.d/python.conf"
    assert "\nExecStart=\nExecStart=/opt/edgemeter/pythons/3.11/bin/python3 /opt/edgemeter/supervisor.py\n" in drop_in.read_text()
    assert inside.step("service")[0] == "changed"
    assert "ExecStart=/usr/bin/python3 " in drop_in.read_text()
    assert inside.step("service")[0] == "ok"
