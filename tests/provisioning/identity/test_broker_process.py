"""What is known of the broker's process, and how its files reach one elsewhere."""

import base64
import os
import subprocess

import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.provisioning.identity import broker_files, enforcement
from edgemeter.provisioning.inventory.fleet_file import ServerEntry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from tests.fixtures.rows import table_row

SERVER = ServerEntry(broker="x")


@pytest.fixture
def folder(tmp_path):
    """Return a fleet's folder with a place for the broker."""
    fleet = FleetFolder(tmp_path)
    fleet.broker.mkdir()
    return fleet


def test_without_a_process_of_its_own_no_broker_is_running(folder):
    """No file, an empty one, a number that is no process of ours, or that of another program."""
    for text in (None, "", "x", "0", "1", "-1", "99999999999", str(os.getpid())):
        with table_row(text):
            if text is not None:
                (folder.broker / "mosquitto.pid").write_text(text)
            assert not enforcement.is_broker_running(folder, SERVER)


def test_a_pid_file_elsewhere_is_used(folder, tmp_path):
    """The broker's own pid file, where fleet.toml names it."""
    (tmp_path / "proc" / "77").mkdir(parents=True)
    (tmp_path / "proc" / "77" / "comm").write_text("mosquitto\n")
    (tmp_path / "pid").write_text("77\n")
    assert enforcement.is_broker_running(folder, ServerEntry(broker="x", broker_pid_file=str(tmp_path / "pid")), tmp_path / "proc")


def test_a_command_brings_the_files_elsewhere(tmp_path):
    """And one that fails or is not there is one line."""
    mark = tmp_path / "told"
    enforcement.run_reload_command(ServerEntry(broker="x", broker_reload=("touch", str(mark))))
    assert mark.exists()
    for command in (("false",), (str(tmp_path / "absent"),)):
        with pytest.raises(UnavailableError, match="broker_reload"):
            enforcement.run_reload_command(ServerEntry(broker="x", broker_reload=command))


@pytest.mark.mosquitto
def test_a_password_is_hashed_as_mosquitto_does(tmp_path):
    """The same salt gives the line that mosquitto_passwd writes."""
    command = ["mosquitto_passwd", "-c", "-b", tmp_path / "passwords", "claim", "a-token"]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ})
    name, _, hashed = (tmp_path / "passwords").read_text().strip().partition(":")
    salt = base64.b64decode(hashed.split("$")[3])
    assert (name, broker_files.hash_password("a-token", salt)) == ("claim", hashed)
    assert broker_files.hash_password("a-token") != broker_files.hash_password("a-token")
