import sqlite3
import threading
import time
from collections import Counter

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.contract import record as contract_record
from edgemeter.agent.contract.messages import Birth, DeviceState
from edgemeter.agent.ledger import ledger_file, quarantine
from edgemeter.agent.ledger.ledger import Ledger, LedgerFilter, coalesce
from edgemeter.agent.ledger.ledger_file import COLLISION, LEDGER_FORMAT, Arrival, Committed
from edgemeter.agent.ledger.presence import PresenceChange
from edgemeter.agent.ledger.quarantine import Rejection
from tests.fixtures.record_factory import make_model, make_record

TOPIC = "edgemeter/v1/lab/pi-1/result"


def arrival(record, received_ns=7):
    """Return `record` as it arrives from the wire."""
    return Arrival(record, contract_record.encode(record), f"edgemeter/v1/{record.fleet}/{record.device}/result", received_ns)


@pytest.fixture
def ledger(tmp_path):
    """Return an empty ledger."""
    with Ledger(tmp_path / "deep" / "ledger.sqlite") as made:
        yield made


def test_a_committed_record_is_read_back_equal_with_and_without_its_samples(ledger):
    """What went in comes out; the samples only when asked for."""
    record = make_record(session=5, seq=1)
    assert ledger.commit([arrival(record)]) == Committed(inserted=1, held=(("lab", "pi-1", 5, 1),))
    (bare,) = ledger.records()
    (full,) = ledger.records(with_samples=True)
    assert full.record == record
    assert bare.record == msgspec.structs.replace(record, samples=())
    assert (bare.row, bare.received_ns) == (1, 7)


def test_a_repeated_record_is_held_but_not_kept_twice(ledger):
    """A duplicate counts as held, so that the receipt goes out again."""
    record = make_record(session=5, seq=1)
    ledger.commit([arrival(record)])
    again = ledger.commit([arrival(record), arrival(record)])
    assert again == Committed(duplicates=2, held=(("lab", "pi-1", 5, 1), ("lab", "pi-1", 5, 1)))
    assert ledger.count() == 1


def test_two_records_of_one_number_are_a_collision_and_the_second_is_quarantined_and_not_held(ledger):
    """A cloned card cannot overwrite what is there, and gets no receipt for what was not kept."""
    first, second = make_record(session=5, seq=1), make_record(session=5, seq=1)
    ledger.commit([arrival(first)])
    assert ledger.commit([arrival(second)]) == Committed(collisions=1)
    (entry,) = ledger.quarantined()
    assert entry.reason == COLLISION
    assert contract_record.decode(entry.payload) == second
    assert [held.record.id for held in ledger.records()] == [first.id]


def test_a_field_that_this_version_does_not_know_is_kept(ledger, tmp_path):
    """The record's own JSON text lies in the file, not what this version understood of it."""
    record = make_record(session=5, seq=1)
    payload = contract_record.encode(record)[:-1] + b',"humidity_ratio":0.5}'
    ledger.commit([Arrival(record, payload, "edgemeter/v1/lab/pi-1/result", 7)])
    with sqlite3.connect(tmp_path / "deep" / "ledger.sqlite") as connection:
        (kept,) = connection.execute("SELECT body FROM chunks").fetchone()
    connection.close()
    assert msgspec.json.decode(ledger_file.chunk_text(kept))[0]["humidity_ratio"] == 0.5


def test_ranges_are_those_of_one_device_and_session(ledger):
    """Gaps show; another device's and another session's numbers do not."""
    ours = [make_record(session=5, seq=seq) for seq in (1, 2, 3, 7, 9)]
    others = [make_record(session=6, seq=4), make_record(device="pi-2", session=5, seq=4)]
    ledger.commit([arrival(record) for record in ours + others])
    assert ledger.ranges("pi-1", 5) == [(1, 3), (7, 7), (9, 9)]


def test_numbers_coalesce_into_ranges_whatever_repeats():
    """Both ends are included and a repeat changes nothing."""
    assert coalesce([]) == []
    assert coalesce([1, 1, 2, 3, 5, 5]) == [(1, 3), (5, 5)]


