import re
import zlib

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.contract import health as contract_health
from edgemeter.agent.contract import messages, record
from edgemeter.agent.contract.health import Health
from edgemeter.agent.ledger.presence import RetainedMessage
from edgemeter.collector.receive import admission
from edgemeter.collector.receive.admission import Admitted
from tests.fixtures.record_factory import make_record
from tests.fixtures.rows import table_row

TOPIC = "edgemeter/v1/lab/pi-1/result"


def admit(payload, topic=TOPIC):
    admitted = Admitted(7)
    admitted.add(Message(topic, payload, 1, 1, 1))
    return admitted


def encoded(**changes):
    return record.encode(make_record(**({"session": 5, "seq": 1} | changes)))


def altered(**fields):
    """Return a record's JSON with fields of any kind put in."""
    document = msgspec.json.decode(encoded()) | fields
    return msgspec.json.encode(document)


def reason_of(admitted):
    assert not admitted.arrivals
    (rejection,) = admitted.rejections
    return rejection.reason


BIRTH = messages.Birth(
    device="pi-1", fleet="lab", session=3, agent="0", board=None, os=None, arch="x", runtimes={}
)
STATE = messages.DeviceState(state="online", session=3)
HEALTH = Health(device="pi-1", fleet="lab", session=3, told_ns=5, agent="0")
ACTIVITY = messages.Activity(
    session=7, measuring=messages.Measuring(suite="s", case="c", run=1, runs=2)
)
PROGRESS = messages.JobProgress(
    job="autumn",
    title="t",
    state="running",
    wave=1,
    waves=2,
    done=3,
    failed=1,
    running=2,
    waiting=4,
)
ENCODED = {
    "birth": messages.encode_message(BIRTH),
    "state": messages.encode_message(STATE),
    "health": contract_health.encode_health(HEALTH),
}


def test_what_is_not_of_its_topic_or_of_no_outbox_is_rejected_with_the_reason():
    """The broker's access list guards topics; this check ties each message to its topic.

    An older collector keeps what it can be sure to understand.
    """
    on_topic = "but arrived on the topic of device 'pi-1' of fleet 'lab'"
    for payload, topic, reason in (
        (encoded(device="pi-2"), TOPIC, on_topic),
        (encoded(fleet="field"), TOPIC, on_topic),
        (altered(session=None), TOPIC, "did not come from an outbox"),
        (altered(seq=None), TOPIC, "did not come from an outbox"),
        (altered(schema=2), TOPIC, "update edgemeter here"),
        *(
            (ENCODED[kind], f"edgemeter/v1/lab/pi-2/{kind}", "arrived on the topic")
            for kind in ("birth", "health")
        ),
        *((b"{}", f"edgemeter/v1/lab/pi-1/{kind}", f"not a device's {kind}") for kind in ENCODED),
        (messages.encode_message(PROGRESS), "edgemeter/job/winter/state", "is of job 'autumn'"),
    ):
        with table_row(topic, reason):
            assert reason in reason_of(admit(payload, topic))
    assert admit(altered(humidity_ratio=0.5)).arrivals


def test_one_bad_record_of_a_batch_does_not_take_the_others_along():
    """Each record of a batch is judged by itself; one is invalid, one is of another device."""
    for bad, reason in (
        (altered(latency="fast"), "got `str` - at `$.latency`"),
        (encoded(seq=2, device="pi-2"), "of device 'pi-1'"),
    ):
        with table_row(reason):
            admitted = admit(messages.join_records([encoded(seq=1), bad, encoded(seq=3)]))
            assert not admitted.batches
            assert [arrival.run.key[3] for arrival in admitted.arrivals] == [1, 3]
            assert [rejection.payload for rejection in admitted.rejections] == [bad]
            assert reason in admitted.rejections[0].reason


def test_a_batch_of_too_many_records_is_rejected(monkeypatch):
    """The content of one message is bounded; a batch of just the limit is taken."""
    monkeypatch.setattr(messages, "LONGEST_BATCH", 2)
    batch = [encoded(seq=seq) for seq in (1, 2, 3)]
    assert admit(messages.join_records(batch[:2])).batches
    assert "more than 2" in reason_of(admit(messages.join_records(batch)))


