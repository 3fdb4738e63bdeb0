"""Facts about `edgemeter.agent.session.session`, with whole runs on the replay runtime.

The runs use this process and a played clock, or real processes.
"""

import os
import signal
from pathlib import Path

import msgspec
import psutil
import pytest

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, MeasurementError
from edgemeter.agent.contract import samples
from edgemeter.agent.contract import suite as contract_suite
from edgemeter.agent.contract.case_settings import Settings
from edgemeter.agent.contract.messages import Measuring
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.suite import SuiteFile, expand
from edgemeter.agent.engine import job
from edgemeter.agent.session import session
from edgemeter.agent.session.activity_report import ActivityReport
from edgemeter.agent.session.session import RunBegins, RunEnds
from tests.fixtures.played_time import play_time
from tests.fixtures.record_factory import make_record
from tests.fixtures.replay_case import write_replay
from tests.fixtures.run_jobs import in_this_process
from tests.fixtures.suite_files import read_suite

WHO = session.DeviceIdentity("bench", "lab")


@pytest.fixture
def played(monkeypatch):
    in_this_process(monkeypatch)
    play_time(monkeypatch)


def suite(folder: Path, *lines: str) -> contract_suite.Suite:
    """Return the suite of one case with these lines, rapid and once unless they differ."""
    path = folder / "suite.toml"
    path.write_text(
        "\n".join(['name = "s"', "[defaults]", 'mode = "rapid"', "repeats = 1", "[[case]]", *lines])
    )
    return read_suite(path)


def measure(cases: contract_suite.Suite, **changes) -> list[RunRecord | EdgemeterError]:
    events: list[object] = changes.pop("events", [])
    return list(
        session.measure(
            cases,
            changes.pop("identity", WHO),
            {},
            "no power sensor on this machine",
            events.append,
            **changes,
        )
    )


@pytest.mark.usefixtures("played")
def test_a_run_becomes_a_complete_record(tmp_path):
    """The record holds the replayed latencies, with everything around them."""
    write_replay(tmp_path, load_ms=30.0, first_ms=20.0)
    events: list[object] = []
    cases = suite(tmp_path, 'model = "m.replay.json"')
    identity = session.DeviceIdentity("bench", "lab", "reference")
    (record,) = measure(
        cases,
        events=events,
        identity=identity,
        keep=lambda run: msgspec.structs.replace(run, seq=7),
    )
    assert isinstance(record, RunRecord), record
    assert (record.device, record.fleet, record.role, record.suite, record.runtime.name) == (
        "bench",
        "lab",
        "reference",
        "s",
        "replay",
    )
    # The outbox's number, which `keep` gave it.
    assert record.seq == 7
    assert (record.latency.count, record.load.samples) == (64, 64)
    assert record.latency.p50_ms == pytest.approx(2.0, abs=0.01)
    assert (record.cold_start.load_ms, record.cold_start.first_ms) == (
        pytest.approx(30, abs=0.1),
        pytest.approx(20, abs=0.1),
    )
    assert record.cold_start.process_ms is not None
    assert record.throughput_per_s == pytest.approx(1000 / record.latency.mean_ms)
    assert (record.cpus, record.sustained) == (None, None)
    assert (record.energy, record.reasons["energy"]) == (None, "no power sensor on this machine")
    assert (record.accuracy, record.dataset.images) == (None, 0)
    assert record.output_check.compared > record.output_check.differing == 0
    assert [condition.when for condition in record.conditions] == ["before", "during", "after"]
    assert series(record, "latency").size == 64
    assert isinstance(events[0], session.RunBegins)
    assert isinstance(events[-1], session.RunEnds)


def workers() -> list[psutil.Process]:
    processes = psutil.Process().children(recursive=True)
    return [
        child
        for child in processes
        if child.cmdline()[1:3] == ["-m", "edgemeter.agent.engine.worker"]
    ]


@pytest.mark.usefixtures("played")
def test_a_suite_that_compares_its_cases_measures_them_in_rounds(tmp_path):
    """Each run has its pair, whatever its case's own number of repeats."""
    for name in "mn":
        write_replay(tmp_path, name)
    path = tmp_path / "suite.toml"
    cases = [
        f'[[case]]\nmodel = "{name}.replay.json"\nrepeats = {repeats}'
        for name, repeats in (("m", 2), ("n", 1))
    ]
    path.write_text(
        "\n".join(['name = "s"', "matters_ratio = 0.03", "[defaults]", 'mode = "rapid"', *cases])
    )
    assert [run.model.name[0] for run in measure(read_suite(path))] == ["m", "n", "n", "m"]


@pytest.mark.services
def test_a_process_that_dies_is_an_error_that_names_the_cause(tmp_path):
    """SIGILL, which some runtimes' wheels raise on some boards, is named with the remedy."""
    write_replay(tmp_path, latencies_ms=[50.0])

    def kill(event):
        if isinstance(event, job.Phase) and event.name == "timed":
            (worker,) = workers()
            worker.send_signal(signal.SIGILL)

    cases = suite(tmp_path, 'model = "m.replay.json"')
    (outcome,) = session.measure(cases, WHO, {}, "none", kill)
    assert isinstance(outcome, MeasurementError)
    assert (
        "'m.replay.json' on replay was killed by SIGILL; this build of the runtime uses "
        "instructions that the CPU lacks"
    ) in str(outcome)


