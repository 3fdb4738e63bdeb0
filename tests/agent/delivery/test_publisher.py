import logging
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import zlib
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from edgemeter.agent.base.broker_address import BrokerAddress, parse_address
from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.base.mqtt_session import MqttSession, SessionProfile, Will
from edgemeter.agent.contract import messages, record, samples
from edgemeter.agent.delivery import broker_name
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.delivery.publisher import Publisher
from edgemeter.agent.delivery.sender import TOO_LARGE_REASON
from edgemeter.collector.receive.embedded_broker import EmbeddedBroker
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.publishing import TUNED, Listener, always, last_state, make_birth, peer, put, started
from tests.fixtures.record_factory import make_record
from tests.fixtures.servers import free_port, mosquitto

ROOT = Path(__file__).parents[3]
ALL = f"{messages.TOPIC_ROOT}/#"
STATE = f"{messages.TOPIC_ROOT}/lab/pi-1/state"

with_mosquitto = pytest.mark.mosquitto


def make_publisher(address, outbox, device="pi-1", receipt_timeout_s=0.25):
    """Return a publisher that is not connected yet."""
    return Publisher(address, outbox, make_birth(outbox, device), receipt_timeout_s=receipt_timeout_s)


@contextmanager
def connected(address, outbox, **how):
    """Keep a connected publisher for the block."""
    publisher = make_publisher(address, outbox, **how)
    publisher.connect()
    try:
        yield publisher
    finally:
        publisher.close()


def test_records_go_out_and_are_forgotten_on_receipt(address, outbox):
    """The whole way, over MQTT 5 and over 3.1.1, for what was there before and what comes later."""
    put(outbox, 3)
    with peer(address, messages.EVERY_RESULT, confirm=always) as collector, connected(address, outbox) as publisher:
        assert publisher.drain(60) == 0
        put(outbox, 2)
        publisher.wake()
        assert publisher.drain(60) == 0
    assert sorted(collector.times.values()) == [1] * 5


def test_without_a_receipt_the_outbox_keeps_everything_and_reports_why(address, outbox):
    """The broker's acknowledgement is not a receipt."""
    put(outbox, 3)
    with connected(address, outbox) as publisher:
        assert publisher.drain(0.5) == 3
        assert "no collector has confirmed them" in publisher.why_left()
    assert outbox.count() == 3


def test_a_record_whose_receipt_is_overdue_is_sent_again(address, outbox):
    """A lost receipt, or a lost message, costs time and not the record."""
    put(outbox, 3)
    with peer(address, messages.EVERY_RESULT, confirm=lambda _, times: times > 2) as collector, connected(address, outbox) as publisher:
        assert publisher.drain(120) == 0
        assert publisher.resent >= 6
    assert all(times >= 3 for times in collector.times.values())


def test_a_record_that_nobody_takes_holds_up_no_other(address, outbox):
    """A window full of records that are never confirmed does not block those behind."""
    put(outbox, 6)
    publisher = Publisher(address, outbox, make_birth(outbox), window_records=2, receipt_timeout_s=0.3)
    with peer(address, messages.EVERY_RESULT, confirm=lambda seq, _: seq != 2):
        publisher.connect()
        assert wait_until(lambda: outbox.count() == 1)
        publisher.close()
    assert [pending.seq for pending in outbox.pending(10, 10**9)] == [2]


def test_another_devices_records_in_the_same_outbox_stay_there(address, outbox):
    """A device writes below its own name only."""
    put(outbox, 1)
    put(outbox, 1, device="pi-2")
    with peer(address, messages.EVERY_RESULT, confirm=always) as collector, connected(address, outbox) as publisher:
        assert publisher.drain(60) == 0
    assert outbox.count("pi-2") == 1
    assert {message.topic for message in collector.messages} == {"edgemeter/v1/lab/pi-1/result"}


def test_records_of_a_previous_fleet_go_out_on_that_fleets_topic_and_are_receipted_there(address, outbox):
    """A device that moved to another fleet loses nothing of before."""
    put(outbox, 1, fleet="old")
    with peer(address, messages.EVERY_RESULT, confirm=always) as collector, connected(address, outbox) as publisher:
        assert publisher.drain(60) == 0
    assert [message.topic for message in collector.messages] == ["edgemeter/v1/old/pi-1/result"]