def test_a_group_is_full_at_a_count_of_messages_of_rejections_and_of_bytes(monkeypatch):
    """The memory that one group needs is bounded, whatever comes."""
    for name in ("GROUP_MESSAGES", "GROUP_REJECTIONS"):
        monkeypatch.setattr(admission, name, 2)
    monkeypatch.setattr(admission, "GROUP_TEXT_BYTES", 2 * len(encoded()))
    for payload, topic, message_count in (
        (encoded(), TOPIC, 2),
        (b"x", TOPIC, 2),
        (ENCODED["state"], "edgemeter/v1/lab/pi-1/state", 2),
        (b"[%s,%s]" % (encoded(), encoded()), TOPIC, 1),
    ):
        group = Admitted(7)
        for _ in range(message_count):
            assert not group.is_full()
            group.add(Message(topic, payload))
        assert group.is_full()


def test_a_number_beyond_its_bounds_is_rejected_by_name():
    """The number may be in any part of a record, in a batch too."""
    latency = msgspec.json.decode(encoded())["latency"]
    for fields, where in (
        ({"session": 0}, "$.session"),
        ({"seq": -1}, "$.seq"),
        ({"session": 2**53}, "$.session"),
        ({"seq": 10**40}, "$.seq"),
        ({"started_at_ns": 2**63}, "$.started_at_ns"),
        ({"started_at_ns": -1}, "$.started_at_ns"),
        ({"seed": 2**64}, "$.seed"),
        ({"batch": 2**64}, "$.batch"),
        ({"monotonic_ns": 2**64}, "$.monotonic_ns"),
        ({"latency": latency | {"count": 2**64}}, "$.latency.count"),
        ({"load": {"samples": 1, "failures": {"http 503": 2**64}}}, "$.load.failures"),
    ):
        assert f"at `{where}" in reason_of(admit(altered(**fields))), fields
        (rejection,) = admit(
            b"[%s,%s]" % (encoded(), altered(**{"seq": 2, "id": "x"} | fields))
        ).rejections
        assert f"at `{where}" in rejection.reason, fields
        with pytest.raises(ConfigError, match=re.escape(where)):
            record.decode_head(altered(**fields))


def test_a_message_of_thousands_of_records_that_are_none_is_one_entry():
    """A message of 24 kB that would be 9,999 rejections is kept as it came.

    It can be retried whole; valid records are taken.
    """
    for base in (0, 10_000):
        with table_row(base):
            payload = zlib.compress(
                b"[" + b",".join(b'{"id":"%d"}' % (base + number) for number in range(9999)) + b"]"
            )
            admitted = admit(payload)
            assert admitted.rejections[0].payload == payload
            assert reason_of(admitted).startswith(
                "9999 records of this message, the first: not a run record"
            )
    mixed = (
        b"["
        + b",".join(
            [encoded(seq=1), *(b'{"id":"%d"}' % number for number in range(500)), encoded(seq=2)]
        )
        + b"]"
    )
    admitted = admit(mixed)
    assert ([arrival.run.key[3] for arrival in admitted.arrivals], len(admitted.rejections)) == (
        [1, 2],
        1,
    )


def test_state_birth_and_health_are_changes_of_presence_and_an_emptied_topic_is_nothing():
    """These messages say who is there; a deleted retained message says nothing."""
    for kind, message in (("birth", BIRTH), ("state", STATE), ("health", HEALTH)):
        with table_row(kind):
            assert [
                change.message
                for change in admit(ENCODED[kind], f"edgemeter/v1/lab/pi-1/{kind}").changes
            ] == [message]
            assert admit(b"", f"edgemeter/v1/lab/pi-1/{kind}").changes == []


def test_what_is_measured_now_is_kept_by_topic_and_an_emptied_topic_takes_it_away():
    """The message is kept as it was understood, without fields from the future.

    A message of another kind is rejected.
    """
    for topic, message in (
        ("edgemeter/v1/lab/pi-1/activity", ACTIVITY),
        ("edgemeter/job/autumn/state", PROGRESS),
    ):
        with table_row(topic):
            encoded_message = messages.encode_message(message)
            later = encoded_message.replace(b"{", b'{"later":1,', 1)
            assert admit(later, topic).changes == [RetainedMessage(topic, encoded_message, 7)]
            assert admit(b"", topic).changes == [RetainedMessage(topic, b"", 7)]
            for garbage in (b"\xff", b"[]", b"{}", encoded_message[:-1], b"x" * (1 << 20)):
                admitted = admit(garbage, topic)
                assert (admitted.changes, len(admitted.rejections)) == ([], 1)