def test_what_a_suite_asks_for_is_checked_before_anything_runs(tmp_path):
    """A model with another hash and cores that do not exist are refused."""
    write_replay(tmp_path)
    for line, words in (
        (f'sha256 = "{"0" * 64}"', f"not {'0' * 64}"),
        ("cpus = [4000]", "4000 not available here"),
    ):
        with pytest.raises(ConfigError, match=words):
            measure(suite(tmp_path, 'model = "m.replay.json"', line))


def single_run(folder: Path, *lines: str) -> RunRecord:
    (record,) = measure(suite(folder, 'model = "m.replay.json"', *lines))
    assert isinstance(record, RunRecord), record
    return record


def series(record: RunRecord, name: str):
    return samples.unpack(next(each for each in record.samples if each.name == name))


@pytest.mark.usefixtures("played")
def test_offline_fills_the_batch_that_the_model_leaves_open(tmp_path):
    """With four samples a call, throughput counts samples over the whole window.

    The record holds the inputs.
    """
    write_replay(tmp_path, inputs=[{"name": "x", "shape": [None, 4], "dtype": "float32"}])
    record = single_run(tmp_path, 'scenario = "offline"', "batch = 4")
    assert record.batch == 4
    assert record.inputs[0].shape == (4, 4)
    assert record.latency.count == 16
    assert record.load.samples == 64
    assert record.throughput_per_s == pytest.approx(64e9 / record.windows.timed_end_ns)
    assert record.throughput_per_s < 4000 / record.latency.mean_ms
    assert record.output_check.compared > record.output_check.differing == 0


@pytest.mark.usefixtures("played")
def test_the_latency_of_an_open_loop_counts_from_the_arrival(tmp_path):
    """It is the sum of the wait and the call, which the raw samples keep apart."""
    write_replay(tmp_path)
    record = single_run(tmp_path, 'scenario = "poisson"', "rate_per_s = 50.0")
    load = record.load
    assert (load.target_per_s, load.unserved) == (50.0, 0)
    assert load.utilisation_ratio == pytest.approx(0.1, abs=0.03)
    waits = series(record, "query_start") - series(record, "arrival")
    assert waits.min() >= 0
    assert sorted(series(record, "latency") - waits)[len(waits) // 2] / 1e6 == pytest.approx(
        2.0, abs=0.01
    )


@pytest.mark.services
def test_a_run_keeps_to_its_cores_and_records_them(tmp_path):
    """The child sets its affinity, and the record holds what the kernel reported there."""
    write_replay(tmp_path)
    core = max(os.sched_getaffinity(0))
    cores: list[set[int]] = []

    def look(event):
        if isinstance(event, job.Phase) and event.name == "load":
            cores.extend(set(child.cpu_affinity()) for child in workers())

    (record,) = session.measure(
        suite(tmp_path, 'model = "m.replay.json"', f"cpus = [{core}]"), WHO, {}, "none", look
    )
    assert cores == [{core}]
    assert record.cpus == (core,)


PHASES = ("settle", "load", "prepare", "warm-up", "idle before", "timed", "idle after", "accuracy")


def events(case, outcomes):
    """Yield the events of a session of one case whose runs end with these outcomes."""
    for index, outcome in enumerate(outcomes, 1):
        yield RunBegins(case, index - 1, index, len(outcomes), 12.0)
        yield from (job.Phase(name=name) for name in PHASES)
        yield job.RunProgress(done=1, total=2)
        yield RunEnds(outcome)


def test_only_the_beginning_of_a_run_is_reported():
    """The report has the run's number, the number of runs and of those that failed before.

    Nothing is reported during warm-up, timing, idling and scoring.
    """
    (case,) = expand(
        SuiteFile(name="s", case=[Settings(model=["/m/tiny.tflite"], runtime=["litert"])]),
        Path("/m"),
    ).cases
    sent, events_seen = [], []
    report = ActivityReport("nightly", sent.append, "job-1")
    for event in events(case, [make_record(), MeasurementError("no"), make_record()]):
        before = len(sent)
        report(event)
        events_seen.append((type(event), len(sent) - before))
    assert {kind for kind, count in events_seen if count} == {RunBegins}
    assert sent == [
        Measuring(suite="nightly", case=case.label, run=n, runs=3, failed=failed, job="job-1")
        for n, failed in ((1, 0), (2, 0), (3, 1))
    ]


def test_names_of_any_length_make_a_message_that_is_accepted():
    """A suite and a file may have any name."""
    settings = Settings(model=["/m/tiny.tflite"], runtime=["litert"], name="m" * 5000)
    (case,) = expand(SuiteFile(name="s", case=[settings]), Path("/m")).cases
    sent = []
    ActivityReport("s" * 5000, sent.append)(RunBegins(case, 0, 1, 1, 12.0))
    assert (len(sent[0].suite), len(sent[0].case)) == (300, 300)
