"""Test the runs of a case as columns.

They equal those of the records, and are chosen as single runs would be.
"""

import math

from edgemeter.agent.contract.run_figures import VALUE_COLUMNS, places_not_measured, values_of
from edgemeter.agent.contract.run_subject import subject_of
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.agent.verdict.judge import counted
from edgemeter.agent.verdict.siblings import judged_together
from edgemeter.collector.ledgers.place import open_ledger
from edgemeter.collector.runs.contents import oldest_first
from edgemeter.collector.runs.store import LedgerStore, MemoryStore
from tests.fixtures.comparison_factory import make_run
from tests.fixtures.ledgers import arrival, ledger_place
from tests.fixtures.random_records import random_record
from tests.fixtures.record_factory import make_energy, violating
from tests.fixtures.rows import table_row

__all__ = ["ledger_place"]
METERS = (make_energy(), make_energy(sensor="fnirsi"), None)


def case_of(store):
    return store.runs_of(store.subject_runs())


def test_columns_hold_what_the_records_have():
    """Random records give every figure, verdict and subject, in the order of their start."""
    records = oldest_first(random_record(seed) for seed in range(60))
    for run, record in zip(
        MemoryStore(records).select("TRUE"), judged_together(records), strict=True
    ):
        with table_row(record.id):
            refused = places_not_measured(record)
            figures = [
                None if index in refused or math.isnan(value) else value
                for index, value in enumerate(values_of(record))
            ]
            assert (run.id, run.values, run.verdict, run.subject) == (
                record.id,
                tuple(figures),
                record.verdict,
                subject_of(record),
            )
            assert (run.started_at_ns, run.repeat, run.queries) == (
                record.started_at_ns,
                record.repeat,
                record.latency.count,
            )


def test_the_runs_that_count_are_those_that_single_runs_would_give():
    """Three ok runs count, or all; of two meters the newest one, which the newest run may lack."""
    busy = violating("disturbed", "busy-machine")
    for verdicts in ([None] * 5, [None, busy, None, None, busy], [busy, None, None, busy, busy]):
        for meters in ((0, 0, 0, 0, 0), (0, 1, 0, 1, 2), (1, 1, 0, 0, 0), (2, 2, 2, 2, 2)):
            with table_row(f"{verdicts} {meters}"):
                case_runs = [
                    make_run(
                        id=str(index),
                        energy=METERS[meter],
                        started_at_ns=10**18 + index,
                        **({"verdict": verdict} if verdict else {}),
                    )
                    for index, (verdict, meter) in enumerate(zip(verdicts, meters, strict=True))
                ]
                runs = case_of(MemoryStore(case_runs))
                newest = next((meter for meter in reversed(meters) if meter != 2), None)
                assert runs.counted().values_of("id") == [run.id for run in counted(case_runs)]
                assert runs.of_newest_kind("energy").values_of("id") == [
                    str(index) for index, meter in enumerate(meters) if meter == newest
                ]
                assert runs.verdicts() == tuple(run.verdict for run in case_runs)


def test_a_run_that_came_twice_is_there_once(tmp_path):
    """The run came again under another number; invalid runs cannot be compared."""
    path = tmp_path / "ledger.sqlite"
    runs = [
        make_run(id=name, session=1, seq=seq, started_at_ns=10**18 + seq)
        for seq, name in enumerate("abcb", 1)
    ]
    runs.append(make_run(id="d", session=1, seq=9, verdict=violating("invalid", "throttled")))
    with SqliteLedger(path) as ledger:
        ledger.commit([arrival(run, run.started_at_ns) for run in runs])
    assert case_of(LedgerStore(path)).usable().values_of("id") == ["a", "b", "c"]


def test_every_kind_of_ledger_gives_the_same_columns(ledger_place):
    """Verdicts, siblings and absent values are those of records in memory."""
    records = [
        make_run(
            id=f"a{seq}", session=3, seq=seq, session_started_at_ns=5, p50_ms=10.0 + 9 * (seq == 4)
        )
        for seq in range(1, 7)
    ]
    records.append(
        make_run(id="b", session=3, seq=9, energy=None, verdict=violating("invalid", "throttled"))
    )
    with open_ledger(ledger_place) as ledger:
        ledger.commit([arrival(record, record.started_at_ns) for record in records])
    both = [
        [run._replace(row=0, session=0, seq=0) for run in store.select("TRUE")]
        for store in (LedgerStore(ledger_place), MemoryStore(records))
    ]
    assert both[0] == both[1]
    assert [run.verdict.state for run in both[0]] == ["ok"] * 3 + ["disturbed"] + ["ok"] * 2 + [
        "invalid"
    ]


def test_a_figure_that_no_run_has_is_absent():
    """The figure is absent from all columns, in each run."""
    (run,) = MemoryStore([make_run(energy=None)]).select("TRUE")
    assert {
        name for name in VALUE_COLUMNS if name.startswith("energy") and run.value(name) is not None
    } == set()
    assert case_of(MemoryStore([make_run(energy=None)])).highest("energy_gross_mj") is None
