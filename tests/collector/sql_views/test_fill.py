"""The tables for SQL hold what the ledger has: every figure, each run once, in the order of its rows, and nothing that was withdrawn."""

import contextlib
import signal
import subprocess
import sys
import time
from datetime import datetime, timezone

import msgspec
import psycopg
import pytest
from click.testing import CliRunner

from edgemeter.agent.cli.main import cli
from edgemeter.agent.contract.case_identity import FIELDS, case_hash, key_of
from edgemeter.agent.contract.figures import FIGURES, with_part
from edgemeter.agent.contract.messages import DeviceState
from edgemeter.agent.ledger.presence import PresenceChange
from edgemeter.agent.ledger.retention import Retention
from edgemeter.agent.ledger.run_history import LedgerRuns
from edgemeter.collector.influx.point_schema import case_tags
from edgemeter.collector.influx.status_points import DEVICE_FIELDS
from edgemeter.collector.ledgers.place import open_ledger
from edgemeter.collector.sql_views.fill import ViewsFiller
from edgemeter.collector.sql_views.set_up import position_name
from tests.fixtures.case_twins import twins
from tests.fixtures.health_factory import make_health
from tests.fixtures.ledgers import arrival
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.record_factory import make_environment, make_generation, make_record, make_runtime
from tests.fixtures.rows import table_row
from tests.fixtures.sql_ledger import filled

pytestmark = pytest.mark.postgresql

ROWS = "SELECT * FROM edgemeter_views.run_figures ORDER BY seq"


def runs_of(numbers):
    """Return runs with these numbers of one session."""
    return [make_record(id=f"run-{seq}", device="pi-1", session=5, seq=seq) for seq in numbers]


def seqs(reader):
    """Return the numbers of the runs in the view."""
    return [row["seq"] for row in reader.query("SELECT seq FROM edgemeter_views.run_figures ORDER BY seq")]


def test_a_row_has_the_identity_of_the_case_and_every_figure_with_its_bounds(lab, reader):
    """Of twins in every property, and of one that generates text: as the record has them."""
    runs = [*twins().values(), make_record(id="generating", session=7, seq=99, generation=make_generation())]
    assert filled(lab, runs, received_ns=1_760_000_000_000_000_000)
    rows = {row["id"]: row for row in reader.query(ROWS)}
    assert len(rows) == len(runs)
    for run in runs:
        row = rows[run.id]
        with table_row(run.id):
            key = key_of(run)
            assert {field.name: row[field.name] for field in FIELDS} == {field.name: getattr(key, field.name) for field in FIELDS}
            assert (row["case_hash"], row["energy_source"], row["variant"]) == case_tags(run)
            assert row["case_hash"] == case_hash(key)
            assert row["verdict"] == run.verdict.state
            assert row["time"] == datetime.fromtimestamp(run.started_at_ns // 10**9, timezone.utc).replace(
                microsecond=run.started_at_ns // 1000 % 10**6
            )
            assert msgspec.json.decode(row["provenances"]) == run.provenance
        for entry in FIGURES:
            with table_row(run.id, entry.name):
                assert row[entry.name] == entry.value(run)
                names = [path.replace(".", "_") for path in (entry.low, entry.high)]
                if entry.u:
                    names = [name for name in row if name in {with_part(entry.name, end) for end in ("_low", "_high")}]
                    names.sort(reverse=True)
                if entry.has_bounds:
                    bounds = tuple(row[name] for name in names)
                    assert bounds == (entry.bounds(run) or (None, None))


def test_a_run_is_added_once_and_a_later_pass_adds_the_later_ones(lab, reader):
    """Also after the position was set back; the position is that of the last row."""
    assert filled(lab, runs_of(range(1, 21)))
    assert filled(lab, runs_of(range(15, 31)))
    assert seqs(reader) == list(range(1, 31))
    with open_ledger(lab) as ledger:
        assert ledger.positions() == {position_name(): ledger.last_row()}
        assert ledger.set_back(position_name(), None) == 30
    assert filled(lab)
    assert seqs(reader) == list(range(1, 31))


