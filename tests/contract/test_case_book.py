"""The case book of a ledger that changes, of a SQLite file and a PostgreSQL database alike."""

import msgspec

from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.figures import FIGURES
from edgemeter.agent.ledger.retention import Retention
from edgemeter.agent.ledger.run_history import LedgerRuns
from edgemeter.collector.compare.case_book import CaseBook, book_of
from edgemeter.collector.ledgers.place import open_ledger
from edgemeter.collector.runs.store import LedgerStore
from tests.fixtures.ledgers import arrival
from tests.fixtures.random_records import random_record
from tests.fixtures.record_factory import violating
from tests.fixtures.series_factory import FIRST_DAY, make_days, noisy

YEAR_NS = 365 * NS_PER_DAY
NOW_NS = (FIRST_DAY + 60) * NS_PER_DAY
COUNTS = (
    "runs",
    "usable",
    "disturbed",
    "throttled",
    "first_ns",
    "newest_ns",
    "temperature_max_c",
    "board",
)


def content(book):
    """Return what a book holds of each case.

    That is its runs counted, and its figures over the current level and over all days.
    """
    cases = {}
    for case in book.cases:
        summaries = [summary for summary in (case.level, case.all_days) if summary]
        figures = [[summary.figures.get(entry.name) for entry in FIGURES] for summary in summaries]
        facts = [
            (
                summary.segment,
                summary.accuracy_reason,
                summary.energy,
                summary.verdicts,
                summary.left_out,
            )
            for summary in summaries
        ]
        cases[case.key] = (
            [getattr(case, name) for name in COUNTS],
            [summary.run_ids for summary in summaries],
            figures,
            facts,
        )
    return cases, book.left_out()


def odd_runs():
    """Return runs of four devices with all that can be odd in runs.

    They have a step, are disturbed or invalid, lack energy, come from clocks that are off, or have
    random content.
    """
    stepped = make_days(
        noisy(100, 50, step_at=30, step_ratio=1.1), firmwares=["1"] * 30 + ["2"] * 20
    )
    steady = make_days(noisy(95, 50, seed=2), device="pi-2", runs_a_day=2)
    later = make_days(
        noisy(95, 20, seed=3), device="pi-3", verdict=violating("disturbed", "throttled")
    )
    invalid = make_days(
        noisy(95, 9, seed=4), device="pi-3", seq=100, verdict=violating("invalid", "throttled")
    )
    without = make_days(noisy(95, 20, seed=5), device="pi-3", seq=200, energy=None, accuracy=None)
    off = [
        msgspec.structs.replace(
            run, started_at_ns=run.started_at_ns + years * YEAR_NS, clock_synchronised=True
        )
        for years, run in zip(
            (30, -50) * 10, make_days(noisy(95, 20, seed=6), device="pi-3", seq=300), strict=True
        )
    ]
    forged = [random_record(seed, session=9, device="pi-4", fleet="lab") for seed in range(20)]
    return [*stepped, *steady, *later, *invalid, *without, *off, *forged]


def test_whatever_comes_and_goes_a_book_says_what_one_that_is_made_anew_says(ledger_place):
    """A book that is kept up to date equals one that is made anew, to the last digit.

    Runs arrive late, are sent again, deleted, excluded and included, and some are too old.
    """
    runs = odd_runs()
    changes = (
        lambda ledger: ledger.commit([arrival(run, NOW_NS) for run in runs[::2]]),
        lambda ledger: ledger.commit([arrival(run, NOW_NS + NS_PER_DAY) for run in runs]),
        lambda ledger: [
            LedgerRuns(ledger).withdraw(run.id, "deleted", "ada", "the fan was off")
            for run in runs[5::40]
        ],
        lambda ledger: [
            LedgerRuns(ledger).withdraw(run.id, "excluded", "ada", "the fan was off")
            for run in runs[6::40]
        ],
        lambda ledger: LedgerRuns(ledger).include(runs[6].id, "ada", "it was on"),
        lambda ledger: ledger.forget(Retention(records_days=1.5), NOW_NS + 2 * NS_PER_DAY),
    )
    book = CaseBook(LedgerStore(ledger_place))
    for number, change in enumerate(changes):
        with open_ledger(ledger_place) as ledger:
            change(ledger)
        book.refresh()
        assert content(book) == content(book_of(LedgerStore(ledger_place))), number


def test_only_the_cases_that_changed_are_read_again(ledger_place):
    """Only changed cases are read again.

    A fleet of thousands of boards sends a few runs at a time.
    """
    with open_ledger(ledger_place) as ledger:
        ledger.commit([arrival(run, NOW_NS) for run in odd_runs()])
    source = LedgerStore(ledger_place)
    book = book_of(source)
    before = {case.key: case for case in book.cases}
    reported = []
    book.refresh(lambda *report: reported.append(report))
    assert reported == []
    (late,) = make_days([95.0], device="pi-2", seq=500)
    with open_ledger(ledger_place) as ledger:
        ledger.commit([arrival(late, NOW_NS)])
    book.refresh(lambda *report: reported.append(report))
    assert reported == [("summing up cases", 1, 1)]
    assert [case.key.device for case in book.cases if case is not before.get(case.key)] == ["pi-2"]
