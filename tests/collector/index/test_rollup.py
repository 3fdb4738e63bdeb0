"""The roll-up gives what the runs give: identical documents, whatever came, went, was damaged or is odd."""

import dataclasses
import sqlite3
from contextlib import closing

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import record, record_conditions
from edgemeter.agent.ledger.chunks import Arrival
from edgemeter.agent.ledger.quarantine import Rejection
from edgemeter.agent.ledger.retention import Retention
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.compare import columns, comparison, summary
from edgemeter.collector.index import index_file, refresh, rollup, stored_summaries
from edgemeter.collector.runs.store import RunDocument, open_store
from edgemeter.collector.show.compare_table import terminal_columns
from edgemeter.collector.show.wording import Notes
from tests.fixtures.comparison_factory import document, make_reference, make_run, no_energy
from tests.fixtures.fleet_ledger import Fleet, fleet_records, write_ledger
from tests.fixtures.level_factory import level_runs, stepped_ms
from tests.fixtures.random_records import random_record
from tests.fixtures.rows import table_row

DAY_NS = 86_400 * 10**9


def keep(path, runs, received_ns=7):
    """Put runs into a ledger, numbered where they are not."""
    with SqliteLedger(path) as ledger:
        first = ledger.last_row() + 1
        numbered = [run if run.seq else msgspec.structs.replace(run, session=1, seq=first + index) for index, run in enumerate(runs)]
        ledger.commit([Arrival(run, record.encode(run), "t", received_ns) for run in numbered])


def by_runs(path, reference="reference"):
    """Return the document of a comparison that read every run."""
    return columns.to_json(comparison.compare(open_store(str(path)).contents(), reference))


def by_rollup(path, reference="reference"):
    """Return the document of a comparison by the roll-up, which is the same where what is not asked for is not read."""
    complete, heads = (rollup.rolled_up(open_store(str(path)), worth_runs=0, in_full=in_full) for in_full in (True, False))
    assert complete is not None
    document = columns.to_json(rollup.compare_rolled_up(complete, reference))
    assert document == columns.to_json(rollup.compare_rolled_up(heads, reference))
    return document


@pytest.mark.slow
def test_a_fleet_compared_both_ways_is_one_document(path):
    """Suspect and invalid runs, a change of firmware, two runtimes, days in between."""
    write_ledger(path, Fleet(devices=6, days=30, cases=4))
    assert by_rollup(path) == by_runs(path)
    assert by_rollup(path, "board-0003") == by_runs(path, "board-0003")


def test_cases_are_paired_without_reading_a_run(path, monkeypatch):
    """Of thousands of cases the summaries are enough: no run can be read, and every case has its reference."""
    write_ledger(path, Fleet(devices=4, days=3, cases=4))
    rolled_up = rollup.rolled_up(open_store(str(path)), worth_runs=0, in_full=False)
    monkeypatch.delattr(stored_summaries.PartsOfCase, "__getitem__")
    rows = rollup.compare_rolled_up(rolled_up, "reference").rows
    assert len(rows) == 16
    assert sum(row.is_reference for row in rows) == 4


def test_what_a_table_shows_is_read_at_once(path):
    """The index is opened once for all rows, and the table is that of the runs."""
    write_ledger(path, Fleet(devices=4, days=3, cases=4))
    store = open_store(str(path))
    rows = rollup.compare_rolled_up(rollup.rolled_up(store, worth_runs=0, in_full=False), "reference").rows
    opened = []
    for compared in rows:
        compared.case.runs.opened = counted(compared.case.runs.opened, opened)
    stored_summaries.read_rests(row.case for row in rows)
    assert printed(rows) == printed(comparison.compare(store.contents(), "reference").rows)
    assert len(opened) == 1


def counted(opener, opened):
    """Return what opens as `opener` does, and tells `opened`."""
    return lambda: opened.append(1) or opener()


def printed(rows):
    """Return the cells of the table of these rows."""
    return [(column.heading, column.cells) for column in terminal_columns(rows, Notes())]


@pytest.mark.slow
@pytest.mark.parametrize("count", [100, pytest.param(300, marks=pytest.mark.slow)])
def test_records_of_any_content_compared_both_ways_are_one_document(path, count):
    """Every text and part present, absent and odd: nothing that a comparison reads is left out."""
    runs = []
    for seed in range(count):
        run = random_record(seed, role=("reference", "device")[seed % 2], provenance={"latency": "measured"}, session=1 + seed % 3)
        sane = {
            name: getattr(make_run(), name)
            for name in ("latency", "throughput_per_s", "cold_start", "memory", "preprocess", "postprocess", "energy")
        }
        inner = {"model": make_run().model, "dataset": make_run().dataset, "inputs": (), "scenario": "single_stream", "precision": "fp32"}
        # Many cases of several runs, all of them comparable.
        runs.append(msgspec.structs.replace(run, **inner, **sane, runtime=make_run().runtime, batch=1, load=None, device=f"d{seed % 7}"))
    keep(path, runs)
    assert by_rollup(path) == by_runs(path)
    assert len(msgspec.json.decode(by_runs(path))["rows"]) > 5