def test_birth_and_state_are_retained_and_a_goodbye_is_offline(address, outbox):
    """Who comes later still learns who is there."""
    with connected(address, outbox, device="pi-7"), peer(address, f"{messages.TOPIC_ROOT}/lab/pi-7/+", client_id="first") as first_peer:
        assert wait_until(lambda: last_state(first_peer) == "online")
        assert wait_until(lambda: [message for message in first_peer.messages if message.topic.endswith("/birth")])
        births = [message for message in first_peer.messages if message.topic.endswith("/birth")]
        assert messages.decode_birth(births[0].payload) == make_birth(outbox, "pi-7")
    with peer(address, f"{messages.TOPIC_ROOT}/lab/pi-7/+", client_id="second") as two:
        assert wait_until(lambda: last_state(two) == "offline")


def activities(listener):
    """Return what a listener was sent of what is measured."""
    return [
        messages.decode_activity(message.payload)
        for message in listener.messages
        if message.topic == f"{messages.TOPIC_ROOT}/lab/pi-1/activity"
    ]


MEASURING = messages.Measuring(suite="nightly", case="tiny-detector", run=3, runs=12)


def test_who_comes_later_learns_what_is_measured_now(address, outbox):
    """It is retained, and replaced when nothing is measured any more."""
    with connected(address, outbox) as publisher:
        publisher.report_activity(MEASURING)
        with peer(address, ALL, client_id="later") as later:
            assert wait_until(lambda: activities(later))
            assert activities(later) == [messages.Activity(session=outbox.session, measuring=MEASURING)]
            publisher.report_activity(None)
            assert wait_until(lambda: len(activities(later)) == 2)
            assert activities(later)[1].measuring is None
        with peer(address, ALL, client_id="even-later") as idle:
            assert wait_until(lambda: activities(idle))
            assert activities(idle)[0].measuring is None


class LateThread(Publisher):
    """A publisher on a busy machine: its thread gets a core when others have had theirs."""

    def start(self):
        """Start a little later."""
        self.timer = threading.Timer(0.3, super().start)
        self.timer.start()


def test_what_is_reported_right_after_connecting_is_sent(address, outbox):
    """A run may begin at once: whoever has connected is connected, however late the thread is."""
    publisher = LateThread(address, outbox, make_birth(outbox))
    publisher.connect()
    try:
        publisher.report_activity(MEASURING)
        with peer(address, ALL, client_id="later") as later:
            assert wait_until(lambda: messages.Activity(session=outbox.session, measuring=MEASURING) in activities(later))
    finally:
        publisher.timer.join()
        publisher.close()


@with_mosquitto
def test_a_run_that_begins_without_a_broker_is_not_reported_later(tmp_path, outbox):
    """A connection that returns while queries are timed brings nothing about the run; that it is over is reported with the next one."""
    server = mosquitto(tmp_path)
    with started(server) as address, connected(address, outbox) as publisher:
        server.kill()
        assert wait_until(lambda: not publisher.is_connected())
        publisher.report_activity(MEASURING)
        server.start()
        with peer(address, ALL) as listener:
            assert wait_until(publisher.is_connected)
            assert wait_until(lambda: last_state(listener) == "online")
            assert activities(listener) == []
            server.kill()
            assert wait_until(lambda: not publisher.is_connected())
            publisher.report_activity(None)
            server.start()
            assert wait_until(publisher.is_connected)
        with peer(address, ALL, client_id="later") as later:
            assert wait_until(lambda: activities(later))
            assert [activity.measuring for activity in activities(later)] == [None]


