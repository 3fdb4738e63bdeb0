"""Facts about the publisher, at a broker that is an object and by a clock that the test moves."""

import logging
import os
from unittest.mock import Mock

import msgspec
import numpy as np
import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.mqtt_session import CUT, SessionProfile
from edgemeter.agent.contract import messages, samples
from edgemeter.agent.contract.messages import Topic
from edgemeter.agent.delivery.broker_name import LONGEST_DISPLACED_S
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.delivery.publisher import (
    REFUSED_PAUSE_S,
    RESTATED_S,
    WAITING_MESSAGES,
    Publisher,
)
from tests.fixtures.in_process_broker import ADDRESS, InProcessBroker, SteppedPublisher
from tests.fixtures.publishing import Listener, make_birth, put
from tests.fixtures.record_factory import make_record

MEASURING = messages.Measuring(suite="nightly", case="tiny-detector", run=3, runs=12)
COMMAND, JOB, RECEIPT, RESULT, STATE = (
    str(Topic("lab", "pi-1", kind)) for kind in ("command", "job", "receipt", "result", "state")
)


def never(_seq, _times):
    return False


@pytest.fixture
def broker():
    return InProcessBroker()


@pytest.fixture
def publisher(broker, outbox):
    new_publisher = connected(broker, outbox)
    yield new_publisher
    new_publisher.close()


def connected(broker, outbox, **options):
    new_publisher = SteppedPublisher(broker, outbox, **options)
    new_publisher.connect()
    return new_publisher


def last_state(broker):
    return broker.last("state", messages.decode_state).state


def activities(broker):
    return [
        messages.decode_activity(message.payload).measuring
        for message in broker.messages
        if message.topic.endswith("/activity")
    ]


def test_records_go_out_together_and_are_forgotten_on_receipt(broker, publisher, outbox):
    """Waiting records go in one message, a later one in its own, and each goes once."""
    put(outbox, 3)
    publisher.go_on()
    put(outbox, 1)
    publisher.go_on(600.0)
    assert broker.arrived == [(RESULT, [1, 2, 3]), (RESULT, [4])]
    assert publisher.drain(0) == outbox.count() == publisher.resent == 0


def test_without_a_receipt_the_outbox_keeps_everything_and_sends_it_again(
    broker, publisher, outbox
):
    """The broker's acknowledgement is no receipt, and a lost receipt only costs time."""
    put(outbox, 3)
    broker.confirm = lambda _seq, times: times > 2
    publisher.go_on(4.9)
    assert broker.arrived == [(RESULT, [1, 2, 3])]
    assert outbox.count() == publisher.drain(0) == 3
    assert "edgemeter collector up" in publisher.why_left()
    publisher.go_on(60.0)
    assert set(broker.times.values()) == {3}
    assert publisher.resent == 6
    assert outbox.count() == 0


def test_a_record_that_nobody_takes_holds_up_no_other(broker, outbox):
    """A window full of records that are never confirmed does not block those behind it."""
    put(outbox, 6)
    broker.confirm = lambda seq, _: seq != 2
    publisher = connected(broker, outbox, window_records=2)
    publisher.go_on(100.0)
    assert [pending.seq for pending in outbox.pending(10, 10**9)] == [2]
    publisher.close()


def test_a_new_connection_sends_what_has_no_receipt_at_once(broker, publisher, outbox):
    """Records that were on the old connection may be lost, so they are not waited for."""
    put(outbox, 2)
    broker.confirm = never
    publisher.go_on()
    broker.confirm = lambda *_: True
    broker.stop()
    publisher.go_on()
    assert "is down" in publisher.why_left()
    broker.start()
    publisher.go_on(1.0)
    assert [seqs for _, seqs in broker.arrived] == [[1, 2], [1, 2]]
    assert outbox.count() == 0


def test_a_device_writes_below_its_own_name_and_the_records_fleet_only(broker, outbox):
    """Another device's records in the same outbox stay there.

    Those of a previous fleet go out and are receipted on that fleet's topic.
    """
    put(outbox, 1)
    put(outbox, 1, device="pi-2")
    put(outbox, 1, fleet="old")
    publisher = connected(broker, outbox)
    publisher.go_on()
    assert [topic for topic, _ in broker.arrived] == [RESULT, "edgemeter/v1/old/pi-1/result"]
    assert outbox.waiting() == {"pi-2": 1}
    publisher.close()


def test_birth_and_state_are_retained_and_a_goodbye_is_offline(broker, publisher, outbox):
    """A later client still learns who is there and what was dropped.

    The Will speaks for a device that cannot, with its session number.
    """
    outbox.connection.execute("INSERT INTO dropped VALUES ('pi-1', 3, 4)")
    broker.sessions[-1].cut(CUT)
    publisher.go_on()
    birth = broker.last("birth", messages.decode_birth)
    assert birth == msgspec.structs.replace(make_birth(outbox), dropped_traces=3, dropped_records=4)
    assert last_state(broker) == "online"
    will = broker.sessions[-1].profile.will
    assert (will.topic, messages.decode_state(will.payload)) == (
        STATE,
        messages.DeviceState(state="lost", session=outbox.session),
    )
    publisher.report_challenge("0a")
    publisher.go_on()
    assert broker.last("state", messages.decode_state).challenge == "0a"
    publisher.close()
    assert last_state(broker) == "offline"
    assert broker.last("state", messages.decode_state).challenge is None


