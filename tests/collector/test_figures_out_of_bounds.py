"""Test figures beyond the bounds of any machine.

A record of an older ledger with one is left out of every view, counted and named.
"""

import json
import sqlite3
from contextlib import closing

import msgspec
import pytest

from edgemeter.agent.contract import record
from edgemeter.agent.ledger.chunks import Arrival, pack_chunk
from edgemeter.agent.ledger.run_history import LedgerRuns
from edgemeter.agent.ledger.run_row import row_of
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.runs.contents import LeftOut
from edgemeter.collector.runs.selection import parse_selection
from edgemeter.collector.runs.store import LedgerStore
from tests.fixtures.command import edgemeter
from tests.fixtures.comparison_factory import make_reference, make_run
from tests.fixtures.figure_bounds import PATHS, bounds_of
from tests.fixtures.record_factory import STARTED_AT_NS, make_accuracy, make_energy
from tests.fixtures.rows import table_row
from tests.fixtures.served_page import page_of, text_of

DAY_NS = 86_400 * 10**9
HIGH, EXCLUDED = "run-with-an-endless-accuracy", "run-with-an-endless-energy"
REASON = "Expected `float` <= 1000000000000000.0 - at `$.accuracy.value`"


def stored(run, seq):
    """Return a run as a version without bounds stored it: with the row of its figures."""
    numbered = msgspec.structs.replace(
        run, session=7, seq=seq, started_at_ns=STARTED_AT_NS + seq * DAY_NS
    )
    topic = f"edgemeter/v1/{run.fleet}/{run.device}/result"
    return Arrival(
        row_of(numbered, numbered.started_at_ns),
        record.encode(numbered),
        topic,
        numbered.started_at_ns,
    )


def days_of(values, **changes):
    """Return a run a day with these accuracies; 1e308 is that of the run `HIGH`."""
    return [
        make_run(
            accuracy=make_accuracy(value=value, without_parts=()),
            **({"id": HIGH} if value == 1e308 else {}),
            **changes,
        )
        for value in values
    ]


@pytest.fixture
def path(tmp_path):
    """Return the ledger of another version, with twelve days of a run.

    One has an accuracy of 1e308, and an excluded one an energy of 1e300.
    """
    path = tmp_path / "ledger.sqlite"
    runs = [*days_of([0.6] * 6 + [1e308] + [0.6] * 5), make_run(id=EXCLUDED), make_reference()]
    endless = record.encode(
        make_run(id=EXCLUDED, session=7, seq=13, energy=make_energy(gross_mj=1e300))
    )
    with SqliteLedger(path) as ledger:
        ledger.commit([stored(run, seq) for seq, run in enumerate(runs, 1)])
        LedgerRuns(ledger).withdraw(EXCLUDED, "excluded", "ada", "the meter")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE run_events SET body = ?", (pack_chunk([endless]),))
        connection.execute("UPDATE identity SET rows = 1")
    return path


@pytest.fixture
def opened_path(path):
    """Return the same ledger after a collector of this version opened it."""
    SqliteLedger(path).close()
    return path


def test_a_ledger_that_holds_one_opens_and_sets_it_apart(path, caplog):
    """The record loses its row and is not missing; opened again, nothing changes."""
    for _ in range(2):
        with SqliteLedger(path) as ledger:
            assert [entry.record.id for entry in ledger.records()].count(HIGH) == 0
            assert ledger.count() == 12
            (entry,) = ledger.quarantined()
            assert (entry.topic, REASON in entry.reason, entry.times) == (
                "edgemeter/v1/lab/pi-1/result",
                True,
                1,
            )
            # The excluded run has no row either, and its number is remembered.
            assert {session.device: session.missing for session in ledger.sessions()}["pi-1"] == 0
    assert f"run {HIGH} of device 'pi-1' (session 7, seq 7)" in caplog.text