def test_garbage_on_the_receipt_topic_is_ignored(address, outbox, caplog):
    """Neither the publisher nor the outbox takes harm."""
    put(outbox, 1)
    with peer(address, messages.EVERY_STATE, client_id="rogue") as rogue, connected(address, outbox) as publisher:
        assert wait_until(lambda: last_state(rogue) == "online")
        for payload in (b"", b"\xff\x00", b"[]", b'{"session":1e999,"held":[]}', b'{"session":1,"held":[[1,' + b"9" * 400 + b"]]}"):
            rogue.session.publish(f"{messages.TOPIC_ROOT}/lab/pi-1/receipt", payload)
        assert wait_until(lambda: caplog.text.count("not a receipt") == 5)
        with peer(address, messages.EVERY_RESULT, confirm=always, client_id="collector"):
            assert publisher.drain(60) == 0


def test_no_broker_is_one_line_with_the_remedy(outbox):
    """What the issue asks for, word by word."""
    remedy = r"no MQTT broker answers at 127\.0\.0\.1:1 \(Connection refused\): start one \(.*\) or leave out --broker"
    with pytest.raises(UnavailableError, match=remedy) as refusal:
        make_publisher(parse_address("127.0.0.1:1"), outbox).connect(1)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("answer", "message"), [(b"HTTP/1.1 400 Bad Request\r\n\r\n", "is not an MQTT broker"), (None, "timed out")])
def test_what_is_no_broker_at_the_address_is_reported(outbox, answer, message):
    """A web server, and a port that accepts connections and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                if answer:
                    connection.sendall(answer)
                connection.recv(100)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with pytest.raises(UnavailableError, match=message):
            make_publisher(BrokerAddress("127.0.0.1", server.getsockname()[1]), outbox).connect(0.5)
        thread.join(150)


def test_a_publisher_that_was_started_without_a_broker_delivers_when_there_is_one(outbox, caplog):
    """A board that boots before its broker."""
    caplog.set_level(logging.WARNING)
    put(outbox, 1)
    port = free_port()
    publisher = make_publisher(BrokerAddress("127.0.0.1", port), outbox)
    publisher.start()
    assert wait_until(lambda: "cannot publish now: no MQTT broker answers" in caplog.text)
    assert publisher.drain(0.1) == 1
    assert "is down" in publisher.why_left()
    broker = EmbeddedBroker(port)
    try:
        with peer(broker.start(), messages.EVERY_RESULT, confirm=always):
            assert publisher.drain(90) == 0
        publisher.close()
    finally:
        broker.stop()


def test_two_processes_of_one_device_do_not_throw_each_other_out(address, outbox):
    """The second publishes beside the first, under an id of its own, and publishes nothing about the device."""
    with Outbox(outbox.path) as second_box, peer(address, ALL, confirm=always) as collector:
        with connected(address, outbox) as first:
            assert wait_until(lambda: last_state(collector) == "online")
            with connected(address, second_box) as second:
                put(second_box, 3)
                second.wake()
                put(outbox, 3)
                first.wake()
                assert (first.drain(10), second.drain(10)) == (0, 0)
                assert first._session.profile.client_id == "pi-1"
                assert second._session.profile.client_id == f"pi-1~{second_box.session}"
                assert second._session.profile.will is None
            assert last_state(collector) == "online"
        assert wait_until(lambda: last_state(collector) == "offline")


def test_the_next_process_represents_the_device_when_the_first_has_gone(address, outbox):
    """The lock goes with the process that held it."""
    with connected(address, outbox):
        pass
    with Outbox(outbox.path) as reopened, connected(address, reopened) as publisher:
        assert publisher._session.profile.client_id == "pi-1"


@with_mosquitto
@pytest.mark.services
def test_a_board_that_met_a_namesake_takes_its_name_again_when_that_has_gone(tmp_path, caplog, monkeypatch):
    """State, Will and orders come back without a restart; while it is displaced it delivers all the same."""
    monkeypatch.setattr(broker_name, "FIRST_DISPLACED_S", 3.0)
    listener = Listener()
    with (
        started(mosquitto(tmp_path, *TUNED)) as address,
        Outbox(tmp_path / "outbox") as outbox,
        peer(address, ALL, confirm=always) as collector,
    ):
        publisher = Publisher(address, outbox, make_birth(outbox), lasting="persistent", listener=listener)
        publisher.connect()
        assert wait_until(lambda: last_state(collector) == "online")
        namesake = Namesake(address)
        assert wait_until(lambda: publisher._name.state == "displaced" and publisher.is_connected(), 60)
        put(outbox, 2)
        publisher.wake()
        assert publisher.drain(30) == 0
        namesake.session.close()
        assert wait_until(lambda: "takes the name of device 'pi-1' at the broker again" in caplog.text)
        assert wait_until(lambda: publisher.is_connected() and last_state(collector) == "online")
        assert publisher._session.profile.client_id == "pi-1"
        assert publisher._session.profile.will is not None
        assert publisher._session.profile.lasting == "persistent"
        listener.heard.clear()
        assert wait_until(lambda: listener.heard or not collector.session.publish(listener.topics[0], b"order"))
        publisher.close()


class Namesake:
    """Another board of that name: a session that says it is online with every connection."""

    def __init__(self, address):
        state = messages.DeviceState(state="lost", session=99)
        self.session = MqttSession(address, SessionProfile("pi-1", will=Will(STATE, messages.encode_message(state))), self)
        self.session.connect()

    def connected(self):
        """Say so."""
        state = messages.DeviceState(state="online", session=99)
        self.session.publish(STATE, messages.encode_message(state), lasting="retained")

    def disconnected(self, _reason):
        """Ignore it."""

    def received(self, _message):
        """Ignore it."""

    def answered(self, _refusal):
        """Ignore it."""


@with_mosquitto
def test_a_refused_publish_ends_in_one_clear_line(tmp_path, outbox):
    """MQTT 5's PUBACK says not authorised; waiting would not help, so drain does not wait."""
    acl = tmp_path / "acl"
    acl.write_text("topic read edgemeter/v1/#\n")
    put(outbox, 1)
    refusal = r"refuses device 'pi-1' \(Not authorized\): allow it its own topics"
    with (
        started(mosquitto(tmp_path, f"acl_file {acl}")) as address,
        connected(address, outbox) as publisher,
        pytest.raises(UnavailableError, match=refusal),
    ):
        publisher.drain(10)
    assert outbox.count() == 1


