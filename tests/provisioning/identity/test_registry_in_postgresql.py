"""A fleet whose registry is in a PostgreSQL: moved there, backed up from there, and served by two of which one is killed or frozen."""

import json
import re
import shutil
import signal
import subprocess
import time

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.postgres_address import PostgresAddress
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.registry import Registry
from tests.fixtures.collecting import EDGEMETER
from tests.fixtures.fleet_command import run_fleet
from tests.fixtures.postgresql import postgresql, postgresql_server
from tests.fixtures.servers import LOOPBACK, mosquitto

__all__ = ["postgresql", "postgresql_server"]
pytestmark = pytest.mark.postgresql


def names(folder):
    """Return the devices as `fleet list` shows them."""
    return {entry["device"] for entry in json.loads(run_fleet(folder, "list", "--json").stdout)["devices"]}


def use(folder, address):
    """Name the PostgreSQL in fleet.toml."""
    path = folder / "fleet.toml"
    text = re.sub(r"^registry = .*\n", "", path.read_text(), flags=re.MULTILINE)
    path.write_text(text.replace("[server]\n", f'[server]\nregistry = "{address}"\n'))


@pytest.fixture
def moved(tmp_path, postgresql):
    """Return the folder of a fleet with a device, whose registry was moved."""
    run_fleet(tmp_path / "fleet", "init", "--broker", "127.0.0.1")
    run_fleet(tmp_path / "fleet", "token", "pi-1", "--output", tmp_path)
    use(tmp_path / "fleet", postgresql)
    assert "moved to postgresql://" in run_fleet(tmp_path / "fleet", "init").stdout
    return tmp_path / "fleet"


@pytest.mark.slow
def test_a_registry_is_moved_once_and_comes_back_from_a_backup(moved, tmp_path, postgresql_server):
    """Nothing is left to make; a backup has its rows; a database with devices is not overwritten by an older file."""
    assert names(moved) == {"pi-1"}
    assert not (moved / "registry.sqlite").exists()
    assert "nothing to make" in run_fleet(moved, "init").stdout
    (tmp_path / "passphrase").write_text("a long passphrase\n")
    run_fleet(moved, "backup", tmp_path / "fleet.age", "--passphrase-file", tmp_path / "passphrase")
    run_fleet(moved, "token", "pi-2", "--output", tmp_path)
    run_fleet(tmp_path / "restored", "restore", tmp_path / "fleet.age", "--passphrase-file", tmp_path / "passphrase")
    with pytest.raises(ConfigError, match="move that file away if the database is newer"):
        run_fleet(tmp_path / "restored", "init")
    use(tmp_path / "restored", postgresql_server.new_database())
    run_fleet(tmp_path / "restored", "init")
    assert (names(tmp_path / "restored"), names(moved)) == ({"pi-1"}, {"pi-1", "pi-2"})


class Service:
    """`fleet serve` as a process."""

    def __init__(self, folder, port, log):
        command = [*EDGEMETER, "fleet", "serve", "--folder", str(folder), "--broker", f"{LOOPBACK}:{port}"]
        self.log = log
        with log.open("ab") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=file)

    def await_text(self, text):
        """Return when the service says so."""
        deadline = time.monotonic() + 90
        while text not in self.log.read_text():
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.mosquitto
def test_another_service_takes_over_from_one_that_is_killed_or_frozen(moved, tmp_path, postgresql, postgresql_server):
    """By SIGKILL, by SIGSTOP (the frozen one ends when it goes on), and the database restarts in between: one at a time is active."""
    shutil.copytree(moved, tmp_path / "copy", ignore=shutil.ignore_patterns("*.lock"))
    services = []
    broker = mosquitto(tmp_path)
    broker.start()
    try:
        services.append(first := Service(moved, broker.port, tmp_path / "1.log"))
        first.await_text("serving the fleet")
        services.append(second := Service(tmp_path / "copy", broker.port, tmp_path / "2.log"))
        second.await_text("waiting, to take over when it is silent")
        first.process.send_signal(signal.SIGSTOP)
        second.await_text("serving the fleet")
        postgresql_server.restart()
        first.process.send_signal(signal.SIGCONT)
        assert first.process.wait(60) == 1
        services.append(third := Service(moved, broker.port, tmp_path / "3.log"))
        third.await_text("waiting, to take over")
        second.process.kill()
        third.await_text("serving the fleet")
        with Registry(PostgresAddress(postgresql)) as registry:
            assert [device.device for device in devices.read(registry)] == ["pi-1"]
    finally:
        for service in services:
            service.process.kill()
            service.process.wait()
        broker.kill()
