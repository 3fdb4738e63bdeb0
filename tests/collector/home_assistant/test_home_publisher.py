import json
import os
import signal
import subprocess

import pytest
from click.testing import CliRunner

from edgemeter.agent.contract import messages as wire
from edgemeter.agent.contract import record as contract_record
from edgemeter.agent.contract.messages import DeviceState
from edgemeter.agent.ledger.chunks import Arrival
from edgemeter.agent.ledger.presence import PresenceChange
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.cli.collector import collector
from edgemeter.collector.home_assistant.discovery import discovery_topic
from edgemeter.collector.home_assistant.publisher import HomePublisher
from tests.fixtures.collecting import EDGEMETER
from tests.fixtures.mqtt_peer import Peer, wait_until
from tests.fixtures.record_factory import make_record
from tests.fixtures.servers import address_of, mosquitto

pytestmark = pytest.mark.mosquitto
CONFIG = discovery_topic("lab", "pi-1")
POLL_S = 0.05


@pytest.fixture
def server(tmp_path):
    """Return a running mosquitto without persistence."""
    server = mosquitto(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def ledger(tmp_path):
    """Return the path of a ledger with one device and one run of it."""
    path = tmp_path / "ledger"
    keep(path, seq=1)
    return path


def keep(path, **changes):
    """Commit a run of pi-1, which is online."""
    record = make_record(**({"device": "pi-1", "fleet": "lab", "session": 9} | changes))
    online = PresenceChange("lab", "pi-1", DeviceState(state="online", session=9), 1)
    with SqliteLedger(path) as ledger:
        ledger.commit([Arrival(record, contract_record.encode(record), "edgemeter/v1/lab/pi-1/result", 5)], (), [online])


def retained(server):
    """Return what a client that comes now gets, by topic."""
    peer = Peer(address_of(server), "homeassistant/#", "edgemeter/home-assistant/#", "edgemeter-tests/end", client_id="home")
    peer.session.publish("edgemeter-tests/end", b"end")
    assert wait_until(lambda: any(message.topic.endswith("/end") for message in peer.messages))
    peer.close()
    return {message.topic: message.payload for message in peer.messages if not message.topic.endswith("/end")}


def test_a_device_appears_changes_and_disappears(server, ledger):
    """One discovery message and one state; a new run changes the state; retired, nothing of it is left at the broker."""
    publisher = HomePublisher(address_of(server), ledger, "1.0", POLL_S)
    publisher.start()
    try:
        assert wait_until(lambda: len(retained(server)) == 2)
        messages = retained(server)
        ((topic, state),) = ((topic, json.loads(text)) for topic, text in messages.items() if topic != CONFIG)
        assert json.loads(messages[CONFIG])["device"]["name"] == "pi-1"
        record = make_record()
        assert state["latency_ms"] == record.latency.p50_ms
        keep(ledger, seq=2, id="another", started_at_ns=record.started_at_ns + 1, latency=with_p50(record, 99.5))
        assert wait_until(lambda: json.loads(retained(server)[topic])["latency_ms"] == 99.5)
        result = CliRunner().invoke(collector, ["retire", "pi-1", "--ledger", str(ledger)], catch_exceptions=False)
        assert result.exit_code == 0
        assert wait_until(lambda: retained(server) == {})
        keep(ledger, seq=3, id="back")
        assert wait_until(lambda: CONFIG in retained(server))
    finally:
        publisher.stop()
    # What was published is not taken back when the collector ends.
    assert CONFIG in retained(server)


def with_p50(record, p50_ms):
    """Return the latency of `record` with another median."""
    return contract_record.msgspec.structs.replace(record.latency, p50_ms=p50_ms)


def test_a_broker_that_forgot_everything_gets_it_again(server, ledger):
    """It was restarted without persistence; the publisher reconnects by itself."""
    publisher = HomePublisher(address_of(server), ledger, "1.0", POLL_S)
    publisher.start()
    try:
        assert wait_until(lambda: CONFIG in retained(server))
        server.kill()
        server.start()
        assert wait_until(lambda: CONFIG in retained(server), timeout_s=30)
    finally:
        publisher.stop()


def test_a_device_of_no_or_several_fleets_is_not_retired(ledger):
    """Named with what to do."""
    change = PresenceChange("office", "pi-1", DeviceState(state="online", session=1), 1)
    with SqliteLedger(ledger) as opened:
        opened.commit((), (), [change])
    for arguments, reason in ((["pi-1"], "fleets lab, office have one"), (["pi-9"], "see `edgemeter collector devices`")):
        result = CliRunner().invoke(collector, ["retire", *arguments, "--ledger", str(ledger)])
        assert reason in str(result.exception)
    CliRunner().invoke(collector, ["retire", "pi-1", "--fleet", "office", "--ledger", str(ledger)], catch_exceptions=False)
    with SqliteLedger(ledger) as opened:
        assert {device.fleet: device.state for device in opened.devices()} == {"lab": "online", "office": "revoked"}
        # What the broker still holds of the device's last session does not bring it back.
        opened.commit((), (), [PresenceChange("office", "pi-1", DeviceState(state="lost", session=1), 1)])
        assert {device.fleet: device.state for device in opened.devices()}["office"] == "revoked"


@pytest.mark.slow
def test_collector_up_publishes_what_a_device_delivers(server, tmp_path):
    """`edgemeter collector up --home-assistant` in a process of its own; a record by MQTT becomes an entity's state."""
    command = [*EDGEMETER, "collector", "up", "--home-assistant"]
    command += ["--broker", str(address_of(server)), "--ledger", str(tmp_path / "led")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | {"HOME": str(tmp_path)})
    peer = Peer(address_of(server), "edgemeter/v1/lab/pi-1/receipt")
    try:
        assert "publishing to Home Assistant" in process.stderr.readline()
        record = make_record(device="pi-1", fleet="lab", session=4, seq=1)
        peer.session.publish("edgemeter/v1/lab/pi-1/result", contract_record.encode(record))
        assert wait_until(lambda: [wire.decode_receipt(message.payload).held for message in peer.messages] == [((1, 1),)])
        assert wait_until(lambda: len(retained(server)) == 2)
    finally:
        peer.close()
        process.send_signal(signal.SIGTERM)
        process.communicate()
