"""Telling the broker, and nobody else, to read its files again."""

import base64
import os
import shutil
import signal
import subprocess
import sys

import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.provisioning.identity import broker_files, enforcement
from edgemeter.provisioning.inventory.fleet_file import ServerEntry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder

SERVER = ServerEntry(broker="x")


@pytest.fixture
def folder(tmp_path):
    """Return a fleet's folder with a place for the broker."""
    made = FleetFolder(tmp_path)
    made.broker.mkdir()
    return made


def tree(tmp_path, number, program, caught="0000000000000001"):
    """Return a /proc in which `number` is `program`, which catches these signals."""
    (tmp_path / "proc" / str(number)).mkdir(parents=True)
    (tmp_path / "proc" / str(number) / "comm").write_text(program + "\n")
    (tmp_path / "proc" / str(number) / "status").write_text(f"Name:\t{program}\nSigCgt:\t{caught}\n")
    return tmp_path / "proc"


@pytest.mark.parametrize("text", [None, "", "x", "0", "1", "-1", "99999999999"])
def test_without_a_running_broker_nobody_is_told(folder, text, tmp_path):
    """No file, an empty one, a number that is no process of ours."""
    if text is not None:
        (folder.broker / "mosquitto.pid").write_text(text)
    assert not enforcement.reload_broker(folder, SERVER, tmp_path / "proc")


def test_another_program_that_has_the_number_now_gets_no_signal(folder):
    """A file that the last broker left: its number is a stranger's."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        (folder.broker / "mosquitto.pid").write_text(str(stranger.pid))
        assert not enforcement.reload_broker(folder, SERVER)
        stranger.communicate(b"\n")
    assert stranger.returncode == 0


def test_a_pid_file_elsewhere_is_used(folder, tmp_path):
    """As fleet.toml says: the process gets a SIGHUP."""
    with subprocess.Popen(["sleep", "60"]) as process:
        (tmp_path / "pid").write_text(f"{process.pid}\n")
        server = ServerEntry(broker="x", broker_pid_file=str(tmp_path / "pid"))
        assert enforcement.reload_broker(folder, server, tree(tmp_path, process.pid, "mosquitto"))
        assert process.wait(50) == -signal.SIGHUP


@pytest.mark.parametrize("caught", ["0000000000000000", "0000000000004002", "x"])
def test_a_broker_that_is_still_starting_is_not_ended(folder, tmp_path, caught):
    """Before it catches the signal, a SIGHUP would be its end."""
    with subprocess.Popen(["sleep", "60"]) as process:
        (folder.broker / "mosquitto.pid").write_text(str(process.pid))
        assert not enforcement.reload_broker(folder, SERVER, tree(tmp_path, process.pid, "mosquitto", caught))
        assert process.poll() is None
        process.kill()


def test_a_command_is_run_instead(folder, tmp_path):
    """And one that fails, hangs on nothing or is not there is one line."""
    mark = tmp_path / "told"
    assert enforcement.reload_broker(folder, ServerEntry(broker="x", broker_reload=("touch", str(mark))))
    assert mark.exists()
    for command in (("false",), (str(tmp_path / "absent"),)):
        with pytest.raises(UnavailableError, match="broker_reload"):
            enforcement.reload_broker(folder, ServerEntry(broker="x", broker_reload=command))


@pytest.mark.mosquitto
def test_a_password_is_hashed_as_mosquitto_does(tmp_path):
    """The same salt gives the line that mosquitto_passwd writes."""
    program = shutil.which("mosquitto_passwd")
    if program is None:
        pytest.skip("mosquitto_passwd is not installed (apt-get install mosquitto)")
    subprocess.run([program, "-c", "-b", tmp_path / "passwords", "claim", "a-token"], check=True, capture_output=True, env={**os.environ})
    name, _, theirs = (tmp_path / "passwords").read_text().strip().partition(":")
    salt = base64.b64decode(theirs.split("$")[3])
    assert (name, broker_files.hash_password("a-token", salt)) == ("claim", theirs)
    assert broker_files.hash_password("a-token") != broker_files.hash_password("a-token")
