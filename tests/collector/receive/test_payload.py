import itertools
import zlib

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.contract import messages
from edgemeter.agent.contract import record as contract_record
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.receive import admission as wire
from edgemeter.collector.receive.admission import Admitted
from tests.fixtures.hostile import HOSTILE
from tests.fixtures.record_factory import make_record
from tests.fixtures.rows import table_row

TOPIC = "edgemeter/v1/lab/pi-1/result"


def encoded(seq=1, **changes):
    return contract_record.encode(make_record(session=5, seq=seq, **changes))


def admit(payload):
    admitted = Admitted(1_900_000_000_000_000_000)
    admitted.add(Message(TOPIC, payload, 1, 1, 1))
    return admitted


def test_every_form_of_the_wire_arrives_whole(tmp_path):
    """The ledger has the same records for one or several, plain or compressed."""
    for count, is_compressed in itertools.product((1, 3), (False, True)):
        with table_row(count, is_compressed):
            sent = [make_record(session=5, seq=seq) for seq in range(1, count + 1)]
            payload = messages.join_records([contract_record.encode(record) for record in sent])
            admitted = admit(zlib.compress(payload) if is_compressed else payload)
            assert not admitted.rejections
            with SqliteLedger(tmp_path / f"{count}-{is_compressed}") as ledger:
                ledger.commit(admitted.arrivals, (), (), admitted.batches)
                assert [record.record for record in ledger.records(with_samples=True)] == sent
                assert ledger.ranges("pi-1", 5) == [(1, count)]


def test_what_is_compressed_and_damaged_is_rejected_with_a_reason():
    """The payload is cut, altered, or has only its first byte."""
    compressed = zlib.compress(encoded())
    for payload in (
        b"x",
        compressed[:-1],
        compressed[:100],
        compressed[:50] + b"\0" + compressed[51:],
        b"x\x9c" + b"\xff" * 50,
    ):
        (rejection,) = admit(payload).rejections
        assert "not a run record: compressed, but" in rejection.reason


def test_text_just_at_its_limit_is_taken_and_one_more_is_not():
    """The limit applies to the expanded text, whatever the ratio.

    It is 24 MiB with raw samples, 2 MiB of many records, and 1 MiB else.
    """
    limits = {
        b'{"samples":[': wire.LONGEST_TEXT_BYTES,
        b" [": wire.LONGEST_BATCH_BYTES,
        b"{": wire.LARGEST_HEAD_BYTES,
    }
    for beginning, limit_bytes in limits.items():
        with table_row(beginning):
            text = beginning.ljust(limit_bytes)
            assert wire.payload_text(zlib.compress(text)) == text
            with pytest.raises(
                ConfigError, match=rf"more than {limit_bytes >> 20} MiB when decompressed"
            ):
                wire.payload_text(zlib.compress(text + b" "))
    many = b"[".ljust(wire.LONGEST_BATCH_BYTES)
    assert wire.payload_text(many) == many
    with pytest.raises(ConfigError, match="not a batch of records: more than 2 MiB"):
        wire.payload_text(many + b" ")


def test_a_record_whose_clock_never_came_right_is_stamped_on_receipt_and_marked(tmp_path):
    """A board in 1970 gets the time of receipt in the ledger, and who set it.

    A clock that was right is left alone.
    """
    for many in (1, 2):
        with table_row(many):
            wrong = [
                make_record(session=5, seq=seq, clock_synchronised=False, started_at_ns=12)
                for seq in range(1, many + 1)
            ]
            later = make_record(
                session=5, seq=9, clock_synchronised=False, stamped_by="device-later"
            )
            admitted = admit(
                messages.join_records(
                    [contract_record.encode(record) for record in [*wrong, later]]
                )
            )
            with SqliteLedger(tmp_path / f"{many}") as ledger:
                ledger.commit(admitted.arrivals, admitted.rejections, (), admitted.batches)
                *stamped, last = [record.record for record in ledger.records()]
            assert [
                (record.started_at_ns, record.stamped_by, record.clock_synchronised)
                for record in stamped
            ] == [(1_900_000_000_000_000_000, "collector", False)] * many
            assert (last.started_at_ns, last.stamped_by) == (later.started_at_ns, "device-later")


def test_hostile_payloads_end_in_the_quarantine(tmp_path):
    """Plain or compressed, such a payload is never among the records and causes no crash."""
    with SqliteLedger(tmp_path / "ledger") as ledger:
        for name, make in HOSTILE.items():
            before, payload = ledger.quarantined_count(), make()
            for form in (payload, zlib.compress(payload, 1)):
                with table_row(name, form[:1]):
                    admitted = admit(form)
                    assert not any("\n" in rejection.reason for rejection in admitted.rejections)
                    ledger.commit(admitted.arrivals, admitted.rejections, (), admitted.batches)
                    assert ledger.count() == 0
                    assert ledger.quarantined_count() > before


def test_a_record_may_be_large_in_its_samples_and_in_nothing_else(monkeypatch):
    """Raw samples may have any size.

    Conditions, keys or unknown fields of megabytes, and thousands of series, are no record.
    """
    monkeypatch.setattr(wire, "LARGEST_HEAD_BYTES", 20_000)
    monkeypatch.setattr(wire, "MOST_SERIES", 3)
    series = b'{"name":"latency","unit":"ns","dtype":"<u4","count":0,"data":"%s"}'
    large = contract_record.join_samples(encoded(), b"[" + series % (b"A" * 100_000) + b"]")
    assert admit(large).arrivals
    for text, reason in (
        (
            encoded().replace(b'"case":', b'"unknown":[' + b"1," * 20_000 + b'1],"case":', 1),
            "without its samples",
        ),
        (
            contract_record.join_samples(
                encoded(), b"[" + b",".join([series % (b"A" * 10_000)] * 4) + b"]"
            ),
            "more than 3 series",
        ),
        (b'{"samples":[],' * 2 + b" " * 30_000, "not a run record"),
    ):
        (rejection,) = admit(text).rejections
        assert reason in rejection.reason


def test_one_record_travels_alone_and_several_as_a_list():
    """Join and split are inverse to each other.

    A list of anything else, or of too many, is refused as a whole.
    """
    first, two = b'{"schema": 1, "id": "a"}', b'{"schema":1,"id":"b","x":[1, 2]}'
    assert messages.join_records([first]) == first
    assert wire.split_records(first) == [first]
    assert wire.split_records(messages.join_records([first, two])) == [first, two]
    assert wire.split_records(b" " + messages.join_records([first, two])) == [first, two]
    for payload in [b"[1]", b"[{}]", b"[", b'[{"schema":1}]', b'["\xff"]']:
        with table_row(payload), pytest.raises(ConfigError, match=r"^not a batch of records: "):
            wire.split_records(payload)
    record = b'{"schema":1,"id":""}'
    assert (
        len(wire.split_records(messages.join_records([record] * messages.LONGEST_BATCH)))
        == messages.LONGEST_BATCH
    )
    with pytest.raises(ConfigError, match="more than 10000"):
        wire.split_records(messages.join_records([record] * (messages.LONGEST_BATCH + 1)))
