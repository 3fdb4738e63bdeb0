"""Facts about a record of the ledger that a reader cannot take: it is skipped, counted and named, and all others are there."""

import json

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import record
from edgemeter.agent.ledger import quarantine
from edgemeter.agent.ledger.chunks import Arrival
from edgemeter.agent.ledger.run_history import LedgerRuns
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.index import refresh
from edgemeter.collector.index.rollup import rolled_up
from edgemeter.collector.index.run_index import open_index
from edgemeter.collector.index.sources import LedgerSource
from edgemeter.collector.runs.store import LedgerStore
from tests.fixtures.command import edgemeter
from tests.fixtures.comparison_factory import make_reference, make_run
from tests.fixtures.draining import InfluxFunction, drained
from tests.fixtures.record_factory import STARTED_AT_NS
from tests.fixtures.served_page import page_of, text_of

LARGE, GARBLED = "run-with-a-large-number", "run-that-is-garbled"
WHY = {LARGE: "Expected `int` <= 9223372036854775807 - at `$.seed`", GARBLED: "Expected `float`, got `str` - at `$.warm_up.duration_ms`"}


def arrival(run, seq):
    """Return a run as a version without bounds stored it."""
    numbered = msgspec.structs.replace(run, session=7, seq=seq, started_at_ns=STARTED_AT_NS + seq)
    document = msgspec.json.decode(record.encode(numbered))
    document["seed"] = 2**64 if run.id == LARGE else 1
    document["warm_up"]["duration_ms"] = "long" if run.id == GARBLED else 3.0
    return Arrival(numbered, msgspec.json.encode(document), f"edgemeter/v1/lab/{run.device}/result", STARTED_AT_NS + seq)


@pytest.fixture
def path(tmp_path):
    """Return a ledger of five runs: the second, and the newest, cannot be read."""
    path = tmp_path / "ledger.sqlite"
    runs = [make_run(p50_ms=10.0), make_run(id=LARGE), make_run(p50_ms=12.0), make_reference(p50_ms=2.0), make_run(id=GARBLED)]
    with SqliteLedger(path) as ledger:
        ledger.commit([arrival(run, seq) for seq, run in enumerate(runs, 1)])
    return path


def named(text):
    """Return which of the two runs a text names with its reason."""
    return {run for run, reason in WHY.items() if run in text and reason in text}


def test_the_ledger_yields_the_others_and_names_each(path, caplog):
    """Device, session and number say which record it is."""
    with SqliteLedger(path, "read") as ledger:
        assert [entry.row for entry in ledger.records()] == [1, 3, 4]
        with pytest.raises(ConfigError, match=f"run {LARGE} is in .* but cannot be read"):
            LedgerRuns(ledger).entry(LARGE)
    assert "run-with-a-large-number of device 'pi-1' (session 7, seq 2)" in caplog.text
    assert named(caplog.text) == {*WHY}


def test_the_index_notes_them_once_and_forgets_those_that_are_gone(path, caplog):
    """Of one device or of all: they are not read again, and a record that leaves the ledger leaves the index."""
    index = open_index(LedgerSource(path))
    assert index.refresh() == 5
    assert index.skipped() == (2, f"run {GARBLED} of pi-1: not a run record: {WHY[GARBLED]}")
    assert named(caplog.text) == {*WHY}
    caplog.clear()
    with SqliteLedger(path) as ledger:
        ledger.commit([arrival(make_run(p50_ms=11.0), 6)])
    index.refresh()
    with index.reading() as connection:
        assert connection.execute("SELECT row FROM measured ORDER BY row").fetchall() == [(1,), (3,), (4,), (6,)]
    with SqliteLedger(path) as ledger, ledger.writing() as statements:
        statements.execute("DELETE FROM runs WHERE row IN (1, 5)")
    assert index.refresh() == 6
    assert index.skipped()[0] == 1
    assert caplog.text == ""


def test_a_run_that_the_index_cannot_hold_is_skipped_too(path, monkeypatch):
    """A fault of ours with one run, which nobody foresaw, leaves nothing of it behind, and stops no other."""
    real = refresh.stored_run

    def stored_run(figures):
        if figures.value("latency_p50_ms") == 12.0:
            raise OverflowError("Python int too large to convert to SQLite INTEGER")
        return real(figures)

    monkeypatch.setattr(refresh, "stored_run", stored_run)
    index = open_index(LedgerSource(path))
    index.refresh()
    assert index.skipped()[0] == 3
    with index.reading() as connection:
        assert connection.execute("SELECT row FROM measured ORDER BY row").fetchall() == [(1,), (4,)]
        assert connection.execute("SELECT count(*) FROM cases").fetchone() == (2,)


def test_a_case_that_cannot_be_summed_up_is_left_out_and_named(path, monkeypatch, caplog):
    """Of the other cases the summaries are there."""
    real = refresh.packed_summary
    monkeypatch.setattr(refresh, "packed_summary", lambda case: real(case) if case.key.role == "reference" else 1 / 0)
    index = open_index(LedgerSource(path))
    index.refresh()
    assert index.stale() == 0
    with index.reading() as connection:
        assert connection.execute("SELECT count(*) FROM summaries").fetchone() == (1,)
    assert "cannot sum up the runs of tiny-detector on pi-1, which is left out: ZeroDivisionError" in caplog.text


def test_a_comparison_lists_them(path):
    """From the records, and from the index; what a sink rejected of them is not listed twice."""
    with SqliteLedger(path) as ledger, ledger.writing() as statements:
        reference = msgspec.json.encode(quarantine.RecordReference("lab", "pi-1", 7, 2, LARGE))
        quarantine.add(statements, [quarantine.Rejection("influx", reference, "refused", 1)])
    store = LedgerStore(path)
    for left_out in (store.contents().left_out, rolled_up(store, worth_runs=0).unreadable):
        assert [(entry.run, entry.reason) for entry in left_out] == [
            (run, f"in the ledger, but it cannot be read: not a run record: {WHY[run]}") for run in (LARGE, GARBLED)
        ]


def test_the_page_counts_them_at_its_foot(path):
    """And names the last; the other runs are shown."""
    with page_of(path) as page:
        text = text_of(page, "/")
    assert f"2 records cannot be read, the last is run {GARBLED} of pi-1" in text


def test_the_commands_show_the_others(path, caplog):
    """Each ends well; what is skipped is on standard error, or among what is left out."""
    for words, rows, count in (
        ("runs --format json", "runs", 3),
        ("compare --reference reference --format json", "rows", 2),
        ("trend --format json", "series", 6),
    ):
        caplog.clear()
        ended = edgemeter(*words.split(), "--ledger", path)
        assert ended.returncode == 0, ended.stderr
        assert len(json.loads(ended.stdout)[rows]) == count
        if words != "trend --format json":
            assert named(caplog.text + ended.stdout) == {*WHY}, words


def test_a_drain_goes_past_them_and_quarantines_them_by_name(path, caplog):
    """The other records are written."""
    bucket = InfluxFunction()
    drained(path, bucket)
    assert len(bucket.lines) == 3
    with SqliteLedger(path, "read") as ledger:
        assert ledger.position("influx") == 5
        entries = ledger.quarantined()
    assert {quarantine.read_reference(entry.payload).id: entry.reason.rpartition("not a run record: ")[2] for entry in entries} == WHY
    assert named(caplog.text) == {*WHY}