def test_many_batches_are_one_filling(lab, reader, monkeypatch):
    """Also where a batch ends within a chunk; the position moves with each."""
    monkeypatch.setattr("edgemeter.collector.sql_views.fill.BATCH_ROWS", 3)
    for first in range(1, 40, 2):
        with open_ledger(lab) as ledger:
            ledger.commit([arrival(run) for run in runs_of(range(first, first + 2))])
    assert filled(lab)
    assert seqs(reader) == list(range(1, 41))


def test_who_was_overtaken_adds_nothing(lab, reader):
    """One that was frozen between reading and writing: another one has moved the position, and the run that was withdrawn stays away."""
    with open_ledger(lab) as ledger:
        ledger.commit([arrival(run) for run in runs_of(range(1, 6))])
    with contextlib.closing(ViewsFiller(lab)) as frozen:
        (batch,) = frozen._batches(0)
        assert filled(lab)
        with open_ledger(lab) as ledger:
            LedgerRuns(ledger).withdraw("run-3", "deleted", "me", "")
        assert not frozen._add(0, *batch)
    assert seqs(reader) == [1, 2, 4, 5]


def test_what_leaves_the_ledger_leaves_the_views(lab, reader):
    """Excluded, included again, deleted, and removed by retention, at once and without a filler."""
    filled(lab, runs_of(range(1, 6)))
    with open_ledger(lab) as ledger:
        history = LedgerRuns(ledger)
        history.withdraw("run-2", "excluded", "me", "")
        history.withdraw("run-3", "deleted", "me", "")
        assert seqs(reader) == [1, 4, 5]
        history.include("run-2", "me", "")
        assert filled(lab)
        assert seqs(reader) == [1, 2, 4, 5]
        assert ledger.query("SELECT count(*) FROM sql_runs") == [(4,)]
        assert ledger.forget(Retention(records_days=1), 10**18).records == 4
        assert ledger.query("SELECT count(*) FROM sql_runs") == [(0,)]


def test_a_run_that_goes_between_reading_and_writing_is_not_added(lab, reader):
    """The server refuses a row of figures without its run; the next pass has the others."""
    with open_ledger(lab) as ledger:
        ledger.commit([arrival(run) for run in runs_of(range(1, 6))])
        with contextlib.closing(ViewsFiller(lab)) as filler:
            (batch,) = filler._batches(0)
            LedgerRuns(ledger).withdraw("run-3", "deleted", "me", "")
            with pytest.raises(Exception, match="try again"):
                filler._add(0, *batch)
            filler._contexts.clear()
            assert filler.fill()
    assert seqs(reader) == [1, 2, 4, 5]


