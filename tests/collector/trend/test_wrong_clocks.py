"""Test records whose device's clock claims to be synchronised and is years off.

They are kept as they are, and they spoil nothing.
"""

import time

import msgspec
import pytest
from click.testing import CliRunner

from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract import record
from edgemeter.agent.contract.health import Clock, Health, encode_health
from edgemeter.agent.ledger.chunks import arrived
from edgemeter.agent.ledger.retention import Retention
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.cli.collector import collector as command
from edgemeter.collector.compare.case_book import book_of
from edgemeter.collector.influx.bucket import set_up_influx
from edgemeter.collector.influx.drain import Drain
from edgemeter.collector.runs.store import LedgerStore, MemoryStore, open_store
from edgemeter.collector.trend.history import History
from tests.fixtures.collecting import intake
from tests.fixtures.level_factory import level_runs, stepped_ms
from tests.fixtures.mqtt_peer import wait_until

DAYS = 40
YEAR_NS = 365 * NS_PER_DAY


def claimed(runs, off_ns, received):
    """Return the runs as a clock that is off by so much stamps them.

    It states to be synchronised; each run has the time of its receipt.
    """
    return [
        (
            msgspec.structs.replace(
                run, started_at_ns=run.started_at_ns + off_ns, clock_synchronised=True
            ),
            at_ns,
        )
        for run, at_ns in zip(runs, received, strict=True)
    ]


def store(path, pairs):
    """Put runs with the time of their receipt into a ledger."""
    with SqliteLedger(path) as ledger:
        for run, received_ns in pairs:
            ledger.commit(
                [
                    arrived(
                        run,
                        record.encode(run),
                        f"edgemeter/v1/{run.fleet}/{run.device}/result",
                        received_ns,
                    )
                ]
            )


@pytest.fixture
def ledgers(tmp_path):
    """Return a ledger of runs with a step after three weeks, and one with wrong clocks.

    The latter has the same runs, of three one 30 years ahead and one 50 behind.
    """
    runs = level_runs(stepped_ms(DAYS, 20, 1.2))
    received = [run.started_at_ns + 60_000_000_000 for run in runs]
    clocks = [claimed(runs, off_ns, received) for off_ns in (0, 30 * YEAR_NS, -50 * YEAR_NS)]
    store(tmp_path / "right", clocks[0])
    store(tmp_path / "wrong", [clocks[at % 3][at] for at in range(DAYS)])
    return tmp_path / "right", tmp_path / "wrong"


def test_page_and_trend_have_them_on_the_day_of_their_receipt(ledgers):
    """Index, days and figures are those of right clocks.

    The run itself is shown as it was stored.
    """
    right, wrong = ledgers
    books = [book_of(LedgerStore(path)) for path in (right, wrong)]
    spans = [
        [(case.first_ns // NS_PER_DAY, case.newest_ns // NS_PER_DAY) for case in book.cases]
        for book in books
    ]
    assert spans[0] == spans[1]
    assert books[1].store.record(2).started_at_ns != books[0].store.record(2).started_at_ns
    histories = []
    for path in ledgers:
        history = History(open_store(str(path)))
        (key,) = history.series()
        histories.append([(run.day, run.value("latency_p50_ms")) for run in history.points(key)])
    assert histories[0] == histories[1]


def test_a_comparison_counts_the_runs_of_the_current_level_only(ledgers):
    """Wrong clocks give the same runs as right ones.

    They do so for the ledger and for its records in memory.
    """
    for source in (LedgerStore, lambda path: MemoryStore(open_store(str(path)).contents().runs)):
        right, wrong = (book_of(source(path)).summaries() for path in ledgers)
        assert [(summary.run_ids, summary.p50_ms) for summary in wrong] == [
            (summary.run_ids, summary.p50_ms) for summary in right
        ]


def test_the_stored_record_is_what_the_device_stated(ledgers):
    """No record is rewritten; retention goes by the time of receipt."""
    with SqliteLedger(ledgers[1]) as ledger:
        years = sorted(
            round((entry.record.started_at_ns - entry.received_ns) / YEAR_NS)
            for entry in ledger.records()
        )
        assert {*years} == {0, 30, -50}
        assert {entry.record.stamped_by for entry in ledger.records()} == {"device"}
        newest_ns = max(entry.received_ns for entry in ledger.records())
        while not ledger.forget(Retention(records_days=10), newest_ns + 1).is_all:
            pass
        assert [entry.record.seq for entry in ledger.records()] == list(range(DAYS - 9, DAYS + 1))


def test_a_bucket_with_a_retention_takes_every_point(influx_place, bucket_of, tmp_path):
    """No point is rejected as beyond the retention, and none is in a year to come.

    Points have the time of receipt.
    """
    set_up_influx(influx_place.config(), 30, {})
    now_ns = time.time_ns()
    runs = [msgspec.structs.replace(run, started_at_ns=now_ns) for run in level_runs([10.0] * 6)]
    off_years = (0, 5, 30, -30, -56, 0)
    pairs = [
        claimed([run], years * YEAR_NS, [now_ns])[0]
        for run, years in zip(runs, off_years, strict=True)
    ]
    store(tmp_path / "ledger", pairs)
    bucket = bucket_of(influx_place.config())
    drain = Drain(tmp_path / "ledger", bucket)
    drain.start()
    try:
        assert wait_until(lambda: drain.has_reached(6)), drain.trouble
    finally:
        drain.stop()
    with SqliteLedger(tmp_path / "ledger", "read") as ledger:
        assert ledger.quarantined() == []
    rows = influx_place.query("SELECT seq, stamped_by FROM run")
    assert sorted(row["seq"] for row in rows) == [1, 2, 3, 4, 5, 6]
    assert all(abs(row["time"] - now_ns) <= NS_PER_DAY for row in rows)
    assert {row["seq"]: row["stamped_by"] for row in rows} == {
        1: "device",
        2: "collector",
        3: "collector",
        4: "collector",
        5: "collector",
        6: "device",
    }


def test_the_device_is_listed_with_the_remedy(tmp_path):
    """The device reports that it is synchronised, but the collector knows better.

    It is not listed any more once the clock is right.
    """
    path = tmp_path / "ledger"
    with intake(path) as bench:
        for off_ns, remedy in (
            (10 * YEAR_NS + 3 * NS_PER_DAY, "10.0 years ahead"),
            (0, None),
            (-40 * YEAR_NS, "years behind"),
        ):
            health = Health(
                device="pi-1",
                fleet="lab",
                session=5,
                told_ns=time.time_ns() + off_ns,
                agent="1",
                clock=Clock(is_synchronised=True),
            )
            bench.bring(encode_health(health), topic="edgemeter/v1/lab/pi-1/health")
            listed = CliRunner().invoke(
                command,
                ["devices", "--ledger", str(path), "--format", "json"],
                catch_exceptions=False,
            )
            (device,) = msgspec.json.decode(listed.stdout)["devices"]
            assert device["look_at"] is None if remedy is None else remedy in device["look_at"]
