"""A Tasmota plug at a real broker: told by MQTT, never with a retained message."""

import json
import threading
import time

import pytest

from edgemeter.agent.base.errors import TransientError
from edgemeter.agent.base.mqtt_session import MqttSession, SessionProfile
from edgemeter.provisioning.rescue.tasmota import TasmotaMqtt
from tests.fixtures.servers import address_of, mosquitto

pytestmark = pytest.mark.mosquitto


class Plug:
    """A client that answers as Tasmota documents for a plug with one relay and the Topic `plug-7`."""

    def __init__(self, address, name="DVES_000001"):
        self.is_on = True
        self.heard = []
        self.ready = threading.Event()
        self.session = MqttSession(address, SessionProfile(name), self)
        self.session.connect()

    def connected(self):
        """Hear commands."""
        self.session.subscribe(["cmnd/plug-7/#"])
        self.ready.set()

    def disconnected(self, reason):
        """Nothing."""

    def answered(self, refusal):
        """Nothing."""

    def received(self, message):
        """Do what is told, and answer."""
        command, payload = message.topic.rpartition("/")[2], message.payload.decode()
        self.heard.append((command, payload))
        if command == "PowerOnState":
            self._answer({"PowerOnState": 3})
        elif command == "Backlog":
            first, _, remainder = payload.partition("; ")
            assert first == "Power Off"
            self._power("Off")
            self._power(remainder.rpartition(" ")[2])
        else:
            self._power(payload)

    def _power(self, turn):
        if turn:
            self.is_on = turn == "On"
        self._answer({"POWER": "ON" if self.is_on else "OFF"})

    def _answer(self, document):
        self.session.publish("stat/plug-7/RESULT", json.dumps(document).encode())


@pytest.fixture
def broker(tmp_path):
    """Serve a real mosquitto."""
    server = mosquitto(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def plug(broker):
    """Return a plug that is connected."""
    connected_plug = Plug(address_of(broker))
    yield connected_plug
    connected_plug.session.close()


def test_it_turns_off_and_on_and_reports_its_setting(broker, plug, wired):
    """Each is requested and replied to; PowerOnState 3 is warned of."""
    switch = TasmotaMqtt(wired("tasmota-mqtt://plug-7"), str(address_of(broker)))
    switch.turn("off")
    assert plug.is_on is False
    power = switch.state()
    assert power.is_on is False
    assert "PowerOnState is 3" in power.warnings[0]
    switch.turn("on")
    assert plug.is_on is True


def test_a_cycle_is_one_message_that_the_plug_carries_out_by_itself(broker, plug, wired):
    """Off, ten seconds in tenths, on."""
    TasmotaMqtt(wired("tasmota-mqtt://plug-7"), str(address_of(broker))).cycle(10, lambda _: None)
    assert ("Backlog", "Power Off; Delay 100; Power On") in plug.heard
    assert plug.is_on is True


@pytest.mark.usefixtures("plug")
def test_nothing_is_left_retained(broker, wired):
    """A plug that starts would obey it: ghost switching."""
    switch = TasmotaMqtt(wired("tasmota-mqtt://plug-7"), str(address_of(broker)))
    switch.turn("off")
    late = Plug(address_of(broker), "DVES_000002")
    # What is retained comes before the answer to what is asked afterwards.
    late.session.publish("cmnd/plug-7/Marker", b"")
    deadline = time.monotonic() + 150
    while not late.heard and time.monotonic() < deadline:
        time.sleep(0.01)
    late.session.close()
    assert [command for command, _ in late.heard] == ["Marker"]


def test_a_plug_that_is_not_there_is_transient(broker, wired, monkeypatch):
    """With what to check."""
    monkeypatch.setattr("edgemeter.provisioning.rescue.tasmota.ANSWER_S", 0.3)
    with pytest.raises(TransientError, match="is its Topic 'plug-8'"):
        TasmotaMqtt(wired("tasmota-mqtt://plug-8"), str(address_of(broker))).turn("off")