def test_what_is_measured_is_reported_at_once_or_not_at_all(broker, publisher):
    """The activity is also reported right after connecting.

    A connection that returns while queries are timed brings no report before the activity is over.
    """
    publisher.report_activity(MEASURING)
    publisher.go_on()
    assert activities(broker) == [MEASURING]
    broker.stop()
    publisher.report_activity(MEASURING)
    broker.start()
    publisher.go_on()
    assert activities(broker) == [MEASURING]
    broker.stop()
    publisher.report_activity(None)
    broker.start()
    publisher.go_on()
    assert activities(broker) == [MEASURING, None]
    assert broker.last("activity", messages.decode_activity).measuring is None


def test_garbage_on_the_receipt_topic_is_ignored(broker, publisher, outbox, caplog):
    """It harms neither the publisher nor the outbox."""
    publisher.go_on()
    broker.confirm = never
    put(outbox, 1)
    for payload in (
        b"",
        b"\xff\x00",
        b"[]",
        b'{"session":1e999,"held":[]}',
        b'{"session":1,"held":[[1,' + b"9" * 400 + b"]]}",
    ):
        broker.take(RECEIPT, payload)
    publisher.go_on()
    assert caplog.text.count("not a receipt") == 5
    assert outbox.count() == 1
    broker.confirm = lambda *_: True
    publisher.go_on(60.0)
    assert outbox.count() == 0


def test_a_request_brings_receipted_records_again(broker, publisher, outbox):
    """Their fleet asks for them, and they come once though the broker retains the request."""
    put(outbox, 3)
    publisher.go_on()
    broker.take(
        RECEIPT, messages.encode_message(messages.AgainRequest(again="0" * 32)), lasting="retained"
    )
    publisher.go_on()
    broker.sessions[-1].cut(CUT)
    publisher.go_on(10.0)
    assert [seqs for _, seqs in broker.arrived] == [[1, 2, 3], [1, 2, 3]]
    assert outbox.count() == 0


def test_two_processes_of_one_device_do_not_throw_each_other_out(broker, publisher, outbox):
    """The second publishes beside the first, under an id of its own.

    It publishes nothing about the device, and the next process has the name again.
    """
    with Outbox(outbox.path) as second_box:
        second = connected(broker, second_box)
        put(second_box, 3)
        put(outbox, 3)
        second.go_on()
        publisher.go_on()
        assert outbox.count() == 0
        assert [session.profile.client_id for session in broker.sessions] == [
            "pi-1",
            f"pi-1~{second_box.session}",
        ]
        assert second._session.profile.will is None
        second.close()
        assert broker.last("state", messages.decode_state) == messages.DeviceState(
            state="online", session=outbox.session
        )
    publisher.close()
    assert last_state(broker) == "offline"
    with Outbox(outbox.path) as third_box:
        connected(broker, third_box).close()
    assert broker.sessions[-1].profile.client_id == "pi-1"


def test_a_state_that_another_process_replaced_is_published_again(broker, publisher, outbox):
    """A later client finds this device online; that is repeated every ten seconds at most."""
    publisher.go_on()
    clone = messages.encode_message(messages.DeviceState(state="lost", session=99))
    for _ in range(3):
        broker.take(STATE, clone, lasting="retained")
        publisher.go_on()
    assert broker.last("state", messages.decode_state).session == 99
    publisher.now_s += RESTATED_S
    broker.take(STATE, clone, lasting="retained")
    publisher.go_on()
    assert broker.last("state", messages.decode_state).session == outbox.session


def test_a_board_that_met_a_namesake_delivers_beside_it_and_takes_its_name_again(broker, outbox):
    """State, Will, a lasting session and orders come back in time without a restart.

    Orders are for one of the two.
    """
    listener = Listener()
    publisher = connected(broker, outbox, lasting="persistent", listener=listener)
    publisher.go_on()
    broker.open_session(ADDRESS, SessionProfile("pi-1"), Mock()).connect(1.0)
    put(outbox, 2)
    publisher.go_on()
    assert outbox.count() == 0
    assert broker.sessions[-1].profile == SessionProfile(f"pi-1~{outbox.session}")
    broker.take(*listener.topics, b"for the other")
    publisher.go_on(LONGEST_DISPLACED_S)
    broker.take(*listener.topics, b"for this one")
    publisher.go_on()
    assert listener.heard == [b"for this one"]
    profile = broker.sessions[-1].profile
    assert (profile.client_id, profile.lasting, profile.will is not None) == (
        "pi-1",
        "persistent",
        True,
    )
    assert last_state(broker) == "online"
    publisher.close()


