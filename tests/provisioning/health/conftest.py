"""Fixtures for the tests of health: a handler over a real registry, and a clock that is set."""

import pytest

from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.contract import health as contract_health
from edgemeter.agent.contract import messages
from edgemeter.agent.contract.health import Health
from edgemeter.provisioning.health.health_handler import FleetHealthHandler
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry.registry import Registry

S = 1_000_000_000


class Lab:
    """A fleet's handler for health, with devices that say what the test says."""

    def __init__(self, path):
        self.folder = FleetFolder(path)
        self.registry = Registry(self.folder.registry)
        self.now_ns = 1_800_000_000 * S
        self.handler = FleetHealthHandler(
            self.folder, self.registry, lambda *_: None, lambda: self.now_ns
        )

    def says(self, device, state=None, session=1, challenge="0a", **health):
        if state is not None:
            challenge = challenge if state == "online" else None
            payload = messages.encode_message(
                messages.DeviceState(state=state, session=session, challenge=challenge)
            )
            self.handler.received(Message(f"edgemeter/v1/lab/{device}/state", payload))
        if health or state is None:
            report = Health(
                device=device,
                fleet="lab",
                session=session,
                **{"told_ns": 5, "agent": "1.0", "boot_id": "a", **health},
            )
            self.handler.received(
                Message(f"edgemeter/v1/lab/{device}/health", contract_health.encode_health(report))
            )

    def passes(self, seconds):
        self.now_ns += int(seconds * S)
        self.handler.poll(self.now_ns)


@pytest.fixture
def lab(tmp_path):
    lab = Lab(tmp_path)
    yield lab
    lab.registry.close()
