"""Test a record of the ledger that a reader cannot take.

It is skipped, counted and named, and all others are there.
"""

import json

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import record
from edgemeter.agent.ledger import quarantine
from edgemeter.agent.ledger.chunks import arrived
from edgemeter.agent.ledger.run_history import LedgerRuns
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.compare.case_book import book_of
from edgemeter.collector.runs.store import LedgerStore
from tests.fixtures.command import edgemeter
from tests.fixtures.comparison_factory import make_reference, make_run
from tests.fixtures.draining import InfluxFunction, drained
from tests.fixtures.record_factory import STARTED_AT_NS
from tests.fixtures.served_page import page_of, text_of

LARGE, GARBLED = "run-with-a-large-number", "run-that-is-garbled"
WHY = {
    LARGE: "Expected `int` <= 9223372036854775807 - at `$.seed`",
    GARBLED: "Expected `float`, got `str` - at `$.warm_up.duration_ms`",
}


def arrival(run, seq):
    """Return a run as a version without bounds stored it."""
    numbered = msgspec.structs.replace(run, session=7, seq=seq, started_at_ns=STARTED_AT_NS + seq)
    document = msgspec.json.decode(record.encode(numbered))
    document["seed"] = 2**64 if run.id == LARGE else 1
    document["warm_up"]["duration_ms"] = "long" if run.id == GARBLED else 3.0
    return arrived(
        numbered,
        msgspec.json.encode(document),
        f"edgemeter/v1/lab/{run.device}/result",
        STARTED_AT_NS + seq,
    )


@pytest.fixture
def path(tmp_path):
    """Return a ledger of five runs: the second, and the newest, cannot be read."""
    path = tmp_path / "ledger.sqlite"
    runs = [
        make_run(p50_ms=10.0),
        make_run(id=LARGE),
        make_run(p50_ms=12.0),
        make_reference(p50_ms=2.0),
        make_run(id=GARBLED),
    ]
    with SqliteLedger(path) as ledger:
        ledger.commit([arrival(run, seq) for seq, run in enumerate(runs, 1)])
    return path


def named(text):
    """Return which of the two runs a text names with its reason."""
    return {run for run, reason in WHY.items() if run in text and reason in text}


def test_the_ledger_yields_the_others_and_names_each(path, caplog):
    """Device, session and number identify the unreadable record."""
    with SqliteLedger(path, "read") as ledger:
        assert [entry.row for entry in ledger.records()] == [1, 3, 4]
        with pytest.raises(ConfigError, match=f"run {LARGE} is in .* but cannot be read"):
            LedgerRuns(ledger).entry(LARGE)
    assert "run-with-a-large-number of device 'pi-1' (session 7, seq 2)" in caplog.text
    assert named(caplog.text) == {*WHY}


def test_a_comparison_has_their_figures_and_the_records_of_the_others(path):
    """The figures were computed when the record came.

    A record that a sink rejected is not listed twice.
    """
    with SqliteLedger(path) as ledger, ledger.writing() as statements:
        reference = msgspec.json.encode(quarantine.RecordReference("lab", "pi-1", 7, 2, LARGE))
        quarantine.add(statements, [quarantine.Rejection("influx", reference, "refused", 1)])
    book = book_of(LedgerStore(path))
    (case,) = [summary for summary in book.summaries() if summary.key.device == "pi-1"]
    assert (case.run_ids[1], case.run_ids[3], case.figures["latency_p50_ms"].runs) == (
        LARGE,
        GARBLED,
        4,
    )
    assert case.newest.latency.p50_ms == 12.0
    assert book.left_out() == []
    assert [(entry.run, entry.reason) for entry in LedgerStore(path).contents().left_out] == [
        (run, f"in the ledger, but it cannot be read: not a run record: {WHY[run]}")
        for run in (LARGE, GARBLED)
    ]


def test_the_page_shows_the_figures_and_says_which_record_cannot_be_read(path):
    """The page shows the other runs."""
    page = page_of(path)
    assert "5 records." in text_of(page, "/")
    assert "cannot be read" in text_of(page, f"/run?id={GARBLED}")


def test_the_commands_show_the_others(path, caplog):
    """Each command succeeds, and a list of records says which it skipped."""
    for words, rows, count in (
        ("runs --format json", "runs", 3),
        ("compare --reference reference --format json", "rows", 2),
        ("trend --format json", "series", 6),
    ):
        caplog.clear()
        ended = edgemeter(*words.split(), "--ledger", path)
        assert ended.returncode == 0, ended.stderr
        assert len(json.loads(ended.stdout)[rows]) == count
        if rows == "runs":
            assert named(caplog.text + ended.stdout) == {*WHY}, words


def test_a_drain_goes_past_them_and_quarantines_them_by_name(path, caplog):
    """The drain writes the other records."""
    bucket = InfluxFunction()
    drained(path, bucket)
    assert len(bucket.lines) == 3
    with SqliteLedger(path, "read") as ledger:
        assert ledger.position("influx") == 5
        entries = ledger.quarantined()
    assert {
        quarantine.read_reference(entry.payload).id: entry.reason.rpartition("not a run record: ")[
            2
        ]
        for entry in entries
    } == WHY
    assert named(caplog.text) == {*WHY}
