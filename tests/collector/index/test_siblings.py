"""Every reader of the index has the verdict that `judged_together` gives on the same runs, however they came and went."""

import contextlib
import random

import msgspec
import pytest

from edgemeter.agent.ledger.run_history import LedgerRuns
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.agent.verdict.siblings import judged_together
from edgemeter.collector.index import refresh
from edgemeter.collector.index.run_index import open_index, rows_of_verdict
from edgemeter.collector.index.sources import LedgerSource
from edgemeter.collector.index.stored_summaries import runs_of
from edgemeter.collector.trend.history import RunHistory
from edgemeter.collector.trend.ledger_history import LedgerHistory
from edgemeter.collector.web import queries
from edgemeter.collector.web.queries import CaseFilter
from tests.fixtures.comparison_factory import in_rounds, make_run
from tests.fixtures.ledgers import arrival
from tests.fixtures.record_factory import STARTED_AT_NS, make_environment, violating
from tests.fixtures.rows import table_row

DAY_NS = 86_400 * 10**9


def keep(path, runs):
    """Commit runs, each received when it began."""
    with SqliteLedger(path) as ledger:
        ledger.commit([arrival(run, run.started_at_ns) for run in runs])


def numbered(runs, first=1):
    """Return runs with an id and a number each."""
    return [msgspec.structs.replace(run, id=f"run-{seq:04}", session=1, seq=seq) for seq, run in enumerate(runs, first)]


def records_in(path):
    """Return the counted records of a ledger, oldest first."""
    runs = [entry.record for entry in open_records(path)]
    return sorted(runs, key=lambda run: run.started_at_ns)


def open_records(path):
    """Return what a ledger holds."""
    with SqliteLedger(path, "read") as ledger:
        return list(ledger.records())


def states_of(runs):
    """Return the verdict of each run by its id."""
    return {run.id: run.verdict.state for run in runs}


def states_by_reader(path):
    """Return the verdict of each run as each reader of the index and of the records has it."""
    source = LedgerSource(path)
    with contextlib.closing(LedgerHistory(path)) as history:
        columns = history.columns(history.series(), ["latency_p50_ms"])
        trend = [run for key in history.series() for run, _ in history.points(key)]
        assert columns.is_ok.tolist() == [run.verdict == "ok" for run in trend]
    rows = {entry.row: entry.record.id for entry in open_records(path)}
    read = open_index(source)
    read.refresh()
    with read.reading() as connection:
        cases = queries.cases(connection, CaseFilter())
        listed = [run for case in cases for run in queries.runs_of(connection, case.number, newest=1000)]
        stored = [run for case in cases for run in runs_of(connection, case.number, usable=False)]
        assert sum(case.disturbed for case in cases) == sum(run.verdict == "disturbed" and run.is_usable for run in listed)
    direct = RunHistory(records_in(path))
    return {
        "trend": {run.id: run.verdict for run in trend},
        "page": {run.id: run.verdict for run in listed},
        "roll-up": states_of(stored),
        "runs --verdict": {
            rows[row]: state for state in ("ok", "disturbed", "invalid") for row in rows_of_verdict(source, state)
        },
        "document": {run.id: run.verdict for key in direct.series() for run, _ in direct.points(key)},
    }  # fmt: skip


def assert_same(path):
    """Assert that all readers have the verdicts of `judged_together`, and the roll-up its violations too."""
    judged = judged_together(records_in(path))
    for reader, states in states_by_reader(path).items():
        with table_row(reader):
            assert states == states_of(judged)
    return states_of(judged)


def sessions_of_any_kind(seed, count=300):
    """Return runs of a few cases in a few sessions and in none: some apart, some invalid, not measured or of an unknown board."""
    chance = random.Random(seed)  # noqa: S311 - the same runs every time, no secret
    runs = []
    for _ in range(count):
        odds = chance.random()
        state = "invalid" if odds < 0.05 else "disturbed" if odds < 0.15 else "ok"
        number = chance.randrange(12)
        provenance = {"latency": chance.choice(["measured"] * 9 + ["published"])}
        run = make_run(
            device=f"pi-{number % 3}",
            threads=1 + number % 2,
            p50_ms=None if chance.random() < 0.03 else 10.0 * chance.gauss(1, 0.03) * chance.choice([1, 1, 1, 1, 1, 1.3]),
            session_started_at_ns=0 if number == 11 else STARTED_AT_NS + number // 3 * DAY_NS,
            started_at_ns=STARTED_AT_NS + number // 3 * DAY_NS + chance.randrange(DAY_NS),
            verdict=violating(state, *(["throttled"] if state != "ok" else [])),
            provenance=provenance,
            environment=make_environment(board=chance.choice(["a board"] * 5 + [None])),
        )
        runs.append(run)
    return numbered(runs)