@with_mosquitto
def test_a_previous_fleets_records_that_are_refused_hold_up_no_other(tmp_path, outbox, caplog):
    """They stay in the outbox; the device's own go out at once, not after the pause for a device that is refused."""
    acl = tmp_path / "acl"
    acl.write_text("topic readwrite edgemeter/v1/lab/#\ntopic read edgemeter/v1/#\n")
    put(outbox, 40, fleet="old")
    put(outbox, 3)
    with (
        started(mosquitto(tmp_path, f"acl_file {acl}")) as address,
        peer(address, messages.EVERY_RESULT, confirm=always) as collector,
        connected(address, outbox) as publisher,
    ):
        assert wait_until(lambda: outbox.count() == 40, 20)
        assert "previous fleet" in publisher.why_left()
    assert {message.topic for message in collector.messages} == {"edgemeter/v1/lab/pi-1/result"}
    assert outbox.fleets("pi-1") == ["old"]
    assert caplog.text.count("refuses results of a previous fleet") == 1


def test_a_lost_connection_is_reported_once(outbox, caplog):
    """A revoked device tries for ever, and its log does not grow; one that was back reports again when it is lost."""
    caplog.set_level(logging.INFO)
    publisher = make_publisher(parse_address("mqtt://127.0.0.1:1"), outbox)
    for reason in ("cut", "refused", "refused", "refused"):
        publisher.disconnected(reason)
    publisher.connected()
    publisher.disconnected("refused")
    assert [line.rpartition(": ")[2] for line in caplog.messages] == ["cut", "refused", "refused"]