@pytest.mark.parametrize("name", [*LedgerFilter.__dataclass_fields__])
def test_each_column_of_the_filter_selects(ledger, name):
    """Every filter field finds its record and no other."""
    one = make_record(session=5, seq=1)
    ledger.commit([arrival(one)])
    values = {
        "device": one.device, "fleet": one.fleet, "role": one.role, "model": one.model.name, "runtime": one.runtime.name,
        "precision": one.precision, "task": one.model.task, "dataset_sha256": one.dataset.sha256, "scenario": one.scenario,
        "verdict": one.verdict.state,
    }  # fmt: skip
    assert len(list(ledger.records(where=LedgerFilter(**{name: values[name]})))) == 1
    assert not list(ledger.records(where=LedgerFilter(**{name: "something else"})))


def test_records_are_read_from_a_row_on_and_up_to_a_limit(ledger):
    """What the drain pages by."""
    ledger.commit([arrival(make_record(session=5, seq=seq, model=make_model(name=f"m{seq}"))) for seq in range(1, 6)])
    assert [held.record.seq for held in ledger.records(after_row=2, limit=2)] == [3, 4]
    assert ledger.last_row() == 5


def test_a_sink_has_its_position_and_keeps_it(ledger, tmp_path):
    """The position survives the process and is one sink's own."""
    assert ledger.position("a") == 0
    ledger.advance("a", 12)
    ledger.advance("a", 20, [Rejection("t", b"x", "InfluxDB refused it", 1)])
    with Ledger(tmp_path / "deep" / "ledger.sqlite", "read") as other:
        assert (other.position("a"), other.position("b")) == (20, 0)
        assert [entry.reason for entry in other.quarantined()] == ["InfluxDB refused it"]


def test_the_same_rejection_again_is_counted_and_kept_once(ledger):
    """A device that repeats what nobody receipts fills no disk."""
    ledger.commit([], [Rejection("t", b"x", "no", 1)])
    ledger.commit([], [Rejection("t", b"x", "no", 9)])
    (entry,) = ledger.quarantined()
    assert (entry.times, entry.received_ns, entry.last_ns) == (2, 1, 9)


def test_the_quarantine_is_bounded_in_rows_and_bytes_and_drops_the_oldest(ledger, monkeypatch):
    """Garbage cannot fill the disk, and a payload is cut."""
    monkeypatch.setattr(quarantine, "ROWS_LIMIT", 3)
    monkeypatch.setattr(quarantine, "KEPT_RATIO", 1.0)
    monkeypatch.setattr(quarantine, "TOTAL_LIMIT_BYTES", 25)
    monkeypatch.setattr(quarantine, "PAYLOAD_LIMIT_BYTES", 10)
    ledger.commit([], [Rejection(TOPIC, b"%d" % number, "no", number) for number in range(5)])
    assert [entry.payload for entry in ledger.quarantined()] == [b"2", b"3", b"4"]
    ledger.commit([], [Rejection(TOPIC, b"%d" % number * 100, "no", number) for number in range(5)])
    assert [(entry.payload, entry.size_bytes) for entry in ledger.quarantined()] == [(b"3" * 10, 100), (b"4" * 10, 100)]


def test_what_a_sink_refused_is_never_evicted(ledger, monkeypatch):
    """A reference to a record of the ledger each, beside a flood of garbage that fills all limits."""
    monkeypatch.setattr(quarantine, "ROWS_LIMIT", 30)
    ledger.advance("influx http://x", 9, [Rejection("influx http://x", b"%d" % number, "old", number) for number in range(200)])
    ledger.commit([], flood("pi-1", 100))
    kept = Counter(entry.topic for entry in ledger.quarantined())
    assert kept == {"influx http://x": 200, "edgemeter/v1/lab/pi-1/result": 27}