@pytest.mark.parametrize("batch", [2000, 7])
def test_every_reader_has_the_verdict_of_the_runs_judged_together(path, monkeypatch, batch):
    """Of sessions that arrive in parts, in any order, with runs that are excluded, included again and deleted in between."""
    monkeypatch.setattr(refresh, "BATCH", batch)
    chance = random.Random(7)  # noqa: S311 - as above
    runs = sessions_of_any_kind(1)
    apart = set()
    for start in range(0, len(runs), 60):
        keep(path, runs[start : start + 60])
        states = assert_same(path)
        apart |= {run.id for run in runs if (states.get(run.id), run.verdict.state) == ("disturbed", "ok")}
        with SqliteLedger(path) as ledger:
            history = LedgerRuns(ledger)
            for run in chance.sample(runs[: start + 60], 12):
                if history.is_counted(run.id):
                    history.withdraw(run.id, "excluded", "ada", "")
        assert_same(path)
        with SqliteLedger(path) as ledger:
            for entry in LedgerRuns(ledger).runs({}):
                if entry.state == "excluded" and chance.random() < 0.5:
                    LedgerRuns(ledger).include(entry.record.id, "ada", "")
        assert_same(path)
    assert len(apart) > 20


def test_the_summary_of_a_case_has_the_whole_verdict_of_its_runs(path):
    """Also of the newest few, whose siblings are not read."""
    runs = numbered(in_rounds([make_run(p50_ms=p50_ms) for p50_ms in (10.0, 10.1, 10.2, 15.0)]))
    keep(path, runs)
    index = open_index(LedgerSource(path))
    index.refresh()
    judged = judged_together(runs)
    with index.reading() as connection:
        assert [run.verdict for run in runs_of(connection, 1)] == [run.verdict for run in judged]
        assert [run.verdict for run in runs_of(connection, 1, 1)] == [judged[-1].verdict]
    assert judged[-1].verdict.rules == ("apart-from-siblings",)


def test_siblings_that_come_later_or_are_removed_change_the_verdict_of_those_that_are_there(path):
    """A run that lies apart among three is one of many among seven, and one of few again without them; the other way round as well."""
    first = numbered(in_rounds([make_run(p50_ms=p50_ms) for p50_ms in (10.0, 10.1, 15.0)]))
    later = numbered(in_rounds([make_run(p50_ms=p50_ms) for p50_ms in (15.1, 14.9, 15.0, 15.2)], started_at_ns=STARTED_AT_NS), 4)
    keep(path, first)
    assert list(assert_same(path).values()) == ["ok", "ok", "disturbed"]
    keep(path, later)
    assert assert_same(path) == dict.fromkeys(states_of([*first[2:], *later]), "ok") | dict.fromkeys(states_of(first[:2]), "disturbed")
    with SqliteLedger(path) as ledger:
        for run in later:
            LedgerRuns(ledger).withdraw(run.id, "deleted", "ada", "")
    assert list(assert_same(path).values()) == ["ok", "ok", "disturbed"]
    with SqliteLedger(path) as ledger:
        LedgerRuns(ledger).withdraw(first[0].id, "deleted", "ada", "")
    assert list(assert_same(path).values()) == ["ok", "ok"]


def test_a_series_whose_runs_are_judged_anew_by_those_of_another_gets_a_new_version(path):
    """Siblings on a board that was not recognised are in another series: what was computed of the first is not true any more."""
    recognised = numbered(in_rounds([make_run(p50_ms=p50_ms) for p50_ms in (15.0, 10.0)]))
    unknown = numbered(in_rounds([make_run(p50_ms=p50_ms, environment=make_environment(board=None)) for p50_ms in (10.1, 10.2)]), 3)
    keep(path, recognised)
    with contextlib.closing(LedgerHistory(path)) as history:
        (key,) = history.series()
        version = history.version(key)
    keep(path, unknown)
    with contextlib.closing(LedgerHistory(path)) as history:
        assert [run.verdict for run, _ in history.points(key)] == ["disturbed", "ok"]
        assert history.version(key) != version
