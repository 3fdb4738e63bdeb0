"""Facts about a broker that announces a larger packet than it accepts.

AWS IoT Core does that. A record that is too large stays, and all else arrives. `test_too_large`
shows the same with real brokers, where there is one that answers so.
"""

import os
import random

import msgspec
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from edgemeter.agent.base.mqtt_session import CUT, PACKET_TOO_LARGE, disconnect_reason
from edgemeter.agent.contract.record import encode
from edgemeter.agent.delivery import outbox_file
from edgemeter.agent.delivery.message_limit import ANSWERS, CLOSED_TIMES, RETRY_S
from edgemeter.agent.delivery.sender import packed
from tests.fixtures.in_process_broker import InProcessBroker, SteppedPublisher
from tests.fixtures.publishing import put
from tests.fixtures.record_factory import make_record, make_series

LARGE = 6
# Sizes below the strict broker's limit of 4,976 bytes: alone, and together with five others.
ALONE_BYTES, SHARED_BYTES = 4920, 4500


def fill(outbox, size_bytes):
    """Put eleven records, of which the sixth has about that many bytes in a message."""
    case = ""
    while len(packed([encode(make_record(case=case, samples=()))])) < size_bytes:
        case += os.urandom(10).hex()
    put(outbox, LARGE - 1)
    put(outbox, 1, case=case, samples=())
    put(outbox, 5)


@pytest.fixture
def filled(outbox):
    """Return an outbox of eleven records, of which the sixth is sent alone."""
    fill(outbox, ALONE_BYTES)
    return outbox


def strict_broker(**settings):
    """Return a broker that accepts half of what it announces."""
    return InProcessBroker(**({"largest_bytes": 6000, "accepted_bytes": 3000} | settings))


def deliver(broker, outbox):
    """Return how many records remain, and why, once a publisher has delivered what it can."""
    publisher = SteppedPublisher(broker, outbox)
    publisher.connect()
    publisher.go_on(200.0)
    remaining = publisher.drain(1)
    reason = publisher.why_left() if remaining else None
    publisher.close()
    return remaining, reason


@pytest.mark.parametrize("size_bytes", [ALONE_BYTES, SHARED_BYTES])
@pytest.mark.parametrize("reason", ANSWERS)
def test_a_record_above_the_true_limit_is_sent_a_few_times_and_all_others_arrive(
    outbox, reason, size_bytes
):
    """The records before and behind it arrive, and it is kept in the outbox.

    No later process sends it until somebody publishes it by hand.
    """
    fill(outbox, size_bytes)
    shares = size_bytes == SHARED_BYTES
    is_puback, is_certain = (
        reason in {"Packet too large", "Quota exceeded"},
        ANSWERS[reason] == "0x95",
    )
    broker = strict_broker(**{"refusal" if is_puback else "end_reason": reason})
    remaining, text = deliver(broker, outbox)
    assert remaining == 1
    arrived = list(dict.fromkeys(run.seq for run in broker.runs))
    # Messages behind one that was refused arrive before its other records.
    assert (sorted(arrived) if is_puback else arrived) == [
        seq for seq in range(1, 12) if seq != LARGE
    ]
    assert (broker.refused[0] == [LARGE]) != shares
    alone = broker.refused.count([LARGE])
    # A closed connection counts only where the record was alone on the line, and after others have
    # got through.
    assert alone <= 2 if is_certain else 3 <= alone <= 5
    refusals = outbox.refusals("broker.example:1883")
    assert {refusal.answer for refusal in refusals} == {ANSWERS[reason]}
    assert len(refusals) == (1 + shares if is_certain else CLOSED_TIMES)
    assert len(broker.refused) <= alone + 3
    (waiting,) = outbox.pending(10, 10**9)
    assert waiting.seq == LARGE
    assert (
        f"record {LARGE} of session {outbox.session} has {len(packed([waiting.payload]))} bytes"
        in text
    )
    broker.refused.clear()
    put(outbox, 1)
    assert deliver(broker, outbox)[0] == 1
    assert broker.runs[-1].seq == 12
    assert broker.refused == []
    broker.accepted_bytes = 6000
    outbox_file.try_again(outbox.path)
    assert deliver(broker, outbox) == (0, None)


def test_a_record_that_is_too_large_with_its_samples_arrives_without_them(filled):
    """A limit that was learned is treated as one that was announced."""
    broker = strict_broker(largest_bytes=1 << 20, accepted_bytes=6000)
    (heavy,) = put(
        filled, 1, samples=(msgspec.structs.replace(make_series(), data=os.urandom(10_000).hex()),)
    )
    assert deliver(broker, filled) == (0, None)
    assert [run.samples for run in broker.runs if run.seq == heavy.seq] == [()]


