"""A fleet without a broker, and one with its broker and service."""

from contextlib import ExitStack

import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.provisioning.identity import enforcement
from tests.provisioning.identity.lab import Lab


@pytest.fixture
def no_broker(monkeypatch):
    """Let no broker answer the commands."""

    def refuse(address, _client_id, _state):
        raise UnavailableError(f"no MQTT broker answers at {address}")

    monkeypatch.setattr(enforcement, "end_session", refuse)


@pytest.fixture
def lab(tmp_path, no_broker):  # noqa: ARG001 - for what it does
    with ExitStack() as stack:
        yield Lab(tmp_path, stack, (8883, 8443))


@pytest.fixture
def broker_lab(tmp_path):
    """Return a fleet whose broker does not run yet: a test that starts it carries the marker `mosquitto`."""
    with ExitStack() as stack:
        yield Lab(tmp_path, stack)


@pytest.fixture
def running_lab(broker_lab):
    return broker_lab.start()
