"""The systemd units of a fleet's server: for this folder, known to systemd, hardened, and with commands that the product has."""

import os
import re
import shlex
import shutil
import socket
import subprocess

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.service_manager import ServiceManager
from edgemeter.collector.cli.collector import up
from edgemeter.provisioning.cli.main import fleet
from edgemeter.provisioning.cli.serve import serve
from edgemeter.provisioning.identity import fleet_units
from edgemeter.provisioning.identity.fleet_units import BROKER_UNIT, COLLECTOR_UNIT, SERVICE_UNIT, TARGET
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from tests.fixtures.rows import table_row

ODD_NAME = 'our fleet 50%, $HOME and "b"'


def setting(text, name):
    """Return the value of a setting that stands there once."""
    (value,) = re.findall(rf"^{name}=(.*)$", text, re.MULTILINE)
    return value


def test_init_writes_the_units_and_prints_how_to_install_them(tmp_path):
    """Beside the fleet's files, in three lines."""
    arguments = ["init", "--broker", "broker.example", "--folder", str(tmp_path / "f")]
    printed = CliRunner().invoke(fleet, arguments, catch_exceptions=False).stderr
    lines = [line.strip() for line in printed.splitlines() if line.strip().startswith("sudo")]
    assert lines == list(fleet_units.install_lines(FleetFolder(tmp_path / "f")))
    assert len(lines) == 3
    assert {path.name for path in (tmp_path / "f").glob("edgemeter-*")} == {BROKER_UNIT, SERVICE_UNIT, COLLECTOR_UNIT, TARGET}


@pytest.mark.needs("systemd-analyze")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["fleet", ODD_NAME])
def test_systemd_takes_the_units(tmp_path, name):
    """`systemd-analyze verify` says nothing about them, whatever the folder is called."""
    program = tmp_path / "mosquitto"
    for unit, text in fleet_units.unit_texts(FleetFolder(tmp_path / name)).items():
        (tmp_path / unit).write_text(text if shutil.which("mosquitto") else text.replace("/usr/sbin/mosquitto", str(program)))
    program.write_text("")
    program.chmod(0o755)
    units = [tmp_path / unit for unit in (BROKER_UNIT, SERVICE_UNIT, COLLECTOR_UNIT, TARGET)]
    completed = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, check=False, timeout=300)
    assert (completed.returncode, completed.stderr) == (0, "")


@pytest.mark.needs("systemd-analyze")
@pytest.mark.slow
def test_systemd_calls_the_units_hardened(tmp_path):
    """`systemd-analyze security` rates the exposure of each at most as much as we say: 10 is a service without any protection."""
    for unit, text in fleet_units.unit_texts(FleetFolder(tmp_path / "f")).items():
        if unit == TARGET:
            continue
        (tmp_path / unit).write_text(text.replace("User=root", "User=nobody"))
        command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(tmp_path / unit)]
        printed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300).stdout
        exposure = float(re.search(r"Overall exposure level for \S+: ([\d.]+)", printed)[1])
        assert exposure <= {BROKER_UNIT: 3.0, COLLECTOR_UNIT: 4.0, SERVICE_UNIT: 5.0}[unit], printed


def test_every_unit_starts_again_and_belongs_to_the_target(tmp_path):
    """Always, after any end; ours also when they hang."""
    texts = fleet_units.unit_texts(FleetFolder(tmp_path))
    for unit in (BROKER_UNIT, SERVICE_UNIT, COLLECTOR_UNIT):
        with table_row(unit):
            text = texts[unit]
            assert setting(text, "Restart") == "always"
            assert (setting(text, "PartOf"), setting(text, "WantedBy")) == (TARGET, TARGET)
            assert unit in setting(texts[TARGET], "Wants").split()
            if unit != BROKER_UNIT:
                assert int(setting(text, "WatchdogSec")) > 0
                assert setting(text, "Type") == "notify"


@pytest.mark.parametrize(
    ("unit", "option", "expected"),
    [(SERVICE_UNIT, "--folder", "Run the fleet's service until stopped"), (COLLECTOR_UNIT, "--folder", "Receive results until")],
)
def test_its_command_is_one_of_ours(tmp_path, unit, option, expected):
    """Its words, read as systemd reads them, begin the service of that folder; here with `--help` behind them."""
    folder = tmp_path / ODD_NAME
    text = fleet_units.unit_texts(FleetFolder(folder))[unit]
    words = [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(setting(text, "ExecStart"))]
    assert words[-2:] == [option, str(folder)]
    completed = subprocess.run([*words, "--help"], capture_output=True, text=True, check=True, timeout=300)
    assert expected in completed.stdout


def test_every_variable_that_they_name_is_one_that_the_commands_read(tmp_path):
    """A variable that nobody reads would be a setting that does nothing."""
    named = set(re.findall(r"EDGEMETER_[A-Z_]+", "".join(fleet_units.unit_texts(FleetFolder(tmp_path)).values())))
    assert named <= {option.envvar for option in (*serve.params, *up.params)}


def test_a_folder_that_no_unit_can_hold_is_refused(tmp_path):
    """A line break would begin another setting."""
    with pytest.raises(ConfigError, match="control character"):
        fleet_units.unit_texts(FleetFolder(tmp_path / "a\nExecStartPre=x"))


@pytest.mark.parametrize("address", ["path", "abstract"])
def test_the_service_manager_hears_that_it_is_ready_and_alive(tmp_path, monkeypatch, address):
    """As systemd listens: a datagram socket with a path, or an abstract one; without one nothing is sent."""
    name = str(tmp_path / "notify") if address == "path" else f"@edgemeter-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(name.replace("@", "\0", 1))
        heard.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        monkeypatch.setenv("WATCHDOG_USEC", "60000000")
        manager = ServiceManager()
        manager.ready()
        manager.alive()
        assert [heard.recv(100), heard.recv(100)] == [b"READY=1", b"WATCHDOG=1"]
    monkeypatch.delenv("NOTIFY_SOCKET")
    ServiceManager().ready()
