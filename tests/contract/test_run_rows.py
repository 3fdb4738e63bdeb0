"""Tests that the rows of runs have the figures of their records.

A SQLite file and a PostgreSQL database behave alike.
"""

import math
import random
import zlib

import msgspec
import pytest

from edgemeter.agent.contract.case_identity import key_of
from edgemeter.agent.contract.energy_provenance import not_measured
from edgemeter.agent.contract.figures import FIGURES, field_name, reader
from edgemeter.agent.contract.record_conditions import Condition
from edgemeter.agent.contract.record_figures import (
    ColdStart,
    Load,
    Memory,
    Neighbour,
    Stage,
    Together,
)
from edgemeter.agent.contract.run_figures import VALUE_COLUMNS
from edgemeter.agent.contract.run_subject import RunSubject
from edgemeter.agent.contract.series import Fingerprint, series_of
from edgemeter.agent.ledger.run_history import LedgerRuns
from edgemeter.agent.ledger.run_row import (
    ROWS_VERSION,
    RUN_COLUMNS,
    RUNS_SCHEMA,
    SIBLINGS,
    SUBJECTS_SCHEMA,
    row_of,
)
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.agent.verdict.siblings import apart_among, judged_together
from tests.fixtures.comparison_factory import in_rounds, make_run
from tests.fixtures.figure_bounds import PATHS, bounds_of
from tests.fixtures.ledgers import arrival, arrived_batch
from tests.fixtures.record_factory import (
    STARTED_AT_NS,
    make_accuracy,
    make_energy,
    make_environment,
    make_generation,
    make_generation_energy,
    make_latency,
    make_record,
    make_steady,
    violating,
)  # fmt: skip

DAY_NS = 86_400 * 10**9
RECORDS = [
    make_record(),
    make_record(energy=None, accuracy=None, preprocess=None, postprocess=None),
    make_record(steady=make_steady(), accuracy=make_accuracy(low=None, high=None)),
    make_record(generation=make_generation(energy=make_generation_energy())),
    make_record(provenance={"latency": "measured", "energy": "published"}),
    make_record(provenance={"latency": "replayed"}),
    make_record(provenance={}),
    make_record(verdict=violating("invalid", "swapping")),
    make_record(environment=make_environment(board=None), clock_synchronised=False, job="night"),
]
# With them every column has a value.
FULL_RECORDS = [
    *RECORDS,
    make_record(
        generation=make_generation(
            energy=make_generation_energy(), output_tokens_per_s=95.0, user_tokens_per_s=90.5
        ),
        accuracy=make_accuracy(metric="exact_match", value=0.25, images=16, low=0.125, high=0.5),
        load=Load(samples=64, target_per_s=4.0),
        latency=make_latency(p99_ms=18.5),
        cold_start=ColdStart(
            process_ms=450.0, import_ms=120.0, load_ms=35.5, first_ms=18.0, compile_ms=900.0
        ),
        memory=Memory(peak_mb=92.5, loaded_mb=80.0, grown_mb=1.5),
        energy=make_energy(after_load_mj=4.0),
        conditions=(
            Condition(
                when="before", temperatures_c={"cpu": 48.5, "gpu": 51.0}, under_voltage_now=False
            ),
            Condition(when="during", temperatures_c={"cpu": 63.25}, throttled_now=True),
        ),
        session_started_at_ns=STARTED_AT_NS,
    ),
    make_record(
        steady=make_steady(jitter=Stage(p50_ms=0.5, p90_ms=1.25)),
        together=Together(
            neighbours=(Neighbour(model="llm", sha256="b2", runtime="llama", threads=1),),
            slow_down_ratio=1.5,
        ),
        started_at_ns=STARTED_AT_NS + 9 * DAY_NS,
    ),
]


def numbered(runs, first=1):
    return [
        msgspec.structs.replace(run, id=f"run-{seq:04}", session=1, seq=seq)
        for seq, run in enumerate(runs, first)
    ]


@pytest.mark.parametrize("is_batch", [False, True])
def test_a_row_has_every_figure_that_was_measured_and_its_bounds(ledger, is_batch):
    """A row has each measured figure of its record, but no estimated or published one."""
    runs = numbered(RECORDS)
    ledger.commit([arrival(run, STARTED_AT_NS) for run in runs]) if not is_batch else ledger.commit(
        (), (), (), [arrived_batch(runs)]
    )
    # The names are our own.
    rows = ledger.query(f"SELECT {', '.join(VALUE_COLUMNS)} FROM runs ORDER BY row")  # noqa: S608
    for run, row in zip(runs, rows, strict=True):
        values = dict(zip(VALUE_COLUMNS, row, strict=True))
        for entry in FIGURES:
            is_measured = not any(not_measured(run, group) for group in entry.provenance_groups)
            bounds = [path for path in (entry.low, entry.high, entry.u) if path]
            expected = {entry.name: entry.value(run)} | {
                field_name(path): reader(path)(run) for path in bounds
            }
            assert {name: values.pop(name) for name in expected} == (
                expected if is_measured else dict.fromkeys(expected)
            )
        assert values == {}


