"""Facts about `edgemeter.agent.engine.session`: whole runs in real processes, on the replay runtime."""

import json
import signal
from pathlib import Path

import msgspec
import psutil
import pytest

from edgemeter.agent import samples
from edgemeter.agent.engine import job, session, suites
from edgemeter.agent.errors import ConfigError, EdgemeterError, MeasurementError
from edgemeter.agent.records import RunRecord

WHO = session.Identity("bench", "lab")


def replay(folder: Path, name: str = "m", **changes) -> Path:
    """Write a replay model of 2 ms a query, and return its path."""
    document = {
        "format": "edgemeter-replay",
        "schema": 1,
        "latencies_ms": [2.0],
        "inputs": [{"name": "x", "shape": [1, 4], "dtype": "float32"}],
        "outputs": [{"name": "y", "shape": [1, 2], "dtype": "float32", "values": [0.25, 0.75]}],
    } | changes
    path = folder / f"{name}.replay.json"
    path.write_text(json.dumps(document))
    return path


def suite(folder: Path, *lines: str) -> suites.Suite:
    """Return the suite of one case with these lines, rapid and once unless they say otherwise."""
    path = folder / "suite.toml"
    path.write_text("\n".join(['name = "s"', "[defaults]", 'mode = "rapid"', "repeats = 1", "[[case]]", *lines]))
    return suites.read(path)


def measure(cases: suites.Suite, **changes) -> list[RunRecord | EdgemeterError]:
    """Return the outcomes of a session without sensors."""
    told: list[object] = changes.pop("told", [])
    return list(session.measure(cases, WHO, {}, "no power sensor on this machine", told.append, **changes))


def test_a_run_becomes_a_complete_record(tmp_path):
    """What was replayed is what is recorded, with everything around it."""
    replay(tmp_path, load_ms=30.0, first_ms=20.0)
    told: list[object] = []
    (record,) = measure(suite(tmp_path, 'model = "m.replay.json"', 'role = "reference"'), told=told)
    assert isinstance(record, RunRecord), record
    assert (record.device, record.fleet, record.role, record.suite, record.runtime.name) == ("bench", "lab", "reference", "s", "replay")
    assert record.latency.count == 64
    assert record.latency.p50_ms == pytest.approx(2.0, rel=0.02)
    assert record.cold_start.load_ms >= 30.0
    assert record.cold_start.first_ms == pytest.approx(20.0, rel=0.5)
    assert record.cold_start.process_ms is not None
    assert record.throughput_per_s == pytest.approx(1000 / record.latency.mean_ms)
    assert (record.energy, record.energy_reason) == (None, "no power sensor on this machine")
    assert (record.accuracy, record.dataset.images) == (None, 0)
    assert record.output_check.compared == record.output_check.identical > 0
    assert [c.when for c in record.conditions] == ["before", "during", "after"]
    latency = next(series for series in record.samples if series.name == "latency")
    assert samples.unpack(latency).size == 64
    assert isinstance(told[0], session.RunBegins)
    assert isinstance(told[-1], session.RunEnds)


def test_repeats_are_processes_of_their_own_in_shuffled_rounds(tmp_path):
    """Every round holds each case once; a second session with the same seed has the same order."""
    for name in "abcdef":
        replay(tmp_path, name)
    cases = suite(tmp_path, f"model = {[f'{n}.replay.json' for n in 'abcdef']}", "repeats = 3")
    order = [(Path(case.model).name[0], repeat) for case, repeat in session.plan(cases, 5)]
    assert order == [(Path(case.model).name[0], repeat) for case, repeat in session.plan(cases, 5)]
    assert [repeat for _, repeat in order] == [0] * 6 + [1] * 6 + [2] * 6
    rounds = ["".join(name for name, repeat in order if repeat == r) for r in range(3)]
    assert all(sorted(one) == list("abcdef") for one in rounds)
    assert len(set(rounds)) > 1


def test_the_same_case_has_the_same_name_every_time(tmp_path):
    """Repeats share their case's name and differ in id; another thread count is another case."""
    replay(tmp_path)
    records = measure(suite(tmp_path, 'model = "m.replay.json"', "repeats = 2", "threads = [1, 2]"))
    assert all(isinstance(record, RunRecord) for record in records)
    assert len({record.id for record in records}) == 4
    assert len({record.case for record in records}) == 2
    assert len({(record.case, record.runtime.threads) for record in records}) == 2


def test_a_failing_case_does_not_stop_the_others(tmp_path):
    """A broken model is an error in its place; the next case is measured."""
    replay(tmp_path, "good")
    (tmp_path / "bad.replay.json").write_text("{}")
    outcomes = measure(suite(tmp_path, 'model = ["bad.replay.json", "good.replay.json"]'))
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["ConfigError", "RunRecord"]


def test_a_process_that_dies_is_an_error_that_says_how(tmp_path):
    """SIGILL, as some runtimes' wheels give on some boards, names the signal and the remedy."""
    replay(tmp_path, latencies_ms=[50.0])

    def kill(event):
        if isinstance(event, job.Phase) and event.name == "timed":
            (worker,) = [child for child in psutil.Process().children() if "edgemeter.agent.engine.worker" in child.cmdline()]
            worker.send_signal(signal.SIGILL)

    cases = suite(tmp_path, 'model = "m.replay.json"')
    (outcome,) = session.measure(cases, WHO, {}, "none", kill)
    assert isinstance(outcome, MeasurementError)
    assert "'m.replay.json' on replay was killed by SIGILL; this build of the runtime uses instructions that the CPU lacks" in str(outcome)


def test_a_model_with_another_hash_is_refused_before_anything_runs(tmp_path):
    """The suite's sha256 is checked first."""
    replay(tmp_path)
    with pytest.raises(ConfigError, match=f"not {'0' * 64}"):
        measure(suite(tmp_path, 'model = "m.replay.json"', f'sha256 = "{"0" * 64}"'))


def test_what_keep_returns_is_the_record(tmp_path):
    """The outbox's numbers are in the record that the session yields."""
    replay(tmp_path)
    (record,) = measure(suite(tmp_path, 'model = "m.replay.json"'), keep=lambda one: msgspec.structs.replace(one, seq=7))
    assert record.seq == 7