@with_mosquitto
def test_a_broker_with_passwords_lets_in_who_has_one(tmp_path, outbox, monkeypatch):
    """User in the address, password from the environment; without them one line says what to give."""
    passwords = tmp_path / "passwords"
    passwords.touch()
    subprocess.run(["mosquitto_passwd", "-b", str(passwords), "pi", "secret"], check=True)
    passwords.chmod(0o644)
    with started(mosquitto(tmp_path, "allow_anonymous false", f"password_file {passwords}")) as address:
        with pytest.raises(ConfigError, match=r"refuses a client without a user name .*mqtt://USER@HOST"):
            make_publisher(address, outbox).connect()
        monkeypatch.setenv("EDGEMETER_MQTT_PASSWORD", "wrong")
        with pytest.raises(ConfigError, match="refuses user 'pi'"):
            make_publisher(parse_address(f"mqtt://pi@127.0.0.1:{address.port}"), outbox).connect()
        monkeypatch.setenv("EDGEMETER_MQTT_PASSWORD", "secret")
        with connected(parse_address(f"mqtt://pi@127.0.0.1:{address.port}"), outbox) as publisher:
            assert publisher.drain(6) == 0


@with_mosquitto
def test_a_record_larger_than_the_broker_takes_stays_and_does_not_break_the_connection(tmp_path, outbox, caplog):
    """MQTT 5 says the limit; sending more would be cut off again and again."""
    put(outbox, 1, case=os.urandom(10_000).hex())
    put(outbox, 1)
    with (
        started(mosquitto(tmp_path, *TUNED, "max_packet_size 9000")) as address,
        peer(address, messages.EVERY_RESULT, confirm=always),
        connected(address, outbox) as publisher,
    ):
        assert publisher.drain(1) == 1
        assert re.search("1 records are too large for a message .*at most 9000 bytes.*raise its packet limit", publisher.why_left())
        assert publisher._session.is_connected()
    assert "may have at most 9000" in caplog.text


@pytest.mark.services
@with_mosquitto
def test_a_record_with_seventeen_megabytes_of_samples_arrives_without_them_and_reports_that(tmp_path, outbox):
    """No message holds it, at any broker: its figures count, those around it arrive, and its samples stay on the device."""
    noise = samples.pack("latency", "ns", np.random.default_rng(1).integers(0, 2**32, 4_500_000))
    put(outbox, 1)
    put(outbox, 1, samples=(noise,))
    put(outbox, 1)
    with (
        started(mosquitto(tmp_path, *TUNED)) as address,
        peer(address, messages.EVERY_RESULT, confirm=always) as collector,
        connected(address, outbox) as publisher,
    ):
        assert publisher.drain(30) == 0
    arrived = [record.decode(raw) for message in collector.messages for raw in messages.split_records(unpacked(message.payload))]
    assert [run.seq for run in arrived] == [1, 2, 3]
    assert [bool(run.samples) for run in arrived] == [True, False, True]
    assert arrived[1].samples_reason == TOO_LARGE_REASON
    assert arrived[1].latency == make_record().latency


def unpacked(payload):
    """Return the text of a payload."""
    return zlib.decompress(payload) if payload[:1] == b"x" else payload


KILLED = """
    import sys, time
    from pathlib import Path
    from edgemeter.agent.base import broker_address
    from edgemeter.agent.contract import messages
    from edgemeter.agent.delivery.outbox import Outbox
    from edgemeter.agent.delivery.publisher import Publisher
    outbox = Outbox(Path(sys.argv[2]))
    birth = messages.Birth(device="pi-9", fleet="lab", session=outbox.session, agent="0", board=None, os=None, arch="x", runtimes={})
    publisher = Publisher(broker_address.parse_address(sys.argv[1]), outbox, birth)
    publisher.connect()
    print(outbox.session, flush=True)
    time.sleep(60)
"""


def test_a_killed_agent_is_lost_with_its_session_number(address, tmp_path):
    """The Will speaks for who cannot."""
    with peer(address, messages.EVERY_STATE) as listener:
        command = [sys.executable, "-c", textwrap.dedent(KILLED), str(address), str(tmp_path / "box")]
        agent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        session = int(agent.stdout.readline())
        assert wait_until(lambda: last_state(listener) == "online")
        os.kill(agent.pid, signal.SIGKILL)
        agent.communicate()
        assert wait_until(lambda: last_state(listener) == "lost")
    assert messages.decode_state(listener.messages[-1].payload).session == session
