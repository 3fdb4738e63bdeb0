import pytest

from edgemeter.agent.base.sqlite_file import space_bytes
from edgemeter.agent.contract import record as contract_record
from edgemeter.agent.ledger.chunks import Arrival
from edgemeter.agent.ledger.retention import Retention
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from tests.fixtures.record_factory import make_record, make_series

DAY_NS = 24 * 3600 * 10**9
NOW_NS = 100 * DAY_NS


def arrival(record, day):
    """Return `record` as it arrives on that day."""
    return Arrival(record, contract_record.encode(record), "edgemeter/v1/lab/pi-1/result", day * DAY_NS)


@pytest.fixture
def ledger(tmp_path):
    """Return a ledger with a record of each day from 1 to 99."""
    with SqliteLedger(tmp_path / "ledger.sqlite") as new_ledger:
        for day in range(1, 100):
            new_ledger.commit([arrival(make_record(session=5, seq=day), day)])
        yield new_ledger


def forget(ledger, policy):
    """Take out everything that has to go; return how many records and chunks with samples went."""
    gone, stripped = 0, 0
    while True:
        step = ledger.forget(policy, NOW_NS)
        gone, stripped = gone + step.records, stripped + step.stripped_chunks
        if step.is_all:
            return gone, stripped


@pytest.mark.slow
def test_a_size_limit_takes_samples_first_and_then_the_oldest_records(tmp_path):
    """As much as it needs, and not everything."""
    with SqliteLedger(tmp_path / "ledger.sqlite") as ledger:
        for seq in range(1, 301):
            series = make_series(tuple((seq * 7919 * number) % 2**31 for number in range(4000)))
            ledger.commit([arrival(make_record(session=5, seq=seq, samples=(series,)), seq // 4)])
        before = space_bytes(ledger.connection)[0]
        gone, stripped = forget(ledger, Retention(limit_bytes=before * 3 // 4))
        assert (gone, 0 < stripped < 300) == (0, True)
        have_samples = [bool(held_record.record.samples) for held_record in ledger.records(with_samples=True)]
        assert have_samples == sorted(have_samples)
        gone, _ = forget(ledger, Retention(limit_bytes=1_000_000))
        assert 0 < gone < 300
        assert space_bytes(ledger.connection)[0] <= 1_000_000
        assert ledger.ranges("pi-1", 5) == [(gone + 1, 300)]