def test_a_position_belongs_to_a_bucket_and_not_to_an_address(ledger):
    """Another bucket at the address begins at 0; one that moved goes on; from before identities were known it is the one that is there."""
    ledger.advance("influx http://a bucket 'x'", 10)
    ledger.claim_position("influx http://a bucket 'x'", "id1")
    assert ledger.positions() == {"influx http://a bucket 'x' #id1": 10}
    assert ledger.position("influx http://a bucket 'x'") == 10
    ledger.claim_position("influx http://b bucket 'x'", "id1")
    assert ledger.positions() == {"influx http://b bucket 'x' #id1": 10}
    ledger.claim_position("influx http://b bucket 'x'", "id2")
    assert ledger.positions() == {"influx http://b bucket 'x' #id2": 0}
    ledger.advance("influx http://b bucket 'x'", 7)
    ledger.claim_position("influx http://b bucket 'x'", "id2")
    assert ledger.positions() == {"influx http://b bucket 'x' #id2": 7}
    assert ledger.position("influx http://b bucket 'xy'") == 0


def test_a_position_that_was_set_back_is_not_overtaken_by_a_batch_on_its_way(ledger):
    """The drain learns of it by the next batch that it wrote; a day is found by when records were received."""
    for day in range(1, 4):
        ledger.commit([arrival(make_record(session=5, seq=day), received_ns=day * 86_400 * 10**9)])
    assert ledger.advance("a", 2, after=0)
    assert ledger.set_back("a", 2 * 86_400 * 10**9) == 2
    assert not ledger.advance("a", 3, after=2)
    assert ledger.position("a") == 1
    assert ledger.set_back("a", 9 * 86_400 * 10**9) == 2
    assert ledger.set_back("a", None) == 3


def flood(device, count, size=1):
    """Return rejections of one device, each another."""
    return [Rejection(f"edgemeter/v1/lab/{device}/result", b"%s %d" % (b"x" * size, number), "no", number) for number in range(count)]


def test_no_device_evicts_the_entries_of_another(ledger, monkeypatch):
    """Rows and bytes: whoever has most of either loses its own oldest; a small share is never touched."""
    monkeypatch.setattr(quarantine, "ROWS_LIMIT", 100)
    monkeypatch.setattr(quarantine, "TOTAL_LIMIT_BYTES", 100_000)
    ledger.commit([], flood("pi-1", 20))
    ledger.commit([], flood("pi-2", 5, size=4000))
    for _ in range(3):
        ledger.commit([], flood("bad", 1000))
        ledger.commit([], flood("large", 200, size=9000))
    kept = Counter(entry.topic.split("/")[3] for entry in ledger.quarantined())
    assert (kept["pi-1"], kept["pi-2"]) == (20, 5)
    assert kept["bad"] > 20
    assert kept["large"] > 2
    newest = [entry.payload for entry in ledger.quarantined() if "/bad/" in entry.topic]
    assert newest == [b"x %d" % number for number in range(1000 - len(newest), 1000)]


def test_a_full_quarantine_costs_one_statement_and_not_at_every_commit(ledger, monkeypatch):
    """A flood pays for the eviction together, not entry by entry: what stalled the collector for minutes."""
    monkeypatch.setattr(quarantine, "ROWS_LIMIT", 1000)
    ledger.commit([], flood("pi-1", 1000))
    statements = []
    ledger._connection.set_trace_callback(statements.append)
    for number in range(150):
        ledger.commit([], [Rejection("edgemeter/v1/lab/bad/result", b"%d" % number, "no", 1)])
    assert sum(one.startswith("DELETE FROM quarantine") for one in statements) == 2
    ledger.commit([], flood("bad", 5000))
    ledger._connection.set_trace_callback(None)
    assert sum(one.startswith("DELETE FROM quarantine") for one in statements) == 3
    assert ledger.quarantined_count() == 900


def test_a_will_of_a_session_that_is_over_does_not_hide_the_living_one(ledger):
    """`lost` counts for the session it names."""
    birth = Birth(device="pi-1", fleet="lab", session=2, agent="0.1.0", board=None, os=None, arch="aarch64", runtimes={})
    said = [birth, DeviceState(state="online", session=1), DeviceState(state="online", session=2), DeviceState(state="lost", session=1)]
    ledger.commit([], [], [PresenceChange("lab", "pi-1", message, number) for number, message in enumerate(said)])
    (device,) = ledger.devices()
    assert (device.state, device.session, device.birth) == ("online", 2, birth)
    ledger.commit([], [], [PresenceChange("lab", "pi-1", DeviceState(state="lost", session=2), 9)])
    assert ledger.devices()[0].state == "lost"