def test_runs_that_differ_in_everything_that_matters_are_distinguished_as_before(path):
    """Ruined accuracy, absent energy, other data, estimates, replays, and two cases that began in the same nanosecond."""
    estimated = {"latency": "measured", "energy": "estimated"}
    runs = [make_reference(), make_run(ap=0.1), make_run("pi-2", **no_energy()), make_run("pi-3", data="0b" * 32)]
    runs += [make_run("pi-4", provenance=estimated), make_run("pi-4", p50_ms=12.0, provenance=estimated), make_run("pi-5", p50_ms=None)]
    runs += [make_run("pi-6", provenance={"latency": "replayed"}), make_run("pi-7", provenance={"latency": "published"})]
    runs += [
        make_run("pi-8", verdict=record_conditions.Verdict(state="invalid", reasons=("gate: too low",))),
        make_run("pi-9", model="another"),
    ]
    keep(path, runs)
    assert by_rollup(path) == by_runs(path)


def test_what_comes_later_is_taken_in_at_the_next_query(path):
    """Also when it is older than all that was there: an outbox was cut off."""
    runs = list(fleet_records(Fleet(devices=3, days=9, cases=2)))
    order = [*runs[20:40], *runs[:20], *runs[40:]]
    for start in range(0, len(order), 9):
        keep(path, order[start : start + 9])
        if start == 0:
            continue
        assert by_rollup(path) == by_runs(path)


def test_only_what_changed_is_summed_up_again(path, monkeypatch):
    """One new run costs one case."""
    write_ledger(path, Fleet(devices=4, days=3, cases=2))
    by_rollup(path)
    summed = []
    monkeypatch.setattr(stored_summaries, "summarise", lambda case: summed.append(case.key.device) or summary.summarise(case))
    keep(path, [make_run("board-0001", session=77, seq=1)])
    by_rollup(path)
    assert summed == ["board-0001"]


def test_what_was_forgotten_because_of_its_age_is_forgotten_here_too(path):
    """The oldest rows go; a case of which nothing is left is gone."""
    keep(path, [make_run("pi-old"), make_run("pi-1", p50_ms=5.0)], received_ns=0)
    keep(path, [make_reference(), make_run("pi-1")], received_ns=100 * DAY_NS)
    before = by_rollup(path)
    with SqliteLedger(path) as ledger:
        assert ledger.forget(Retention(records_days=50), 101 * DAY_NS).records == 2
    after = by_rollup(path)
    assert after == by_runs(path) != before
    assert "pi-old" not in after


def test_quarantine_and_unusable_runs_are_left_out_with_the_same_words(path):
    """A record that was refused is named; what is no record is counted."""
    keep(path, [make_reference(), make_run(), make_run(verdict=record_conditions.Verdict(state="invalid", reasons=("odd: 1",)))])
    refused = [Rejection("t", record.encode(make_run()), "too new", 7), Rejection("t", b"junk", "no record", 7)]
    with SqliteLedger(path) as ledger:
        ledger.commit([], refused)
    assert by_rollup(path) == by_runs(path)
    assert "quarantine" in by_rollup(path)


def test_a_run_that_is_there_twice_is_read_from_the_runs(path):
    """Which of the two counts depends on what came before: the roll-up does not guess."""
    keep(path, [make_reference(), make_run(id="twice"), make_run(id="twice", p50_ms=11.0)])
    assert rollup.rolled_up(open_store(str(path)), worth_runs=0) is None


def test_a_damaged_rollup_is_made_again(path):
    """A foreign file, an empty one, and one whose pages were overwritten: it holds nothing that the ledger does not."""
    write_ledger(path, Fleet(devices=3, days=40, cases=2))
    before = by_rollup(path)
    file = index_file.index_path(path)
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    content = bytearray(file.read_bytes())
    content[5000:-100] = b"\xff" * (len(content) - 5100)
    for damaged in (content, b"no database at all", b""):
        with table_row(bytes(damaged[:20])):
            if damaged is not content:
                index_file.remove_index(file)
            file.write_bytes(damaged)
            assert by_rollup(path) == before


def test_another_programs_file_of_that_name_is_left_alone(path):
    """It is not ours to delete; the runs are read."""
    keep(path, [make_reference(), make_run()])
    with sqlite3.connect(index_file.index_path(path)) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    before = index_file.index_path(path).read_bytes()
    assert rollup.rolled_up(open_store(str(path)), worth_runs=0) is None
    assert index_file.index_path(path).read_bytes() == before


