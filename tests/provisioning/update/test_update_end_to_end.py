"""From `fleet update` to the board and back: real service, broker, agent, supervisor, installer and releases."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from contextlib import closing
from pathlib import Path

import pytest

from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.registry import Registry
from tests.fixtures.fleet_key import give_board, give_service
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.servers import mosquitto
from tests.fixtures.update_board import Board, wheel

pytestmark = [pytest.mark.mosquitto, pytest.mark.nightly, pytest.mark.needs("openssl")]
ROOT = Path(__file__).resolve().parents[3]
LONG_S = 900.0
# The release is this checkout with its libraries: read in where the virtual environment of the release starts, though not
# for its `pip check`: whether the libraries here fit each other is no matter of the release.
HERE = f"import site, sys; '-m' in sys.orig_argv and 'pip' in sys.orig_argv or site.addsitedir({sysconfig.get_path('purelib')!r})\n"


def agent_wheels(version, **files):
    """Return the wheels of a release whose agent is the one under test; `files` are further ones in its wheel."""
    return {f"edgemeter-{version}-py3-none-any.whl": wheel("edgemeter", version, {"edgemeter_here.pth": HERE, **files})}


@pytest.fixture
def world(tmp_path):
    """Return a fleet with a broker, a service, and the board pi-1 on which release 1.0 runs."""
    broker = mosquitto(tmp_path, "set_tcp_nodelay true")
    broker.start()
    (tmp_path / "board").mkdir()
    board = Board(tmp_path / "board")
    board.install_tool(ROOT / "provisioning" / "release" / "install.py")
    board.install(board.release("1.0", wheels=agent_wheels("1.0")))
    board.environment = {"EDGEMETER_BROKER": f"127.0.0.1:{broker.port}", "EDGEMETER_DEVICE": "pi-1", "EDGEMETER_FLEET": "lab"}
    board.options = {"healthy-within-s": 90, "settle-s": 1}
    give_board(board.home)
    folder = give_service(FleetFolder(tmp_path / "fleet"))
    shutil.copy(board.root / "release.pub", folder.release_public_key)
    with closing(Registry(folder.registry)) as registry, registry.transaction() as connection:
        devices.put(connection, Device("pi-1", "lab", None, None, (), "accepted", None, 0))
    words = ["fleet", "--folder", str(folder.path), "serve", "--broker", f"127.0.0.1:{broker.port}"]
    service = subprocess.Popen([sys.executable, "-m", "edgemeter.agent.cli.main", *words], cwd=tmp_path)
    board.start()
    yield folder, board
    board.close()
    service.terminate()
    service.wait()
    broker.kill()


def fleet(folder, *arguments):
    """Return a fleet command that was run to its end."""
    command = [sys.executable, "-m", "edgemeter.agent.cli.main", "fleet", "--folder", str(folder.path), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=15 * LONG_S, env={**os.environ})


def health(folder):
    """Return what the board last said of itself, None before."""
    with closing(Registry(folder.registry, "read")) as registry:
        presence = devices.find_presence(registry, "pi-1")
    return presence.health if presence else None


def runs(folder, version):
    """Return whether the fleet hears that the board runs that version."""
    return wait_until(lambda: (report := health(folder)) is not None and report.agent == version, LONG_S)


def test_a_good_release_is_installed_and_a_bad_one_rolled_back(world):
    """The release comes over MQTT; a release with a runtime that does not import is taken back, and the fleet reads why and by whom."""
    folder, board = world
    assert runs(folder, "1.0")
    assert fleet(folder, "release", "add", board.release("2.0", wheels=agent_wheels("2.0"))).returncode == 0
    result = fleet(folder, "update", "--on", "pi-1", "--json")
    assert result.returncode == 0, result.stdout + result.stderr + board.log()
    assert json.loads(result.stdout)["ended"][0]["reason"] == "version 2.0 runs and is healthy"
    assert runs(folder, "2.0")
    broken = {
        **agent_wheels("3.0"),
        "onnxruntime-9.9-py3-none-any.whl": wheel("onnxruntime", "9.9", {"onnxruntime/__init__.py": "1 / 0\n"}),
    }
    assert fleet(folder, "release", "add", board.release("3.0", wheels=broken)).returncode == 0
    result = fleet(folder, "update", "--on", "pi-1", "--json")
    assert result.returncode == 1, result.stdout + result.stderr + board.log()
    reason = json.loads(result.stdout)["ended"][0]["reason"]
    assert reason.startswith("rolled back to 2.0, because onnxruntime 9.9 is installed but cannot be imported")
    assert runs(folder, "2.0")
    assert wait_until(lambda: health(folder).bad_agents == ("3.0",), LONG_S)
    result = fleet(folder, "update", "--on", "pi-1")
    assert "failed there before" in result.stdout
    assert board.releases() == ["1.0", "2.0"]