def test_the_version_of_the_rows_is_that_of_what_they_hold():
    """Another way to work out a figure, or other bounds, requires another version of the rows.

    So does another column or fact.
    """
    rows = [row_of(run, STARTED_AT_NS + DAY_NS) for run in numbered(FULL_RECORDS)]
    written = dict(zip(RUN_COLUMNS, zip(*(row.values for row in rows), strict=True), strict=False))
    assert [
        name
        for name, values in written.items()
        if all(isinstance(value, float) and math.isnan(value) for value in values)
    ] == []
    siblings = apart_among([10.0, 10.1, 10.2, 14.0])[1]
    bounds = [(path, bounds_of(path)) for path in PATHS]
    text = repr(
        (RUNS_SCHEMA, SUBJECTS_SCHEMA, [row.subject for row in rows], written, siblings, bounds)
    )
    version = zlib.crc32(text.encode()) >> 1
    assert version == ROWS_VERSION, (
        f"rows hold something else than before: set ROWS_VERSION to {version}"
    )


def test_a_row_says_of_which_case_series_and_day_a_run_is_and_whether_it_may_be_compared(ledger):
    """A row has a run's case, series, day and comparability; common facts are stored once."""
    runs = numbered([*RECORDS, *RECORDS])
    ledger.commit([arrival(run, STARTED_AT_NS + DAY_NS) for run in runs])
    rows = ledger.query(
        "SELECT body, is_usable, at_ns, job, queries FROM runs JOIN subjects USING (subject) "
        "ORDER BY row"
    )
    subjects = [msgspec.msgpack.decode(bytes(body), type=RunSubject) for body, *_ in rows]
    assert [subject.key for subject in subjects] == list(map(key_of, runs))
    assert [subject.series for subject in subjects] == list(map(series_of, runs))
    for subject, run in zip(subjects, runs, strict=True):
        machine, package = run.environment, f"{run.runtime.package} {run.runtime.version}"
        of_machine = (machine.firmware, machine.kernel, machine.power_mode, machine.governor)
        meter = run.energy.sensor if run.energy else None
        assert subject.fingerprint == Fingerprint(
            machine.agent, package, *of_machine, run.model.sha256[:12], meter
        )
    assert [row[1] for row in rows][: len(RECORDS)] == [1, 1, 1, 1, 1, 1, 0, 0, 1]
    assert {row[2:4] for row in rows[:-1]} == {
        (STARTED_AT_NS, None),
        (STARTED_AT_NS + DAY_NS, "night"),
    }
    assert {row[4] for row in rows} == {make_record().latency.count}
    assert ledger.query("SELECT count(*) FROM subjects")[0][0] == len(
        set(map(str, map(msgspec.msgpack.encode, subjects)))
    )


def test_runs_are_judged_with_their_siblings_however_they_came_and_went(ledger):
    """Runs are judged with their siblings, in whatever order they came and went.

    The result equals that of `judged_together` on the records that are there: batch by batch, after
    an exclusion, an inclusion and a deletion.
    """
    chance = random.Random(68)  # noqa: S311 - the same runs every time
    sessions = [
        [make_run(p50_ms=chance.choice((10.0, 10.1, 10.2, 14.0))) for _ in range(5)]
        for _ in range(6)
    ]
    of_sessions = [
        in_rounds(session, started_at_ns=STARTED_AT_NS + number)
        for number, session in enumerate(sessions)
    ]
    runs = numbered([run for session in of_sessions for run in session])
    chance.shuffle(runs)
    for begin in range(0, len(runs), 4):
        ledger.commit([arrival(run, STARTED_AT_NS) for run in runs[begin : begin + 4]])
        assert apart_in(ledger) == apart_of(runs[: begin + 4])
    history = LedgerRuns(ledger)
    history.withdraw(runs[0].id, "excluded", "me", "noise")
    history.withdraw(runs[1].id, "deleted", "me", "noise")
    assert apart_in(ledger) == apart_of(runs[2:])
    history.include(runs[0].id, "me", "no noise")
    assert apart_in(ledger) == apart_of([runs[0], *runs[2:]])
    assert any(apart_in(ledger).values())


def test_siblings_are_looked_up_by_the_index_however_many(tmp_path):
    """The lookup of siblings uses the index, so that no commit reads every run of the ledger."""
    with SqliteLedger(tmp_path / "ledger.sqlite") as ledger:
        for count in (1, 50, 500):
            plan = ledger.query(
                f"EXPLAIN QUERY PLAN {SIBLINGS.format(sessions=', '.join(['(1, 2)'] * count))}"
            )
            assert [step for *_, step in plan if "SCAN runs" in step] == []


def apart_in(ledger):
    """Return of each run whether its row says that it lies apart from its siblings."""
    return {
        run: siblings is not None for run, siblings in ledger.query("SELECT id, siblings FROM runs")
    }


def apart_of(runs):
    """Return of each of the records whether it lies apart from its siblings."""
    return {run.id: run.verdict.state == "disturbed" for run in judged_together(runs)}