def test_a_refusal_is_reported_at_once_and_the_device_tries_again_after_a_pause(
    broker, publisher, outbox
):
    """Waiting would not help, so drain does not wait; after the pause the broker may allow it."""
    put(outbox, 1)
    broker.refuses = lambda topic: topic == RESULT
    publisher.go_on()
    with pytest.raises(UnavailableError, match="'pi-1'"):
        publisher.drain(3600)
    broker.refuses = lambda _topic: False
    publisher.go_on(REFUSED_PAUSE_S - 1)
    assert outbox.count() == 1
    publisher.go_on(2.0)
    assert outbox.count() == 0


def test_a_previous_fleets_records_that_are_refused_hold_up_no_other(broker, outbox, caplog):
    """They stay in the outbox, and the device's own records go out at once."""
    put(outbox, 40, fleet="old")
    put(outbox, 3)
    broker.refuses = lambda topic: "/old/" in topic
    publisher = connected(broker, outbox)
    publisher.go_on(1.0)
    assert outbox.count() == 40
    assert outbox.fleets("pi-1") == ["old"]
    assert "previous fleet" in publisher.why_left()
    assert caplog.text.count("refuses results of a previous fleet") == 1
    publisher.close()


def test_a_lost_connection_is_reported_once(outbox, caplog):
    """The log of a revoked device that tries for ever does not grow.

    A connection that was back is reported again when it is lost.
    """
    caplog.set_level(logging.INFO)
    publisher = Publisher(ADDRESS, outbox, make_birth(outbox))
    for reason in ("cut", "refused", "refused", "refused"):
        publisher.disconnected(reason)
    publisher.connected()
    publisher.disconnected("refused")
    assert [line.rpartition(": ")[2] for line in caplog.messages] == ["cut", "refused", "refused"]


def test_what_is_larger_than_the_broker_takes_goes_without_its_samples_or_stays(
    broker, publisher, outbox
):
    """With MQTT 5 the limit is known, so that all other records arrive without a break."""
    broker.largest_bytes = 9000
    noise = samples.pack("latency", "ns", np.random.default_rng(1).integers(0, 2**32, 4500))
    put(outbox, 1)
    put(outbox, 1, samples=(noise,))
    put(outbox, 1, case=os.urandom(10_000).hex())
    put(outbox, 1)
    publisher.go_on(100.0)
    assert [(run.seq, bool(run.samples)) for run in broker.runs] == [
        (1, True),
        (2, False),
        (4, True),
    ]
    assert broker.runs[1].latency == make_record().latency
    assert publisher.drain(60) == 1
    assert "packet limit" in publisher.why_left()
    assert len(broker.sessions) == 1
    assert publisher.is_connected()


@pytest.fixture
def listener():
    return Listener()


def test_messages_of_others_go_out_and_those_for_them_come_in(broker, outbox, listener):
    """They go out in order, and retained where that is asked for.

    Before there is a connection and after its end none is taken.
    """
    publisher = SteppedPublisher(broker, outbox, listener=listener)
    assert not publisher.publish(JOB, b"too early")
    publisher.connect()
    publisher.go_on()
    broker.take(COMMAND, b"order")
    broker.take(JOB, b"not asked for")
    assert publisher.publish(JOB, b"1")
    assert publisher.publish(JOB, b"2", lasting="retained")
    put(outbox, 1)
    publisher.go_on()
    assert [message.payload for message in broker.messages if message.topic == JOB] == [
        b"not asked for",
        b"1",
        b"2",
    ]
    assert [message.topic for message in broker.messages[-3:]] == [JOB, RESULT, RECEIPT]
    assert broker.retained[JOB].payload == b"2"
    assert listener.heard == [b"order"]
    publisher.close()
    assert not publisher.publish(JOB, b"too late")


def test_a_flood_of_others_is_refused_and_the_broker_is_not_overrun(broker, outbox, listener):
    """Never more messages are sent at once than the broker takes.

    `room` is never negative, and no message that was taken is lost.
    """
    publisher = connected(broker, outbox, listener=listener)
    publisher.go_on()
    accepted = sum(publisher.publish(JOB, b"%d" % number) for number in range(5 * WAITING_MESSAGES))
    assert accepted == WAITING_MESSAGES
    publisher.step()
    assert broker.sessions[-1].room() == 0
    publisher.go_on()
    assert [int(message.payload) for message in broker.messages if message.topic == JOB] == list(
        range(accepted)
    )
    publisher.close()


def test_a_broker_that_allows_no_jobs_still_takes_results(broker, outbox, listener, caplog):
    """Rules without the topics of jobs are reported, and the records are confirmed."""
    broker.refuses = lambda topic: topic in {JOB, COMMAND}
    publisher = connected(broker, outbox, listener=listener)
    publisher.go_on()
    assert publisher.publish(JOB, b"report")
    put(outbox, 3)
    publisher.go_on()
    assert "update its ACL" in caplog.text
    assert publisher.drain(0) == 0
    publisher.close()
