"""Tests of the systemd units of a fleet's server.

They are made for this folder, known to systemd and hardened, and their commands exist.
"""

import re
import shlex
import shutil
import subprocess

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.cli.collector import collector
from edgemeter.provisioning.cli.main import fleet
from edgemeter.provisioning.identity import fleet_units
from edgemeter.provisioning.identity.fleet_units import (
    BROKER_UNIT,
    COLLECTOR_UNIT,
    SERVICE_UNIT,
    TARGET,
)
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder

ODD_NAME = 'our fleet 50%, $HOME and "b"'


def setting(text, name):
    (value,) = re.findall(rf"^{name}=(.*)$", text, re.MULTILINE)
    return value


@pytest.mark.needs("systemd-analyze")
def test_systemd_takes_the_units(tmp_path):
    """The command `systemd-analyze verify` has no complaint, whatever the folder is called."""
    program = tmp_path / "mosquitto"
    for unit, text in fleet_units.unit_texts(FleetFolder(tmp_path / ODD_NAME)).items():
        (tmp_path / unit).write_text(
            text if shutil.which("mosquitto") else text.replace("/usr/sbin/mosquitto", str(program))
        )
    program.write_text("")
    program.chmod(0o755)
    units = [tmp_path / unit for unit in (BROKER_UNIT, SERVICE_UNIT, COLLECTOR_UNIT, TARGET)]
    completed = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (completed.returncode, completed.stderr) == (0, "")


def test_its_command_is_one_of_ours(tmp_path):
    """The command of a unit, read as systemd reads it, begins the service of that folder.

    Here it runs with `--help` at its end.
    """
    folder = tmp_path / ODD_NAME
    for unit, group in ((SERVICE_UNIT, fleet), (COLLECTOR_UNIT, collector)):
        text = fleet_units.unit_texts(FleetFolder(folder))[unit]
        words = [
            word.replace("%%", "%").replace("$$", "$")
            for word in shlex.split(setting(text, "ExecStart"))
        ]
        assert words[words.index("--folder") + 1] == str(folder)
        arguments = words[words.index("fleet" if group is fleet else "collector") + 1 :]
        assert CliRunner().invoke(group, [*arguments, "--help"]).exit_code == 0


def test_a_folder_that_no_unit_can_hold_is_refused(tmp_path):
    """A folder whose name has a line break is refused, because it would begin another setting."""
    with pytest.raises(ConfigError, match="control character"):
        fleet_units.unit_texts(FleetFolder(tmp_path / "a\nExecStartPre=x"))