def test_a_collector_keeps_the_name_that_its_ledger_gave_it(ledger, tmp_path):
    """The name is random, of the file, and stays."""
    with Ledger(tmp_path / "deep" / "ledger.sqlite") as again, Ledger(tmp_path / "other.sqlite") as other:
        assert again.collector_id() == ledger.collector_id()
        assert other.collector_id() != ledger.collector_id()


def test_reading_an_absent_ledger_says_so_and_makes_no_file(tmp_path):
    """A typo in a path leaves nothing behind."""
    with pytest.raises(ConfigError, match=r"there is no ledger at '.*absent\.sqlite': give the path"):
        Ledger(tmp_path / "absent.sqlite", "read")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("access", ["read", "write"])
@pytest.mark.parametrize("kind", ["text", "sqlite", "folder", "random"])
def test_a_store_that_is_not_ours_is_refused_in_one_line_and_left_as_it_was(tmp_path, kind, access):
    """Anybody else's file: a ConfigError with the remedy, not a byte changed."""
    path = tmp_path / "store"
    if kind == "folder":
        path.mkdir()
    elif kind == "sqlite":
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE runs (row INTEGER)")
        connection.close()
    else:
        path.write_bytes(b"time,latency\n1,2\n" * 99 if kind == "text" else bytes(range(256)) * 40)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(ConfigError, match=r"not an edgemeter ledger.*give the path of a ledger") as caught:
        Ledger(path, access)
    assert "\n" not in str(caught.value)
    assert before is None or path.read_bytes() == before


def test_a_damaged_ledger_is_refused_in_one_line(ledger, tmp_path):
    """Garbled pages end in a ConfigError when they are read."""
    path = tmp_path / "deep" / "ledger.sqlite"
    ledger.commit([arrival(make_record(session=5, seq=seq)) for seq in range(1, 200)])
    ledger.close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    with pytest.raises(ConfigError, match="malformed"), Ledger(path, "read") as damaged:
        list(damaged.records())


def test_a_ledger_of_a_newer_version_is_refused(tmp_path):
    """An older edgemeter does not guess what a newer one meant."""
    path = tmp_path / "ledger.sqlite"
    Ledger(path).close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {LEDGER_FORMAT.version + 1}")
    connection.close()
    with pytest.raises(ConfigError, match="has version 5, this edgemeter knows up to 4: update edgemeter here"):
        Ledger(path)


def test_a_full_disk_keeps_nothing_of_the_batch_and_says_what_to_do(ledger):
    """SQLite's own limit on pages stands for the full disk: same error, same path."""
    ledger.commit([arrival(make_record(session=5, seq=1))])
    pages = ledger._connection.execute("PRAGMA page_count").fetchone()[0]
    ledger._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(UnavailableError, match="the disk is full: free some space"):
        ledger.commit([arrival(make_record(session=5, seq=seq)) for seq in range(2, 100)])
    assert ledger.ranges("pi-1", 5) == [(1, 1)]
    ledger._connection.execute("PRAGMA max_page_count = 1000000")
    ledger.commit([arrival(make_record(session=5, seq=2))])
    assert ledger.ranges("pi-1", 5) == [(1, 2)]


def test_who_looks_while_a_ledger_is_made_sees_all_of_it_or_nothing(tmp_path):
    """`compare` beside a collector that starts: never a half-made file that would pass for somebody else's."""
    for number in range(30):
        path = tmp_path / f"{number}" / "ledger.sqlite"
        maker = threading.Thread(target=lambda path=path: Ledger(path).close())
        maker.start()
        while not path.exists():
            time.sleep(0)
        with Ledger(path, "read") as reader:
            assert reader.count() == 0
        maker.join()
        assert {one.name.split("-")[0] for one in path.parent.iterdir()} == {"ledger.sqlite"}