def test_figures_of_other_code_are_computed_again(path, monkeypatch):
    """After an update of edgemeter no old figure is shown."""
    keep(path, [make_reference(), make_run()])
    before = by_rollup(path)
    with sqlite3.connect(index_file.index_path(path)) as connection:
        connection.execute("UPDATE summaries SET summary = x'00'")
    connection.close()
    monkeypatch.setattr(refresh, "code_hash", lambda: "newer")
    assert by_rollup(path) == before


def test_the_runs_of_a_summary_are_loaded_when_read(path):
    """Their number is known before, their figures are those of the ledger."""
    write_ledger(path, Fleet(devices=2, days=5, cases=2))
    rolled_up = rollup.rolled_up(open_store(str(path)), worth_runs=0)
    contents = open_store(str(path)).contents()
    by_id = {run.id: run for run in contents.runs}
    for of_case in rolled_up.summaries:
        assert len(of_case.runs) == len(of_case.run_ids)
        assert [run.id for run in of_case.runs] == list(of_case.run_ids)
        assert all(run.latency == by_id[run.id].latency and run.energy == by_id[run.id].energy for run in of_case.runs)
        assert of_case.runs[0].started_at_ns == of_case.around.first_started_at_ns
    unusable = {refused.run.id for refused in rolled_up.unusable()}
    assert unusable == by_id.keys() - {run for summary in rolled_up.summaries for run in summary.run_ids}


def test_small_ledgers_and_other_stores_have_no_rollup(tmp_path):
    """A file beside a ledger of ten runs would only be litter."""
    path, printed = tmp_path / "ledger.sqlite", tmp_path / "runs.json"
    keep(path, [make_reference(), make_run()])
    printed.write_bytes(document(make_run()))
    assert rollup.rolled_up(open_store(str(path))) is None
    assert rollup.rolled_up(RunDocument(printed)) is None
    assert not index_file.index_path(path).exists()


def test_an_unknown_reference_is_refused_in_the_same_words(path):
    """The devices and roles that there are, also those of which no run can be used."""
    keep(path, [make_reference(), make_run("pi-bad", verdict=record_conditions.Verdict(state="invalid", reasons=("odd: 1",)))])
    messages = []
    for look in (by_runs, by_rollup):
        with pytest.raises(ConfigError) as refused:
            look(path, "nobody")
        messages.append(str(refused.value))
    assert messages[0] == messages[1]
    assert "pi-bad" in messages[0]


def test_every_part_of_a_summary_survives_being_kept():
    """Also one that somebody adds later: the roll-up keeps whatever a summary holds."""
    run = msgspec.structs.replace(make_run(), samples=())
    (case,), _ = comparison.group_cases([run])
    packed = dataclasses.replace(summary.summarise(case), runs=(), run_ids=())
    back = msgspec.msgpack.decode(msgspec.msgpack.encode(packed), type=type(packed))
    assert dataclasses.replace(back, runs=(), run_ids=()) == packed


def test_a_case_whose_level_changed_is_one_document_both_ways(path):
    """Of the current level, and of all days; the runs of the summary are those that count."""
    keep(path, level_runs(stepped_ms(60, 40, 1.1)) + level_runs(stepped_ms(60, 60, 1.0, level=2.0), device="server-1", role="reference"))
    assert by_rollup(path) == by_runs(path)
    (row,) = (row for row in msgspec.json.decode(by_rollup(path))["rows"] if row["device"] == "pi-1")
    assert (row["runs"], row["earlier_runs"]) == (20, 40)
    assert row["latency_p50_ms"] == pytest.approx(11, rel=0.01)
    store = open_store(str(path))
    all_days = rollup.compare_rolled_up(rollup.rolled_up(store, worth_runs=0, days="all"), "reference")
    assert columns.to_json(all_days) == columns.to_json(comparison.compare(store.contents(), "reference", days="all"))
    (case,) = (of_case for of_case in rollup.rolled_up(store, worth_runs=0).summaries if of_case.key.device == "pi-1")
    assert [run.id for run in case.runs] == [f"pi-1-{number}" for number in range(40, 60)]


def test_the_few_runs_that_cannot_be_compared_are_found_without_reading_the_others(tmp_path):
    """SQLite's plan says so: of a million runs, reading all of them took half of a comparison."""
    keep(tmp_path / "ledger.sqlite", [make_run()])
    rollup.rolled_up(open_store(str(tmp_path / "ledger.sqlite")), worth_runs=0)
    with closing(index_file.connect_index(index_file.index_path(tmp_path / "ledger.sqlite"))) as connection:
        first, *_ = connection.execute(f"EXPLAIN QUERY PLAN SELECT id, reason {rollup._UNUSABLE.format('')}").fetchall()
    assert first[3] == "SCAN measured USING INDEX unusable_runs"
