"""The contract of ledgers, which a SQLite file and a PostgreSQL database keep alike."""

import zlib
from collections import Counter

import msgspec

from edgemeter.agent.contract import record as contract_record
from edgemeter.agent.contract.messages import Birth, DeviceState
from edgemeter.agent.ledger import quarantine
from edgemeter.agent.ledger.chunks import COLLISION, Committed
from edgemeter.agent.ledger.presence import PresenceChange, RetainedMessage
from edgemeter.agent.ledger.quarantine import Rejection
from edgemeter.collector.ledgers.place import open_ledger
from edgemeter.collector.receive.admission import split_records
from tests.fixtures.ledgers import arrival, arrived_batch, flood
from tests.fixtures.record_factory import make_model, make_record

TOPIC = "edgemeter/v1/lab/pi-1/result"


def test_a_committed_record_is_read_back_equal_with_and_without_its_samples(ledger):
    """A committed record reads back equal, and its samples come only when asked for."""
    record = make_record(session=5, seq=1)
    assert ledger.commit([arrival(record)]) == Committed(inserted=1, held=(("lab", "pi-1", 5, 1),))
    (bare,) = ledger.records()
    (full,) = ledger.records(with_samples=True)
    assert full.record == record
    assert bare.record == msgspec.structs.replace(record, samples=())
    assert (bare.row, bare.received_ns) == (1, 7)


def test_ranges_are_those_of_one_device_and_session(ledger):
    """Ranges of numbers show gaps, and none of another device or session."""
    own_records = [make_record(session=5, seq=seq) for seq in (1, 2, 3, 7, 9)]
    other_records = [make_record(session=6, seq=4), make_record(device="pi-2", session=5, seq=4)]
    ledger.commit([arrival(record) for record in own_records + other_records])
    assert ledger.ranges("pi-1", 5) == [(1, 3), (7, 7), (9, 9)]


def test_a_sink_has_its_position_and_keeps_it(ledger, ledger_place):
    """A sink's position is its own and survives the process."""
    assert ledger.position("a") == 0
    ledger.advance("a", 12)
    ledger.advance("a", 20, [Rejection("t", b"x", "InfluxDB refused it", 1)])
    with open_ledger(ledger_place, "read") as other:
        assert (other.position("a"), other.position("b")) == (20, 0)
        assert [entry.reason for entry in other.quarantined()] == ["InfluxDB refused it"]


def test_the_same_rejection_again_is_counted_and_kept_once(ledger):
    """A repeated rejection is counted and kept once, so that a device cannot fill the disk."""
    ledger.commit([], [Rejection("t", b"x", "no", 1)])
    ledger.commit([], [Rejection("t", b"x", "no", 9)])
    (entry,) = ledger.quarantined()
    assert (entry.times, entry.received_ns, entry.last_ns) == (2, 1, 9)


def test_the_quarantine_is_bounded_in_rows_and_bytes_and_drops_the_oldest(ledger, monkeypatch):
    """Rows and bytes of the quarantine are bounded, the oldest are dropped, and payloads cut."""
    monkeypatch.setattr(quarantine, "ROWS_LIMIT", 3)
    monkeypatch.setattr(quarantine, "KEPT_RATIO", 1.0)
    monkeypatch.setattr(quarantine, "TOTAL_LIMIT_BYTES", 25)
    monkeypatch.setattr(quarantine, "PAYLOAD_LIMIT_BYTES", 10)
    ledger.commit([], [Rejection(TOPIC, b"%d" % number, "no", number) for number in range(5)])
    assert [entry.payload for entry in ledger.quarantined()] == [b"2", b"3", b"4"]
    ledger.commit([], [Rejection(TOPIC, b"%d" % number * 100, "no", number) for number in range(5)])
    assert [(entry.payload, entry.size_bytes) for entry in ledger.quarantined()] == [
        (b"3" * 10, 100),
        (b"4" * 10, 100),
    ]


def test_what_a_sink_refused_is_never_evicted(ledger, monkeypatch):
    """References to records that a sink refused stay, although a flood of garbage fills all limits.

    Each refers to a record of the ledger.
    """
    monkeypatch.setattr(quarantine, "ROWS_LIMIT", 30)
    ledger.advance(
        "influx http://x",
        9,
        [Rejection("influx http://x", b"%d" % number, "old", number) for number in range(200)],
    )
    ledger.commit([], flood("pi-1", 100))
    topics = Counter(entry.topic for entry in ledger.quarantined())
    assert topics == {"influx http://x": 200, "edgemeter/v1/lab/pi-1/result": 27}