def test_a_message_of_the_largest_size_is_sent_and_one_byte_more_is_not(filled):
    """The refused size is the limit, and what one broker taught holds for no other."""
    broker = strict_broker(largest_bytes=1 << 20)
    deliver(broker, filled)
    (waiting,) = filled.pending(10, 10**9)
    size_bytes = len(packed([waiting.payload]))
    for accepted_bytes, remaining in ((size_bytes - 1, 1), (size_bytes, 0)):
        outbox_file.try_again(filled.path)
        filled.add_refusal("another.example:1883", outbox_file.Refusal(100, "0x95"))
        assert (
            deliver(strict_broker(largest_bytes=1 << 20, accepted_bytes=accepted_bytes), filled)[0]
            == remaining
        )


def test_the_pause_grows_while_nothing_gets_through_and_nothing_is_called_too_large(filled):
    """A broker that closes the line at every result may have rules instead of a packet limit.

    No record is set aside for that.
    """
    broker = strict_broker(accepted_bytes=0, end_reason=CUT)
    publisher = SteppedPublisher(broker, filled)
    publisher.connect()
    for _ in range(60):
        publisher.step()
        broker.turn()
    assert broker.sessions[-1].failures == len(broker.refused) >= 5
    assert "right after a message of" in publisher.why_left()
    assert publisher.drain(0) == 11
    assert [1] in broker.refused
    assert filled.refusals("broker.example:1883") == filled.too_large("pi-1") == []
    publisher.close()


def test_a_broker_that_only_closed_the_connection_is_tried_again_after_an_hour(filled):
    """One message shows whether the limit is still the same.

    Once it was raised, the record arrives without anybody's help.
    """
    broker = strict_broker(end_reason=CUT)
    publisher = SteppedPublisher(broker, filled)
    publisher.connect()
    publisher.go_on(RETRY_S - 1.0)
    assert filled.too_large("pi-1")
    broker.refused.clear()
    publisher.go_on(RETRY_S)
    assert broker.refused == [[LARGE]]
    broker.accepted_bytes = 6000
    publisher.go_on(RETRY_S)
    assert publisher.drain(0) == 0
    assert filled.too_large("pi-1") == filled.refusals("broker.example:1883") == []
    publisher.close()


def test_a_record_that_a_broker_of_3_1_1_drops_without_a_word_is_named_and_repeated_alone(outbox):
    """The broker acknowledges what it drops, and only the receipt is missing.

    When the broker accepts the record, it arrives without anybody's help.
    """
    fill(outbox, SHARED_BYTES)
    broker = strict_broker(refusal="")
    publisher = SteppedPublisher(broker, outbox)
    publisher.connect()
    publisher.go_on(600.0)
    assert {run.seq for run in broker.runs} == set(range(1, 12)) - {LARGE}
    assert broker.refused.count([LARGE]) >= CLOSED_TIMES
    (reason,) = outbox.too_large("pi-1")
    assert f"record {LARGE} of session {outbox.session} has " in reason
    assert reason in publisher.why_left()
    assert outbox.refusals("broker.example:1883") == []
    put(outbox, 3)
    publisher.go_on(70.0)
    assert outbox.count() == 1
    broker.accepted_bytes = 6000
    publisher.go_on(400.0)
    assert publisher.drain(0) == 0
    assert outbox.too_large("pi-1") == []
    publisher.close()


@pytest.mark.parametrize("seed", range(6))
def test_a_broker_that_is_killed_again_and_again_refuses_no_record(outbox, seed):
    """It does not matter whether small, large or single records are on their way."""
    chance = random.Random(seed)  # noqa: S311 - a test's
    broker = InProcessBroker()
    publisher = SteppedPublisher(broker, outbox)
    publisher.connect()
    for _ in range(60):
        put(outbox, 1, case=os.urandom(chance.choice([100, 1000, 30_000])).hex(), samples=())
        publisher.step()
        if chance.random() < 0.2:
            broker.stop()
            broker.start()
        elif chance.random() < 0.7:
            broker.turn()
    publisher.go_on(100.0)
    assert publisher.drain(0) == 0
    assert outbox.refusals("broker.example:1883") == outbox.too_large("pi-1") == []
    publisher.close()


def test_a_brokers_0x95_is_what_these_tests_call_it():
    """The tests use the name that paho-mqtt gives to the code."""
    assert (
        disconnect_reason(str(ReasonCode(PacketTypes.DISCONNECT, identifier=0x95)), was_up=True)
        == PACKET_TOO_LARGE
    )
