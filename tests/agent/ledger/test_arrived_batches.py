import zlib

import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.contract import messages
from edgemeter.agent.contract import record as contract_record
from edgemeter.agent.ledger.ledger import Ledger
from edgemeter.agent.ledger.ledger_file import COLLISION, Arrival, ArrivedBatch
from tests.fixtures.record_factory import make_model, make_record

TOPIC = "edgemeter/v1/lab/pi-1/result"


def arrival(record, received_ns=7, *, is_checked=True):
    """Return `record` as it arrives alone."""
    return Arrival(record, contract_record.encode(record), TOPIC, received_ns, is_checked)


def arrived_batch(many, received_ns=7, *, level=6):
    """Return records as they arrive in one message."""
    text = b"[" + b",".join(contract_record.encode(one) for one in many) + b"]"
    return ArrivedBatch(many, zlib.compress(text, level), TOPIC, received_ns)


@pytest.fixture
def ledger(tmp_path):
    """Return an empty ledger."""
    with Ledger(tmp_path / "ledger.sqlite") as made:
        yield made


@pytest.mark.parametrize("level", [0, 9])
def test_a_batch_is_read_back_record_by_record(ledger, level):
    """More records than one statement inserts; order, rows and samples as they came."""
    many = [make_record(session=5, seq=seq) for seq in range(1, 251)]
    committed = ledger.commit([], batches=[arrived_batch(many, level=level)])
    assert (committed.inserted, len(committed.held)) == (250, 250)
    assert [held.record for held in ledger.records(with_samples=True)] == many
    assert [held.row for held in ledger.records(after_row=248)] == [249, 250]
    assert [row for row, _, _ in ledger.texts(after_row=248)] == [249, 250]


def test_repeats_in_any_form_are_dropped_and_held(ledger):
    """Alone, in a arrived_batch, within one, across groups: each record once, and every one of them receipted."""
    many = [make_record(session=5, seq=seq) for seq in range(1, 151)]
    ledger.commit([arrival(one) for one in many[:30]])
    again = ledger.commit([arrival(many[40])], batches=[arrived_batch(many), arrived_batch([many[149], many[149]])])
    assert (again.inserted, again.duplicates, again.collisions) == (120, 33, 0)
    assert {key[3] for key in again.held} == set(range(1, 151))
    assert ledger.ranges("pi-1", 5) == [(1, 150)]
    assert sorted(held.record.seq for held in ledger.records()) == list(range(1, 151))
    assert ledger.commit([], batches=[arrived_batch(many)]).inserted == 0
    bodies = ledger._connection.execute("SELECT count(*) FROM chunks WHERE chunk NOT IN (SELECT chunk FROM runs)").fetchone()
    assert bodies == (0,)


def test_a_collision_in_a_batch_takes_that_record_only(ledger):
    """Its own text goes to the quarantine, and it alone gets no receipt."""
    ledger.commit([arrival(make_record(session=5, seq=3))])
    many = [make_record(session=5, seq=seq) for seq in range(1, 6)]
    committed = ledger.commit([], batches=[arrived_batch(many)])
    assert (committed.inserted, committed.collisions, sorted(key[3] for key in committed.held)) == (4, 1, [1, 2, 4, 5])
    (entry,) = ledger.quarantined()
    assert (entry.reason, contract_record.decode(entry.payload), entry.topic) == (COLLISION, many[2], TOPIC)


def test_what_was_taken_in_a_hurry_is_looked_at_and_what_is_no_record_goes_to_quarantine(ledger):
    """Envelopes say nothing about the rest: nobody reads it as a record, and afterwards it is not among them."""
    good = [make_record(session=5, seq=seq) for seq in (1, 3)]
    bad = make_record(session=5, seq=2)
    broken = contract_record.encode(bad).replace(b'"latency":{', b'"latency":7,"other":{')
    text = b"[" + b",".join([contract_record.encode(good[0]), broken, contract_record.encode(good[1])]) + b"]"
    ledger.commit(
        [Arrival(make_record(session=6, seq=1), broken.replace(b'"session":5', b'"session":6'), TOPIC, 7, is_checked=False)],
        batches=[ArrivedBatch([good[0], bad, good[1]], zlib.compress(text), TOPIC, 7, is_checked=False)],
    )
    assert [held.record for held in ledger.records(with_samples=True)] == good
    found = []
    while (some := ledger.check(1)) is not None:
        found += some
    assert [one.topic for one in found] == [TOPIC, TOPIC]
    assert all("$.latency" in entry.reason for entry in ledger.quarantined())
    assert {entry.payload for entry in ledger.quarantined()} == {broken, broken.replace(b'"session":5', b'"session":6')}
    assert [held.record for held in ledger.records(with_samples=True)] == good
    assert ledger.count() == 2
    assert ledger.check(1) is None