def test_a_position_that_was_set_back_is_not_overtaken_by_a_batch_on_its_way(ledger):
    """A drain whose position was set back learns so when it writes its next batch.

    The position of a day is found by when records were received.
    """
    for day in range(1, 4):
        ledger.commit([arrival(make_record(session=5, seq=day), received_ns=day * 86_400 * 10**9)])
    assert ledger.advance("a", 2, after=0)
    assert ledger.set_back("a", 2 * 86_400 * 10**9) == 2
    assert not ledger.advance("a", 3, after=2)
    assert ledger.position("a") == 1
    assert ledger.set_back("a", 9 * 86_400 * 10**9) == 2
    assert ledger.set_back("a", None) == 3


def test_no_device_evicts_the_entries_of_another(ledger, monkeypatch):
    """The device with most rows or bytes loses its own oldest entries, and no other does.

    A small share is never touched.
    """
    monkeypatch.setattr(quarantine, "ROWS_LIMIT", 100)
    monkeypatch.setattr(quarantine, "TOTAL_LIMIT_BYTES", 100_000)
    ledger.commit([], flood("pi-1", 20))
    ledger.commit([], flood("pi-2", 5, size=4000))
    for _ in range(3):
        ledger.commit([], flood("bad", 1000))
        ledger.commit([], flood("large", 200, size=9000))
    topics = Counter(entry.topic.split("/")[3] for entry in ledger.quarantined())
    assert (topics["pi-1"], topics["pi-2"]) == (20, 5)
    assert topics["bad"] > 20
    assert topics["large"] > 2
    newest = [entry.payload for entry in ledger.quarantined() if "/bad/" in entry.topic]
    assert newest == [b"x %d" % number for number in range(1000 - len(newest), 1000)]


def test_a_will_of_a_session_that_is_over_does_not_hide_the_living_one(ledger):
    """A will says that its own session is lost, and does not hide a later session.

    A state that the broker brings again counts since it was first received.
    """
    birth = Birth(
        device="pi-1",
        fleet="lab",
        session=2,
        agent="0.1.0",
        board=None,
        os=None,
        arch="aarch64",
        runtimes={},
    )
    states = [
        birth,
        DeviceState(state="online", session=1),
        DeviceState(state="online", session=2),
        DeviceState(state="lost", session=1),
    ]
    ledger.commit(
        [],
        [],
        [PresenceChange("lab", "pi-1", message, number) for number, message in enumerate(states)],
    )
    (device,) = ledger.devices()
    assert (device.state, device.session, device.birth) == ("online", 2, birth)
    ledger.commit([], [], [PresenceChange("lab", "pi-1", DeviceState(state="lost", session=2), 9)])
    assert ledger.devices()[0].state == "lost"
    for at, (state, session) in enumerate(
        [("online", 3), ("online", 3), ("lost", 3), ("lost", 3), ("online", 4), ("online", 4)], 10
    ):
        ledger.commit(
            [], [], [PresenceChange("lab", "pi-1", DeviceState(state=state, session=session), at)]
        )
        assert ledger.devices()[0].changed_ns == at - at % 2


def test_a_batch_is_read_back_record_by_record(ledger):
    """A batch larger than one statement reads back in order, with rows and samples."""
    many = [make_record(session=5, seq=seq) for seq in range(1, 251)]
    committed = ledger.commit([], batches=[arrived_batch(many)])
    assert (committed.inserted, len(committed.held)) == (250, 250)
    assert [record.record for record in ledger.records(with_samples=True)] == many
    assert [record.row for record in ledger.records(after_row=248)] == [249, 250]
    assert [row for row, _, _ in ledger.texts(after_row=248)] == [249, 250]


