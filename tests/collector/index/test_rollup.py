"""The roll-up gives what the runs give: identical documents, whatever came, went, was damaged or is odd."""

import dataclasses

import msgspec
import pytest

from edgemeter.agent.contract import record
from edgemeter.agent.ledger.chunks import Arrival
from edgemeter.agent.ledger.quarantine import Rejection
from edgemeter.agent.ledger.retention import Retention
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.compare import columns, comparison, summary
from edgemeter.collector.index import index_file, rollup, stored_summaries
from edgemeter.collector.runs.store import RunDocument, open_store
from tests.fixtures.comparison_factory import document, in_rounds, make_reference, make_run
from tests.fixtures.fleet_ledger import Fleet, fleet_records, write_ledger
from tests.fixtures.random_records import random_record
from tests.fixtures.record_factory import violating

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


def test_a_fleet_compared_both_ways_is_one_document(path):
    """Disturbed and invalid runs, a change of firmware, two runtimes, days in between."""
    write_ledger(path, Fleet(devices=4, days=8, cases=2))
    assert by_rollup(path) == by_runs(path)
    assert by_rollup(path, "board-0003") == by_runs(path, "board-0003")


def test_pairs_of_a_session_are_pairs_by_the_rollup_too(path):
    """The levels of the rounds differ by 30%, the two cases by 5% in each round."""
    levels = (1.0, 1.1, 1.2, 1.3)
    keep(
        path,
        in_rounds(
            [make_run(p50_ms=2.1 * level) for level in levels], [make_reference(device="pi-1", p50_ms=2 * level) for level in levels]
        ),
    )
    assert by_rollup(path) == by_runs(path)
    (row,) = (row for row in comparison.compare(open_store(str(path)).contents(), "reference").rows if not row.is_reference)
    decision = row.decisions["latency_p50_ms"]
    assert (decision.outcome, decision.evidence.unit, decision.evidence.units) == ("worse", "pair", 4)


def test_a_run_that_lies_apart_from_its_siblings_does_not_count_by_the_rollup_either(path):
    """Nothing was seen that disturbed it."""
    keep(path, in_rounds([make_run(p50_ms=p50_ms) for p50_ms in (10.0, 15.0, 10.1, 10.2)], [make_reference(p50_ms=9.0) for _ in range(3)]))
    assert by_rollup(path) == by_runs(path)
    assert '"not_counted_runs": 1' in by_runs(path).replace('":1', '": 1')


def test_the_values_of_runs_are_not_read_where_runs_are_in_no_pairs(path, monkeypatch):
    """Of two devices with many days each the summaries are enough."""
    write_ledger(path, Fleet(devices=4, days=8, cases=2))
    monkeypatch.setattr(stored_summaries.StoredValues, "of", lambda *_: pytest.fail("read"))
    rows = rollup.compare_rolled_up(rollup.rolled_up(open_store(str(path)), worth_runs=0), "reference").rows
    assert {decision.evidence.unit for row in rows for decision in row.decisions.values()} >= {"day"}


def test_records_of_any_content_compared_both_ways_are_one_document(path):
    """Every text and part present, absent and odd: nothing that a comparison reads is left out."""
    runs = []
    for seed in range(60):
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


def test_what_comes_later_is_taken_in_at_the_next_query(path):
    """Also when it is older than all that was there: an outbox was cut off."""
    runs = list(fleet_records(Fleet(devices=3, days=9, cases=2)))
    order = [*runs[20:40], *runs[:20], *runs[40:]]
    for start in range(0, len(order), 18):
        keep(path, order[start : start + 18])
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
    keep(path, [make_reference(), make_run(), make_run(verdict=violating("invalid", "odd"))])
    refused = [Rejection("t", record.encode(make_run()), "too new", 7), Rejection("t", b"junk", "no record", 7)]
    with SqliteLedger(path) as ledger:
        ledger.commit([], refused)
    assert by_rollup(path) == by_runs(path)
    assert "quarantine" in by_rollup(path)


def test_small_ledgers_and_other_stores_have_no_rollup(tmp_path):
    """A file beside a ledger of ten runs would only be litter."""
    path, printed = tmp_path / "ledger.sqlite", tmp_path / "runs.json"
    keep(path, [make_reference(), make_run()])
    printed.write_bytes(document(make_run()))
    assert rollup.rolled_up(open_store(str(path))) is None
    assert rollup.rolled_up(RunDocument(printed)) is None
    assert not index_file.index_path(path).exists()


def test_every_part_of_a_summary_survives_being_kept():
    """Also one that somebody adds later: the roll-up keeps whatever a summary holds."""
    run = msgspec.structs.replace(make_run(), samples=())
    (case,), _ = comparison.group_cases([run])
    packed = dataclasses.replace(summary.summarise(case), runs=(), run_ids=())
    back = msgspec.msgpack.decode(msgspec.msgpack.encode(packed), type=type(packed))
    assert dataclasses.replace(back, runs=(), run_ids=()) == packed
