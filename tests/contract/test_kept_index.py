"""What the keeper keeps ready while records arrive, of a SQLite file and a PostgreSQL database alike."""

import contextlib

import msgspec
import pytest

from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.run_figures import RUN_COLUMNS, VALUE_COLUMNS
from edgemeter.agent.ledger.retention import Retention
from edgemeter.agent.ledger.run_history import LedgerRuns
from edgemeter.collector.index import keeper, rollup
from edgemeter.collector.index.index_file import connect_index, index_path
from edgemeter.collector.index.refresh import IndexRefresher
from edgemeter.collector.index.sources import LedgerSource
from edgemeter.collector.ledgers.place import open_ledger
from edgemeter.collector.runs.store import LedgerStore
from tests.fixtures.ledgers import arrival
from tests.fixtures.random_records import random_record
from tests.fixtures.record_factory import violating
from tests.fixtures.series_factory import FIRST_DAY, make_days, noisy

YEAR_NS = 365 * NS_PER_DAY
NOW_NS = (FIRST_DAY + 60) * NS_PER_DAY
FIGURES = ", ".join(name for name in (*RUN_COLUMNS, *VALUE_COLUMNS) if name != "fingerprint")
SUMMARIES = "SELECT key, head, summary, head_of_all, summary_of_all FROM cases JOIN summaries USING (case_number) ORDER BY key"


@pytest.fixture(autouse=True)
def worth(tmp_path, monkeypatch):
    """Keep an index of a small ledger too, and what is derived from a database in a folder of the test's own."""
    monkeypatch.setattr(rollup, "WORTH_RUNS", 1)
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path / "home"))


def keep_up(ledger_place):
    """Do once what the keeper does."""
    for duty in keeper._duties(ledger_place):
        duty.work()


def content(ledger_place, path):
    """Return the figures and the summaries in an index."""
    with contextlib.closing(connect_index(path)) as connection:
        IndexRefresher(connection, LedgerSource(ledger_place)).refresh()
        figures = connection.execute(f"SELECT key, {FIGURES} FROM runs JOIN series USING (series) ORDER BY row").fetchall()  # noqa: S608 - our own names
        summaries = connection.execute(SUMMARIES).fetchall()
    return figures, summaries


def odd_runs():
    """Return runs of four devices: with a step, disturbed, invalid, without energy, by clocks that are off, and of random content."""
    stepped = make_days(noisy(100, 50, step_at=30, step_ratio=1.1), firmwares=["1"] * 30 + ["2"] * 20)
    steady = make_days(noisy(95, 50, seed=2), device="pi-2", runs_a_day=2)
    later = make_days(noisy(95, 20, seed=3), device="pi-3", verdict=violating("disturbed", "throttled"))
    invalid = make_days(noisy(95, 9, seed=4), device="pi-3", seq=100, verdict=violating("invalid", "throttled"))
    without = make_days(noisy(95, 20, seed=5), device="pi-3", seq=200, energy=None, accuracy=None)
    off = [
        msgspec.structs.replace(run, started_at_ns=run.started_at_ns + years * YEAR_NS, clock_synchronised=True)
        for years, run in zip((30, -50) * 10, make_days(noisy(95, 20, seed=6), device="pi-3", seq=300), strict=True)
    ]
    forged = [random_record(seed, session=9, device="pi-4", fleet="lab") for seed in range(20)]
    return [*stepped, *steady, *later, *invalid, *without, *off, *forged]


@pytest.mark.nightly
def test_whatever_comes_and_goes_what_is_kept_is_what_is_worked_out_from_nothing(ledger_place, tmp_path):
    """To the last digit: late arrivals, records that a device sent again, deleted, excluded and included ones, and what is too old."""
    runs = odd_runs()
    changes = (
        lambda ledger: ledger.commit([arrival(run, NOW_NS) for run in runs[::2]]),
        lambda ledger: ledger.commit([arrival(run, NOW_NS + NS_PER_DAY) for run in runs]),
        lambda ledger: [LedgerRuns(ledger).withdraw(run.id, "deleted", "ada", "the fan was off") for run in runs[5::40]],
        lambda ledger: [LedgerRuns(ledger).withdraw(run.id, "excluded", "ada", "the fan was off") for run in runs[6::40]],
        lambda ledger: LedgerRuns(ledger).include(runs[6].id, "ada", "it was on"),
        lambda ledger: ledger.forget(Retention(records_days=1.5), NOW_NS + 2 * NS_PER_DAY),
    )
    for number, change in enumerate(changes):
        with open_ledger(ledger_place) as ledger:
            change(ledger)
        keep_up(ledger_place)
        assert content(ledger_place, index_path(ledger_place)) == content(ledger_place, tmp_path / f"anew-{number}"), number


def test_a_first_question_pays_for_no_history(ledger_place):
    """Where the keeper was there before: nothing is read or summed up, and a page has its figures."""
    with open_ledger(ledger_place) as ledger:
        ledger.commit([arrival(run, NOW_NS) for run in odd_runs()])
    keep_up(ledger_place)
    reported = []
    assert rollup.rolled_up(LedgerStore(ledger_place), lambda *report: reported.append(report), worth_runs=1).summaries
    assert reported == []