def test_every_reader_counts_and_names_it_by_one_list(opened_path):
    """The readers are the store, its contents, and a selection for exports."""
    expected = [LeftOut(HIGH, f"in the ledger's quarantine: not a run record: {REASON}", "pi-1")]
    store, selection = LedgerStore(opened_path), parse_selection(str(opened_path))
    assert store.left_out() == store.contents().left_out == expected
    assert store.left_out_count() == 1
    assert len(list(selection.runs())) == 12
    assert selection.unreadable == expected


def test_the_commands_show_the_others_and_name_it(opened_path, tmp_path):
    """Each command succeeds in every format, and names run, device and figure."""
    for words, document in (
        ("trend", None),
        ("trend --format json", "series"),
        ("trend --all --figure all --format csv", None),
        ("trend units", None),
        ("compare --reference reference --format json", "rows"),
        ("runs", None),
        ("runs --format json", "runs"),
        (f"report -o {tmp_path / 'runs.csv'}", None),
    ):
        with table_row(words):
            ended = edgemeter(*words.split(), "--ledger", opened_path)
            assert ended.returncode == 0, ended.stderr
            text = ended.stdout if "compare" in words else ended.stderr
            assert HIGH in text
            assert "pi-1" in text
            assert "$.accuracy.value" in text
            if document:
                assert json.loads(ended.stdout)[document]
    assert "1e+308" not in (tmp_path / "runs.csv").read_text()


def test_a_list_of_runs_has_the_excluded_ones_that_can_be_read(opened_path, caplog):
    """The unreadable one is named, and its id is not free."""
    listed = edgemeter("runs", "--ledger", opened_path, "--format", "json")
    assert len(json.loads(listed.stdout)["runs"]) == 12
    assert f"run {EXCLUDED} of device 'pi-1'" in caplog.text
    ended = edgemeter("runs", "show", EXCLUDED, "--ledger", opened_path)
    assert "but cannot be read" in ended.stderr


def test_the_page_shows_the_others_and_says_how_many_are_left_out(opened_path):
    """Every view gives the number, and the comparison names the record."""
    page = page_of(opened_path)
    for view in ("/", "/trend", "/device?fleet=lab&device=pi-1"):
        assert "12 records. 1 message left out, named below the comparison." in text_of(page, view)
    compared = text_of(page, "/compare?reference=reference")
    assert f"{HIGH} of pi-1" in compared
    assert "accuracy.value" in compared


def test_views_take_every_figure_at_its_bounds(tmp_path):
    """Trend, page and comparison work with a step from the least to the greatest value.

    The step is within twenty days, figure by figure.
    """
    usual = msgspec.to_builtins(
        make_run(
            accuracy=make_accuracy(value=0.6, low=0.5, high=0.7, without_parts=(), better="lower")
        )
    )
    for path in PATHS:
        part, _, name = path.rpartition(".")
        if part not in {"", "latency", "energy", "accuracy", "memory"}:
            continue
        low, high = bounds_of(path)
        ledger_path = tmp_path / f"{path}.sqlite"
        runs = []
        for day in range(24):
            document = msgspec.json.decode(msgspec.json.encode(usual)) | {"id": f"run-{day}"}
            (document[part] if part else document)[name] = (
                (low or 5e-324, high)[day >= 12] if day % 5 else high
            )
            runs.append(record.decode(msgspec.json.encode(document)))
        with SqliteLedger(ledger_path) as ledger:
            ledger.commit(
                [stored(run, seq) for seq, run in enumerate([*runs, make_reference()], 1)]
            )
        with table_row(path):
            for words in (
                "trend --figure all --all",
                "trend --figure all --format json",
                "compare --reference reference",
                "runs -n 0",
            ):
                ended = edgemeter(*words.split(), "--ledger", ledger_path)
                assert ended.returncode == 0, (words, ended.stderr)
            page = page_of(ledger_path)
            for view in (
                "/",
                "/trend",
                f"/trend?metric={path.replace('.', '_')}",
                "/compare?reference=reference",
                "/run?id=run-3",
            ):
                assert "Traceback" not in text_of(page, view)
