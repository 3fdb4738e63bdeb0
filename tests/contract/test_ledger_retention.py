"""Retention, the same in every ledger."""

import msgspec
import numpy as np
import pytest

from edgemeter.agent.base.sqlite_file import space_bytes
from edgemeter.agent.contract import samples
from edgemeter.agent.ledger.presence import SessionHeld
from edgemeter.agent.ledger.retention import Retention
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from tests.fixtures.ledgers import arrival
from tests.fixtures.record_factory import make_record

DAY_NS = 24 * 3600 * 10**9
NOW_NS = 100 * DAY_NS


def forget(ledger, policy):
    """Take out everything that has to go; return how many records and chunks with samples went."""
    gone, stripped = 0, 0
    while True:
        step = ledger.forget(policy, NOW_NS)
        gone, stripped = gone + step.records, stripped + step.stripped_chunks
        if step.is_all:
            return gone, stripped


@pytest.fixture
def days(ledger):
    for day in range(1, 100):
        ledger.commit([arrival(make_record(session=5, seq=day), day * DAY_NS)])
    return ledger


def test_records_go_after_their_days_and_samples_sooner(days):
    """Records are removed after 30 days and samples after 7, to the day."""
    assert forget(days, Retention(records_days=30, samples_days=7)) == (69, 92)
    records = list(days.records(with_samples=True))
    assert [entry.record.seq for entry in records] == list(range(70, 100))
    assert [entry.record.seq for entry in records if entry.record.samples] == list(range(93, 100))
    assert records[0].record == msgspec.structs.replace(records[0].record, samples=())
    assert forget(days, Retention(records_days=30, samples_days=7)) == (0, 0)


def test_what_a_sink_does_not_have_yet_stays_whatever_its_age(days):
    """A record stays at any age until every sink in use has it.

    With InfluxDB away for a month nothing is lost, but a sink that nobody uses any more holds
    nothing back.
    """
    days.advance("influx", 20)
    days.advance("an old one", 1)
    assert forget(days, Retention(records_days=1, samples_days=1, sink="influx")) == (20, 20)
    assert forget(days, Retention(records_days=1, sink="one that has nothing")) == (0, 0)
    assert days.ranges("pi-1", 5) == [(21, 99)]


def test_a_record_that_was_forgotten_is_not_taken_for_new(days):
    """A removed record that comes again is receipted, so that the device forgets it, but not kept.

    One that never came is still taken.
    """
    days.commit(
        [arrival(make_record(device="pi-2", session=8, seq=seq), 2 * DAY_NS) for seq in (1, 2, 4)]
    )
    forget(days, Retention(limit_bytes=1))
    assert days.count() == 0
    commit = days.commit(
        [arrival(make_record(session=5, seq=seq), 100 * DAY_NS) for seq in (3, 99, 100)]
    )
    assert (commit.inserted, commit.duplicates, len(commit.held)) == (1, 2, 3)
    late = days.commit(
        [arrival(make_record(device="pi-2", session=8, seq=seq), 100 * DAY_NS) for seq in (1, 3, 4)]
    )
    assert (late.inserted, late.duplicates) == (1, 2)
    assert {(session.device, session.session, session.missing) for session in days.sessions()} == {
        ("pi-1", 5, 0),
        ("pi-2", 8, 0),
    }


def test_missing_numbers_are_counted_and_forgotten_ones_are_not_missing(days):
    """Missing numbers are counted per session, and removed records are not missing.

    One session has 1..99; another one lacks two numbers, before and after retention.
    """
    days.commit([arrival(make_record(session=6, seq=seq), 50 * DAY_NS) for seq in (2, 3, 5)])
    assert days.sessions() == [
        SessionHeld("lab", "pi-1", 5, 99, 0, 99 * DAY_NS),
        SessionHeld("lab", "pi-1", 6, 3, 2, 50 * DAY_NS),
    ]
    forget(days, Retention(records_days=30))
    assert [(session.session, session.records, session.missing) for session in days.sessions()] == [
        (5, 30, 0),
        (6, 3, 2),
    ]


@pytest.mark.nightly
def test_a_size_limit_takes_samples_first_and_then_the_oldest_records(tmp_path):
    """A size limit removes samples first, then the oldest records, and no more than needed."""
    with SqliteLedger(tmp_path / "ledger.sqlite") as ledger:
        for seq in range(1, 301):
            series = samples.pack("latency", "ns", np.arange(4000) * 7919 * seq % 2**31)
            ledger.commit(
                [arrival(make_record(session=5, seq=seq, samples=(series,)), seq // 4 * DAY_NS)]
            )
        before = space_bytes(ledger.connection)[0]
        gone, stripped = forget(ledger, Retention(limit_bytes=before * 3 // 4))
        assert (gone, 0 < stripped < 300) == (0, True)
        have_samples = [
            bool(held_record.record.samples) for held_record in ledger.records(with_samples=True)
        ]
        assert have_samples == sorted(have_samples)
        gone, _ = forget(ledger, Retention(limit_bytes=600_000))
        assert 0 < gone < 300
        assert space_bytes(ledger.connection)[0] <= 600_000
        assert ledger.ranges("pi-1", 5) == [(gone + 1, 300)]