def test_hostile_texts_and_numbers_stop_nothing(lab, reader):
    """NUL, quotes, braces and backslashes in free fields, the largest numbers, a time that cannot be: each run has its row."""
    (tensor,) = make_record().inputs
    nasty = "a\0b'\"{},\\n %s ? ü\x01"
    shape = {"inputs": (msgspec.structs.replace(tensor, shape=(2**40, 2**40)),)}
    changes = [
        {"environment": make_environment(board=nasty, kernel=nasty), "suite": nasty, "case": nasty},
        {"runtime": make_runtime(backend=nasty, options={nasty: nasty})},
        {"precision": nasty.replace("\0", "")},
        shape,
        {"generation": make_generation(prompt_tokens=2**53 - 1, output_tokens=2**53 - 1)},
        {"started_at_ns": 2**62},
        {"started_at_ns": 0},
    ]
    received_ns = 1_760_000_000_000_000_000
    runs = [make_record(**({"id": f"run-{seq}", "session": 5, "seq": seq} | change)) for seq, change in enumerate(changes, 1)]
    assert filled(lab, runs, received_ns=received_ns)
    rows = reader.query(ROWS)
    assert [row["seq"] for row in rows] == [run.seq for run in runs]
    assert (rows[0]["board"], rows[0]["case_name"]) == (nasty.replace("\0", "\ufffd"),) * 2
    assert rows[3]["input_values"] is None
    assert (rows[4]["prompt_tokens"], rows[4]["output_tokens"]) == (2**53 - 1,) * 2
    assert rows[5]["time"] == rows[6]["time"] == datetime.fromtimestamp(received_ns // 10**9, timezone.utc)


def test_the_state_of_a_device_is_that_of_the_points(lab, reader):
    """Every field of presence and health, and no device that is gone."""
    reported = (DeviceState(state="lost", session=9), make_health(agent="0.1\0"))
    assert filled(lab, (), [PresenceChange("lab", "pi-1", message, 5) for message in reported])
    (row,) = reader.query("SELECT * FROM edgemeter_views.device_state")
    with open_ledger(lab) as ledger:
        (device,) = ledger.devices()
        expected = {field.name: field.value(device, time.time_ns()) for field in DEVICE_FIELDS} | {"agent": "0.1\ufffd"}
        assert {name: row[name] for name in expected} == expected
        assert (row["fleet"], row["device"], row["state"], row["attention"]) == ("lab", "pi-1", "lost", "its disk is full: 10 bytes free")
        with ledger.writing() as statements:
            statements.execute("DELETE FROM presence")
    assert reader.query("SELECT * FROM edgemeter_views.device_state") == []


def test_the_lag_is_of_every_sink_and_of_the_views_themselves(lab, reader):
    """Rows that wait, and since when the oldest does."""
    filled(lab, runs_of((1, 2)))
    received_ns = time.time_ns() - 60 * 10**9
    with open_ledger(lab) as ledger:
        ledger.commit([arrival(run, received_ns) for run in runs_of((3, 4, 5))])
        ledger.advance("influx x", 5)
    rows = {row["sink"]: row for row in reader.query("SELECT * FROM edgemeter_views.sink_lag")}
    assert (rows["influx x"]["lag_rows"], rows["influx x"]["lag_s"]) == (0, 0)
    assert (rows[position_name()]["lag_rows"], rows[position_name()]["ledger_row"]) == (3, 5)
    assert 60 <= rows[position_name()]["lag_s"] < 600


def test_changes_are_written_in_place_of_those_before(lab, reader, tmp_path, monkeypatch):
    """By `collector changes --views`; without it nothing is written, and a file has no views."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path))
    runs = [
        make_record(
            id=f"run-{seq}", session=5, seq=seq, started_at_ns=seq * 10**18 + 7 * 10**17, environment=make_environment(firmware=f"f{seq}")
        )
        for seq in (1, 2)
    ]
    filled(lab, runs, received_ns=7)
    changes = ("collector", "changes", "--ledger", lab.text)
    query = "SELECT device, kind, text FROM edgemeter_views.changes"
    assert CliRunner().invoke(cli, changes).exit_code == 0
    assert reader.query(query) == []
    for _ in range(2):
        assert CliRunner().invoke(cli, [*changes, "--views"]).exit_code == 0
        assert reader.query(query) == [{"device": runs[0].device, "kind": "firmware", "text": "firmware: f1 to f2"}]
    refused = CliRunner().invoke(cli, ["collector", "changes", "--ledger", str(tmp_path / "a.sqlite"), "--views"])
    assert (refused.exit_code, "PostgreSQL" in refused.output) == (2, True)


def test_a_reader_of_the_views_writes_nothing(lab, reader):
    """Neither a view nor a table, and it makes none in their schema."""
    filled(lab, runs_of((1,)))
    for statement in (
        "DELETE FROM edgemeter_views.run_figures", "UPDATE edgemeter_views.changes SET text = ''", "DELETE FROM edgemeter_views.changes",
        "UPDATE edgemeter_views.sink_lag SET sink = ''", "DELETE FROM sql_runs", "INSERT INTO sql_contexts VALUES (1)",
        "CREATE TABLE edgemeter_views.x (y int)", "DROP VIEW edgemeter_views.run_figures", "UPDATE sinks SET position = 0",
    ):  # fmt: skip
        with table_row(statement), pytest.raises(psycopg.Error, match=r"permission denied|must be owner|cannot"):
            reader.query(statement)
    assert seqs(reader) == [1]


def test_a_collector_without_further_rights_fills_them(postgresql_server, lab, reader):
    """The role edgemeter_write is enough, and removes none of them."""
    postgresql_server.sql("DROP ROLE IF EXISTS views_writer")
    postgresql_server.sql("CREATE ROLE views_writer LOGIN IN ROLE edgemeter_write")
    writer = type(lab)(lab.text.replace("edgemeter@", "views_writer@"))
    reported = [PresenceChange("lab", "pi-1", DeviceState(state="online", session=1), 5)]
    assert filled(writer, runs_of((1, 2)), reported)
    assert filled(writer, runs_of((2, 3)), reported)
    assert seqs(reader) == [1, 2, 3]
    assert len(reader.query("SELECT 1 FROM edgemeter_views.device_state")) == 1
    with psycopg.connect(writer.connection) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("DELETE FROM sql_runs")


@pytest.mark.slow
def test_two_collectors_one_killed_miss_no_run_and_have_none_twice(lab, reader):
    """One has the lease, is killed with SIGKILL while records come, and the other one goes on; then a third, and the second dies."""
    keepers = [started_keeper(lab) for _ in range(2)]
    holder = "SELECT owner FROM leases WHERE name = 'sql views'"
    try:
        with open_ledger(lab) as ledger:
            for turn in range(2):
                first = 1 + turn * 2000
                for seq in range(first, first + 1000, 50):
                    ledger.commit([arrival(run) for run in runs_of(range(seq, seq + 50))])
                assert wait_until(lambda expected=first + 999: len(seqs(reader)) >= expected // 2, 60)
                before = ledger.query(holder)
                for seq in range(first + 1000, first + 2000, 50):
                    ledger.commit([arrival(run) for run in runs_of(range(seq, seq + 50))])
                keepers[turn].send_signal(signal.SIGKILL)
                keepers.append(started_keeper(lab))
                assert wait_until(lambda expected=first + 1999: seqs(reader) == list(range(1, expected + 1)), 90)
                assert before
    finally:
        for keeper in keepers:
            keeper.kill()
            keeper.wait()
            keeper.stdin.close()


def started_keeper(lab):
    """Return the process that a collector starts beside itself."""
    keeper = subprocess.Popen([sys.executable, "-m", "edgemeter.collector.index.keeper"], stdin=subprocess.PIPE)
    keeper.stdin.write(f"{lab.text}\n".encode())
    keeper.stdin.flush()
    return keeper


def test_a_record_that_cannot_be_read_has_no_row_and_is_passed(lab, reader, caplog):
    """Also where it is the newest one: it is read and named once."""
    with open_ledger(lab) as ledger:
        for run in runs_of((1, 2, 3)):
            entry = arrival(run)
            text = entry.payload if run.seq == 1 else msgspec.json.encode(msgspec.json.decode(entry.payload) | {"seed": 2**64})
            ledger.commit([entry._replace(payload=text)])
        with contextlib.closing(ViewsFiller(lab)) as filler:
            assert filler.fill()
            assert filler.fill()
        assert ledger.positions()[position_name()] == ledger.last_row()
    assert seqs(reader) == [1]
    assert [caplog.text.count(f"run run-{seq} of device 'pi-1'") for seq in (2, 3)] == [1, 1]
