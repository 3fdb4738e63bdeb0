"""An update in groups with a real broker, and a service process that is killed again and again."""

import random
import time
from collections import Counter
from contextlib import closing

import pytest

from edgemeter.agent.contract.health import Health
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import campaigns, devices, jobs
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.registry import Registry, insert_rows
from edgemeter.provisioning.update.releases import Release
from tests.chaos.supervised import Supervised
from tests.fixtures.collecting import EDGEMETER
from tests.fixtures.fleet_command import run_fleet
from tests.fixtures.fleet_key import give_service
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.servers import address_of, mosquitto
from tests.fleet.replay_devices import Crowd

pytestmark = [pytest.mark.mosquitto, pytest.mark.slow, pytest.mark.long]

NAMES = [f"pi-{number:02d}" for number in range(40)]
RELEASE = Release("a" * 64, 10, "edgemeter.tar", "2.0", "pi5", "aarch64", "3.11", "2.36", 1, 1)
LONG_S = 150.0


@pytest.fixture
def fleet(tmp_path):
    """Return the folder of a fleet of forty boards that are online, and its service, a process that is started again when it is killed."""
    broker = mosquitto(tmp_path)
    broker.start()
    folder = give_service(FleetFolder(tmp_path / "fleet"))
    with closing(Registry(folder.registry)) as registry, registry.transaction() as connection:
        insert_rows(connection, "releases", [RELEASE])
        for name in NAMES:
            health = Health(device=name, fleet="lab", session=1, told_ns=1, agent="1.0", arch="aarch64", python="3.11.2", glibc="2.36")
            devices.put(connection, Device(name, "lab", None, "pi5", (), "accepted", None, 0))
            devices.put_reports(connection, [devices.DeviceReport(name, "lab", health, 1)])
    command = [*EDGEMETER, "fleet", "serve", "--folder", str(folder.path), "--broker", f"127.0.0.1:{broker.port}"]
    service = Supervised("service", command, tmp_path / "service.log")
    crowd = Crowd(address_of(broker), "lab", NAMES, 0.3)
    crowd.start()
    service.start()
    yield folder, service, crowd
    service.stop()
    crowd.stop()
    broker.kill()


def campaign(folder):
    """Return the campaign of the update, and how many of its executions are in each state."""
    with closing(Registry(folder.registry, "read")) as registry:
        (newest,) = campaigns.read(registry)
        return newest, Counter(execution.state for execution in jobs.executions_of_campaign(registry, newest.campaign))


def test_killed_at_any_moment_the_service_updates_every_board_once_and_stops_at_the_abort_ratio(fleet):
    """Half of the first group fails: it stops there, through two more lives of the service; resumed, it goes through all others."""
    folder, service, crowd = fleet
    draw = random.Random(32)  # noqa: S311 - moments, no secrets
    crowd.flaky = {"pi-00": 1, "pi-01": 1}
    assert run_fleet(folder.path, "update", "2.0", "--on", "all", "--groups", "10%,50%", "--detach").exit_code == 0
    assert wait_until(lambda: campaign(folder)[1] == {"done": 2, "failed": 2, "held": 36}, LONG_S)
    assert wait_until(lambda: campaign(folder)[0].state == "aborted", LONG_S)
    stopped, states = campaign(folder)
    for _ in range(2):
        service.kill(0.2)
        time.sleep(2.0)
    assert campaign(folder) == (stopped, states) == (stopped, {"done": 2, "failed": 2, "held": 36})
    assert run_fleet(folder.path, "campaign", "resume", stopped.campaign).exit_code == 0
    deadline_s, kills = time.monotonic() + LONG_S, 0
    while campaign(folder)[0].state == "running" and time.monotonic() < deadline_s:
        # Long enough to start.
        time.sleep(draw.uniform(1.5, 3.0))
        service.kill(0.1)
        kills += 1
    ended, states = campaign(folder)
    assert (ended.state, states) == ("done", {"done": 38, "failed": 2}), kills
    assert set(crowd.executed.values()) == {1}
    assert len(crowd.executed) == 38
    assert crowd.overlaps == []