def test_ten_thousand_collisions_are_one_entry_that_can_be_retried(ledger):
    """A cloned card sends a whole batch of numbers that are taken: its text is opened once, not once a record."""
    ledger.commit([], batches=[arrived_batch([make_record(session=5, seq=seq) for seq in range(1, 1001)])])
    clone = [make_record(session=5, seq=seq) for seq in range(1, 1001)]
    committed = ledger.commit([], batches=[arrived_batch(clone)])
    assert (committed.collisions, committed.held) == (1, ())
    (entry,) = ledger.quarantined()
    assert (entry.topic, COLLISION in entry.reason) == (TOPIC, True)
    assert entry.reason.startswith("1000 records of this message")
    assert len(messages.split_records(zlib.decompress(entry.payload))) == 1000


def test_a_thousand_invalid_records_behind_valid_envelopes_are_one_entry(ledger):
    """They are looked at after the commit, and taken out by one look at the rows of their chunk."""
    some = [make_record(session=5, seq=seq) for seq in range(1, 1001)]
    broken = [contract_record.encode(one).replace(b'"latency":{', b'"latency":7,"other":{') for one in some]
    ledger.commit([], batches=[ArrivedBatch(some, zlib.compress(b"[" + b",".join(broken) + b"]"), TOPIC, 7, is_checked=False)])
    statements = []
    ledger._connection.set_trace_callback(statements.append)
    (rejection,) = ledger.check(8)
    ledger._connection.set_trace_callback(None)
    assert rejection.reason.startswith("1000 records of this message, the first: not a run record")
    assert sum("last_row" in one for one in statements) == 1
    assert (ledger.count(), ledger.quarantined_count()) == (0, 1)


def test_a_subject_that_went_with_a_failed_commit_is_made_again(ledger):
    """What the writer remembers is what the file has."""
    pages = ledger._connection.execute("PRAGMA page_count").fetchone()[0]
    ledger._connection.execute(f"PRAGMA max_page_count = {pages}")
    many = [make_record(session=5, seq=seq, model=make_model(name="new")) for seq in range(1, 400)]
    with pytest.raises(UnavailableError):
        ledger.commit([], batches=[arrived_batch([one], level=0) for one in many])
    ledger._connection.execute("PRAGMA max_page_count = 1000000")
    assert ledger.commit([arrival(many[0])]).inserted == 1
    (held,) = ledger.records()
    assert held.record.model.name == "new"
    joined = "SELECT count(*) FROM runs JOIN subjects USING (subject)"
    assert ledger._connection.execute(joined).fetchone() == (1,)


def test_two_processes_may_write(ledger):
    """`quarantine retry` beside a collector: chunks and subjects do not mix up."""
    with Ledger(ledger.path) as other:
        for seq in range(1, 21):
            writer = (ledger, other)[seq % 2]
            writer.commit([arrival(make_record(session=5, seq=seq, model=make_model(name=f"m{seq % 3}")))])
        assert [held.record.seq for held in other.records()] == list(range(1, 21))
        assert all(held.record.model.name == f"m{held.record.seq % 3}" for held in ledger.records())


def test_batches_as_the_agent_joins_them_are_texts_again(ledger):
    """`messages.split` and a chunk agree on where a record ends."""
    many = [make_record(session=5, seq=seq) for seq in range(1, 4)]
    payload = messages.join_records([contract_record.encode(one) for one in many])
    ledger.commit([], batches=[ArrivedBatch(many, zlib.compress(payload), TOPIC, 7)])
    assert [text for _, _, text in ledger.texts()] == messages.split_records(payload)