def test_repeats_in_any_form_are_dropped_and_held(ledger):
    """Repeats of a record are stored once, and every one of them is receipted.

    They come alone, in a batch, within one, and across groups.
    """
    many = [make_record(session=5, seq=seq) for seq in range(1, 151)]
    ledger.commit([arrival(record) for record in many[:30]])
    commit = ledger.commit(
        [arrival(many[40])], batches=[arrived_batch(many), arrived_batch([many[149], many[149]])]
    )
    assert (commit.inserted, commit.duplicates, commit.collisions) == (120, 33, 0)
    assert {key[3] for key in commit.held} == set(range(1, 151))
    assert ledger.ranges("pi-1", 5) == [(1, 150)]
    assert sorted(record.record.seq for record in ledger.records()) == list(range(1, 151))
    assert ledger.commit([], batches=[arrived_batch(many)]).inserted == 0
    assert ledger.stats().chunks == 3


def test_a_collision_in_a_batch_takes_that_record_only(ledger):
    """A collision takes only its own record of a batch to the quarantine, without a receipt."""
    ledger.commit([arrival(make_record(session=5, seq=3))])
    many = [make_record(session=5, seq=seq) for seq in range(1, 6)]
    committed = ledger.commit([], batches=[arrived_batch(many)])
    assert (committed.inserted, committed.collisions, sorted(key[3] for key in committed.held)) == (
        4,
        1,
        [1, 2, 4, 5],
    )
    (entry,) = ledger.quarantined()
    assert (entry.reason, contract_record.decode(entry.payload), entry.topic) == (
        COLLISION,
        many[2],
        TOPIC,
    )


def test_a_thousand_collisions_of_a_message_are_one_entry(ledger):
    """A thousand collisions of one message are one entry in the quarantine.

    A cloned card sends a whole batch of numbers that are taken; its text is opened once, not once a
    record.
    """
    ledger.commit(
        [], batches=[arrived_batch([make_record(session=5, seq=seq) for seq in range(1, 1001)])]
    )
    clone = [make_record(session=5, seq=seq) for seq in range(1, 1001)]
    committed = ledger.commit([], batches=[arrived_batch(clone)])
    assert (committed.collisions, committed.held) == (1, ())
    (entry,) = ledger.quarantined()
    assert (entry.topic, COLLISION in entry.reason) == (TOPIC, True)
    assert entry.reason.startswith("1000 records of this message")
    assert len(split_records(zlib.decompress(entry.payload))) == 1000


def test_two_processes_may_write(ledger, ledger_place):
    """Two processes write to one ledger without mixing up chunks and subjects.

    They are two collectors, or one beside a command.
    """
    with open_ledger(ledger_place) as other:
        for seq in range(1, 21):
            writer = (ledger, other)[seq % 2]
            writer.commit(
                [arrival(make_record(session=5, seq=seq, model=make_model(name=f"m{seq % 3}")))]
            )
        assert [record.record.seq for record in other.records()] == list(range(1, 21))
        assert all(
            record.record.model.name == f"m{record.record.seq % 3}" for record in ledger.records()
        )


def test_of_what_is_measured_now_the_latest_counts_since_it_was_first_received(ledger):
    """The latest retained message of a topic counts since it was first received.

    The same message again, as after a restart of the broker, is not new; an empty message removes
    its topic.
    """
    first, second, other = (
        RetainedMessage("a/activity", body, at)
        for body, at in ((b"one", 5), (b"one", 9), (b"two", 12))
    )
    ledger.commit([], [], [first, RetainedMessage("b/activity", b"b", 6)])
    ledger.commit([], [], [second])
    assert ledger.retained() == [first, RetainedMessage("b/activity", b"b", 6)]
    ledger.commit(
        [],
        [],
        [other, RetainedMessage("b/activity", b"", 13), RetainedMessage("never/there", b"", 14)],
    )
    assert ledger.retained() == [other]
    assert ledger.devices() == []


def test_records_are_read_by_their_rows_without_what_is_stored_beside_them(ledger):
    """Records of one device are read from chunks that others share; an absent row is left out."""
    records = [
        make_record(device=f"pi-{seq % 2}", session=5, seq=seq, samples=()) for seq in range(1, 7)
    ]
    ledger.commit([arrival(record) for record in records[:4]])
    ledger.commit([arrival(record) for record in records[4:]])
    rows = [entry.row for entry in ledger.records()]
    assert [entry.record.seq for entry in ledger.records(rows=[rows[1], rows[3]])] == [2, 4]
    read = [
        (row, record)
        for chunk in ledger.chunks_at([*rows[::2], rows[-1] + 9])
        for row, record in chunk.records()
    ]
    assert read == list(zip(rows[::2], records[::2], strict=True))
    assert list(ledger.chunks_at([])) == []
