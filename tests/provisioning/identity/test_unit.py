"""The systemd unit of the fleet's service: for this folder, known to systemd, and with a command that the product has."""

import re
import shlex
import shutil
import subprocess

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.cli.main import fleet
from edgemeter.provisioning.cli.serve import serve
from edgemeter.provisioning.identity import fleet_init
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder


def setting(text, name):
    """Return the value of a setting that stands there once."""
    (found,) = re.findall(rf"^{name}=(.*)$", text, re.MULTILINE)
    return found


def test_init_writes_the_unit_and_puts_its_own_back(tmp_path):
    """Beside the fleet's files; a second init finds it complete."""
    for _ in range(2):
        done = CliRunner().invoke(fleet, ["init", "--broker", "broker.example", "--folder", str(tmp_path / "f")], catch_exceptions=False)
        (tmp_path / "f" / fleet_init.UNIT_NAME).read_text()
    assert "nothing to make" in done.stdout


@pytest.mark.parametrize("name", ["fleet", 'our fleet 50%, $HOME and "b"'])
def test_systemd_takes_the_unit(tmp_path, name):
    """`systemd-analyze verify` says nothing about it, whatever the folder is called."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze")
    written = tmp_path / fleet_init.UNIT_NAME
    written.write_text(fleet_init.unit_text(FleetFolder(tmp_path / name)))
    done = subprocess.run([analyze, "verify", str(written)], capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")


def test_its_command_is_one_of_ours(tmp_path):
    """Its words, read as systemd reads them, begin the service of that folder; here with `--help` behind them."""
    folder = tmp_path / 'our fleet 50%, $HOME and "b"'
    text = fleet_init.unit_text(FleetFolder(folder))
    words = [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(setting(text, "ExecStart"))]
    assert words[-2:] == ["--folder", str(folder)]
    done = subprocess.run([*words, "--help"], capture_output=True, text=True, check=True, timeout=300)
    assert "Run the fleet's service until stopped" in done.stdout
    assert shlex.split(setting(text, "ReadWritePaths"))[0].replace("%%", "%") == str(folder)


def test_every_variable_that_it_names_is_one_that_the_command_reads(tmp_path):
    """A variable that nobody reads would be a setting that does nothing."""
    named = set(re.findall(r"EDGEMETER_[A-Z_]+", fleet_init.unit_text(FleetFolder(tmp_path))))
    assert named
    assert named <= {option.envvar for option in serve.params}


def test_a_folder_that_no_unit_can_hold_is_refused(tmp_path):
    """A line break would begin another setting."""
    with pytest.raises(ConfigError, match="control character"):
        fleet_init.unit_text(FleetFolder(tmp_path / "a\nExecStartPre=x"))
