import zlib

import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.contract import record as contract_record
from edgemeter.agent.ledger.chunks import Arrival, ArrivedBatch
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
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
    with SqliteLedger(tmp_path / "ledger.sqlite") as made:
        yield made


def test_what_was_committed_unread_is_read_and_what_is_no_record_goes_to_quarantine(ledger):
    """An envelope covers nothing else: nobody reads it as a record, and afterwards it is not among them."""
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


def test_a_thousand_invalid_records_behind_valid_envelopes_are_one_entry(ledger):
    """They are read after the commit, and taken out by one query of the rows of their chunk."""
    some = [make_record(session=5, seq=seq) for seq in range(1, 1001)]
    broken = [contract_record.encode(one).replace(b'"latency":{', b'"latency":7,"other":{') for one in some]
    ledger.commit([], batches=[ArrivedBatch(some, zlib.compress(b"[" + b",".join(broken) + b"]"), TOPIC, 7, is_checked=False)])
    statements = []
    ledger.connection.set_trace_callback(statements.append)
    (rejection,) = ledger.check(8)
    ledger.connection.set_trace_callback(None)
    assert rejection.reason.startswith("1000 records of this message, the first: not a run record")
    assert sum("last_row" in one for one in statements) == 1
    assert (ledger.count(), ledger.quarantined_count()) == (0, 1)


def test_a_subject_that_went_with_a_failed_commit_is_made_again(ledger):
    """What the writer remembers is what the file has."""
    pages = ledger.connection.execute("PRAGMA page_count").fetchone()[0]
    ledger.connection.execute(f"PRAGMA max_page_count = {pages}")
    many = [make_record(session=5, seq=seq, model=make_model(name="new")) for seq in range(1, 400)]
    with pytest.raises(UnavailableError):
        ledger.commit([], batches=[arrived_batch([one], level=0) for one in many])
    ledger.connection.execute("PRAGMA max_page_count = 1000000")
    assert ledger.commit([arrival(many[0])]).inserted == 1
    (held,) = ledger.records()
    assert held.record.model.name == "new"
    joined = "SELECT count(*) FROM runs JOIN subjects USING (subject)"
    assert ledger.connection.execute(joined).fetchone() == (1,)
