"""Every way in which a broker says that a message is too large, by real brokers.

The other records arrive, the large one stays and is named, and arrives when the limit was raised.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from edgemeter.agent.base import backoff, mqtt_session
from edgemeter.agent.base.broker_address import MqttVersion
from edgemeter.agent.contract import messages
from edgemeter.agent.delivery import outbox_file
from edgemeter.agent.delivery.message_limit import ANSWERS
from edgemeter.agent.delivery.publisher import Publisher
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.publishing import Listener, always, make_birth, peer, put, started
from tests.fixtures.servers import Server, mosquitto, rmqtt

LIMIT_BYTES = 8000
# Together the small ones are too large for one message.
SMALL_RECORDS, SMALL_BYTES, LARGE_BYTES = 8, 1000, 10_000
MAX_PACKET_SIZE = f"max_packet_size {LIMIT_BYTES}"
MESSAGE_SIZE_LIMIT = f"message_size_limit {LIMIT_BYTES}"
RMQTT_MAX_PACKET_SIZE = f'listener.tcp.external.max_packet_size = "{LIMIT_BYTES}B"'


@dataclass(frozen=True)
class Way:
    """A broker with its setting, and how it answers a message that is too large.

    `answer` is what the device notes, None if nothing; `heeds` says whether it obeys MQTT 5's
    announcement.
    """

    make_broker: Callable[..., Server]
    setting: str
    version: MqttVersion
    answer: str | None
    heeds: bool = True


_MOSQUITTO, _RMQTT = pytest.mark.mosquitto, pytest.mark.rmqtt
WAYS = {
    "announced in CONNACK": (Way(mosquitto, MAX_PACKET_SIZE, "5", None), _MOSQUITTO),
    "PUBACK 0x95": (Way(mosquitto, MESSAGE_SIZE_LIMIT, "5", "0x95"), _MOSQUITTO),
    "DISCONNECT 0x95": (Way(mosquitto, MAX_PACKET_SIZE, "5", "0x95", heeds=False), _MOSQUITTO),
    "closed": (Way(rmqtt, RMQTT_MAX_PACKET_SIZE, "5", "closed", heeds=False), _RMQTT),
    "closed, 3.1.1": (Way(mosquitto, MAX_PACKET_SIZE, "3.1.1", "closed"), _MOSQUITTO),
    "closed, 3.1.1, RMQTT": (Way(rmqtt, RMQTT_MAX_PACKET_SIZE, "3.1.1", "closed"), _RMQTT),
    "acknowledged and dropped, 3.1.1": (
        Way(mosquitto, MESSAGE_SIZE_LIMIT, "3.1.1", None),
        _MOSQUITTO,
    ),
}
# No broker here answers so: `test_packet_limit` shows them with a broker in the process.
UNSHOWN = {"0x81", "0x82", "0x83", "0x97"}


def test_every_answer_is_shown_or_listed():
    """A new row of the table of answers needs a broker that gives it."""
    assert {way.answer for way, _ in WAYS.values()} - {None} | UNSHOWN == set(ANSWERS.values())


@pytest.fixture
def quick(monkeypatch):
    """Let a session reconnect soon."""
    monkeypatch.setattr(backoff, "FIRST_BACKOFF_S", 0.3)


def speak(monkeypatch, version, *, heeds):
    monkeypatch.setattr(mqtt_session, "mqtt_version", lambda *_: version)
    if not heeds:
        monkeypatch.setattr(
            mqtt_session.MqttSession, "largest_bytes", lambda _: mqtt_session.LARGEST_MESSAGE_BYTES
        )


def fill(outbox, large_place):
    for number in range(SMALL_RECORDS):
        if number == large_place:
            put(outbox, 1, case=os.urandom(LARGE_BYTES).hex(), samples=())
        put(outbox, 1, case=os.urandom(SMALL_BYTES).hex(), samples=())


def publisher_of(outbox, address, **options):
    publisher = Publisher(address, outbox, make_birth(outbox), receipt_timeout_s=1.0, **options)
    publisher.connect()
    return publisher


def lift_limit(server, setting):
    server.kill()
    configuration = Path(server.command[-1])
    configuration.write_text(configuration.read_text().replace(setting, ""))
    server.start()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("large_place", [0, 4])
@pytest.mark.parametrize(
    "way", [pytest.param(way, id=name, marks=mark) for name, (way, mark) in WAYS.items()]
)
def test_the_others_arrive_and_the_large_one_stays_until_the_limit_is_raised(
    way, large_place, outbox, tmp_path, monkeypatch
):
    """The place of the large record among those that waited together does not matter."""
    speak(monkeypatch, way.version, heeds=way.heeds)
    fill(outbox, large_place)
    server = way.make_broker(tmp_path, way.setting)
    with started(server) as address:
        with peer(address, messages.topics_of("result"), confirm=always):
            publisher = publisher_of(outbox, address)
            try:
                assert wait_until(lambda: outbox.count() == 1)
                assert wait_until(lambda: outbox.too_large("pi-1"))
                reason = publisher.why_left()
            finally:
                publisher.close()
        (large,) = outbox.pending(10, 1 << 30)
        assert large.seq == large_place + 1
        assert f"record {large.seq} of session {large.session} has " in reason
        assert "`edgemeter agent publish`" in reason
        answers = {refusal.answer for refusal in outbox.refusals(str(address))}
        # The reset of a connection may overtake the DISCONNECT before it.
        assert answers <= ({way.answer, "closed"} if way.answer else set())
        assert bool(answers) == (way.answer is not None)
        lift_limit(server, way.setting)
        outbox_file.try_again(outbox.path)
        with peer(address, messages.topics_of("result"), confirm=always):
            publisher = publisher_of(outbox, address)
            try:
                assert publisher.drain(60.0) == 0
            finally:
                publisher.close()
    assert outbox.too_large("pi-1") == []


class LargeListener(Listener):
    """A listener that reports something large with each connection.

    The handler of orders does so with log lines until they are acknowledged.
    """

    publisher: Publisher

    def connected(self):
        self.publisher.publish(f"{messages.TOPIC_ROOT}/lab/pi-1/job", os.urandom(2 * LIMIT_BYTES))


@pytest.mark.mosquitto
@pytest.mark.usefixtures("quick")
def test_a_report_that_is_too_large_holds_up_no_record(outbox, tmp_path, monkeypatch):
    """The broker closes each connection at it, so from the second one on records go first."""
    speak(monkeypatch, "3.1.1", heeds=True)
    listener = LargeListener()
    put(outbox, 5)
    with (
        started(mosquitto(tmp_path, MAX_PACKET_SIZE)) as address,
        peer(address, messages.topics_of("result"), confirm=always),
    ):
        # It reports with the first connection already.
        publisher = listener.publisher = Publisher(
            address, outbox, make_birth(outbox), receipt_timeout_s=1.0, listener=listener
        )
        publisher.connect()
        try:
            assert wait_until(lambda: outbox.count() == 0)
        finally:
            publisher.close()
