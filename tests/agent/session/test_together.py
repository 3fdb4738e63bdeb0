"""Facts about `edgemeter.agent.session.together`, which runs models at the same time.

The runs are played, or are real processes on replays.
"""

import json
import multiprocessing
import os
import signal
from pathlib import Path

import msgspec
import numpy as np
import psutil
import pytest

from edgemeter.agent.base.errors import (
    ConfigError,
    EdgemeterError,
    MeasurementError,
    UnavailableError,
)
from edgemeter.agent.bundle.recompute import recompute
from edgemeter.agent.contract import suite as contract_suite
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.energy.window import Window
from edgemeter.agent.engine import isolation, job
from edgemeter.agent.machine.machine import Machine
from edgemeter.agent.session import session, together
from tests.fixtures.measured_factory import measured_of
from tests.fixtures.record_factory import make_model
from tests.fixtures.replay_case import write_replay
from tests.fixtures.run_jobs import without_waiting
from tests.fixtures.suite_files import read_suite

WHO = session.DeviceIdentity("bench", "lab")
MS = 1_000_000


def suite(folder: Path, *cases: str, **defaults: object) -> contract_suite.Suite:
    written = {"mode": "rapid", "repeats": 1, "together": "group", **defaults}
    lines = [
        'name = "s"',
        "[defaults]",
        *(f"{key} = {json.dumps(value)}" for key, value in written.items()),
    ]
    path = folder / "suite.toml"
    path.write_text("\n".join([*lines, *(f"[[case]]\n{case}" for case in cases)]))
    return read_suite(path)


def replays(folder: Path, *latencies_ms: float) -> list[str]:
    """Write replays that sleep, called a, b, ..., and return their cases."""
    names = "abcdef"[: len(latencies_ms)]
    for name, latency_ms in zip(names, latencies_ms, strict=True):
        write_replay(folder, name, latencies_ms=[latency_ms])
    return [f'model = "{name}.replay.json"\noptions = {{wait = "sleep"}}' for name in names]


def measure(
    cases: contract_suite.Suite, on_event=lambda _: None, sensors=None
) -> list[RunRecord | EdgemeterError]:
    return list(together.measure(cases, WHO, sensors or {}, "none", on_event))


def workers() -> list[psutil.Process]:
    """Return the processes that measure now, in the order in which they were started."""
    processes = psutil.Process().children(recursive=True)
    children = [
        child
        for child in processes
        if child.cmdline()[1:3] == ["-m", "edgemeter.agent.engine.worker"]
    ]
    return sorted(children, key=psutil.Process.create_time)


def test_a_round_has_each_alone_each_pair_and_all():
    """For two models the pair is the block of all."""
    assert together.blocks_of(2) == [(0,), (1,), (0, 1)]
    assert together.blocks_of(3) == [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]


# No process has this number: where a run fails, the others are killed.
NO_PID = 1 << 30


@pytest.fixture
def played(monkeypatch):
    """Let runs take no time, with queries that are twice as slow beside another model.

    A query of a model alone takes as many ms as its name says. In each second that is agreed on,
    the first model of a block is timed from 10 ms on, and the others until 20 ms before its end.
    `played` is a function that takes an error, by which the next run beside others fails.
    """
    failures = []
    without_waiting(monkeypatch)

    def run(work, follow, meet=None):
        own_ms, factor, timed = (
            float(Path(work.case.model).name.split("ms")[0]),
            1,
            Window(0, 10**9),
        )
        follow(job.Phase(name="load"), NO_PID)
        if meet is not None:
            meet(job.Encounter())
            agreed = meet(job.Encounter(seconds=1.0, queries_s=0.1))
            if own_ms == 4 and failures:
                raise failures.pop()
            is_first = own_ms == 4
            mine = Window(
                agreed.start_ns + 10 * MS * is_first, agreed.end_ns - 20 * MS * (not is_first)
            )
            factor, timed = 2, meet(job.Encounter(timed=mine))
        follow(job.Phase(name="timed", seconds=1.0), NO_PID)
        follow(job.Phase(name="idle after"), NO_PID)
        model = make_model(name=work.case.name or f"{own_ms:g} ms", sha256=work.sha256)
        return msgspec.structs.replace(
            measured_of(np.full(200, round(factor * own_ms * MS)), model=model), timed=timed
        )

    monkeypatch.setattr(isolation, "run_isolated", run)
    return failures.append


def files(folder: Path, *latencies_ms: int) -> list[str]:
    for latency_ms in latencies_ms:
        write_replay(folder, f"{latency_ms}ms", latencies_ms=[latency_ms])
    return [f'model = "{latency_ms}ms.replay.json"' for latency_ms in latencies_ms]


@pytest.mark.usefixtures("played")
def test_a_run_beside_others_is_slowed_against_its_own_alone(tmp_path):
    """Each runs alone, then both, and in reverse order, where the record waits for its round."""
    outcomes = measure(suite(tmp_path, *files(tmp_path, 4, 9), repeats=2))
    assert [run.together is None for run in outcomes] == [
        True,
        True,
        False,
        False,
        True,
        True,
        False,
        False,
    ]
    alone, accompanied = (
        [run for run in outcomes if (run.together is None) == is_alone]
        for is_alone in (True, False)
    )
    assert [run.together is None for run in sorted(outcomes, key=lambda run: run.monotonic_ns)] == [
        True
    ] * 2 + [False] * 4 + [True] * 2
    assert {run.latency.mean_ms for run in alone} == {4.0, 9.0}
    assert {run.together.slow_down_ratio for run in accompanied} == {2.0}
    assert {run.model.name: run.together.neighbours[0].model for run in accompanied} == {
        "4 ms": "9 ms",
        "9 ms": "4 ms",
    }
    assert len({run.case for run in outcomes}) == 4
    assert all(recompute(run)[1] == () for run in outcomes)


def test_a_run_that_fails_beside_others_leaves_the_runs_alone(played, tmp_path):
    """The block does not count, and the next round has it again."""
    played(MeasurementError("it died"))
    outcomes = measure(suite(tmp_path, *files(tmp_path, 4, 9), repeats=2))
    errors = [outcome for outcome in outcomes if isinstance(outcome, EdgemeterError)]
    assert [str(error) for error in errors] == ["it died; the runs at the same time do not count"]
    assert [run.together is None for run in outcomes if run not in errors] == [
        True,
        True,
        True,
        True,
        False,
        False,
    ]


@pytest.mark.services
def test_one_that_dies_in_the_middle_is_one_line_and_the_runs_alone_remain(tmp_path):
    """The block does not count, the runs alone do, and no process is left."""
    is_killed: list[int] = []

    def kill(event):
        if isinstance(event, session.RunBegins):
            is_killed[:] = [len(event.beside)]
        elif isinstance(event, job.Phase) and event.name == "timed" and is_killed == [1]:
            workers()[-1].send_signal(signal.SIGKILL)

    outcomes = measure(suite(tmp_path, *replays(tmp_path, 4.0, 9.0)), kill)
    assert [type(outcome) for outcome in outcomes] == [RunRecord, RunRecord, MeasurementError]
    assert "was killed by SIGKILL" in str(outcomes[2])
    assert str(outcomes[2]).endswith("; the runs at the same time do not count")
    assert "\n" not in str(outcomes[2])
    assert workers() == []


def interrupt_a_block(folder):
    """Measure a block, interrupt it while it has company, and look for what is left of it."""
    has_company: list[bool] = []

    def interrupt(event):
        if isinstance(event, session.RunBegins):
            has_company.append(bool(event.beside))
        elif isinstance(event, job.Phase) and event.name == "timed" and has_company[-1]:
            os.kill(os.getpid(), signal.SIGINT)

    outcomes = together.measure(
        suite(folder, *replays(folder, 4.0, 9.0), seconds=2.0), WHO, {}, "none", interrupt
    )
    with pytest.raises(KeyboardInterrupt):
        list(outcomes)
    assert workers() == []
    (folder / "interrupted").touch()


@pytest.mark.services
def test_ctrl_c_ends_all_processes_of_a_block(tmp_path):
    """No process goes on alone.

    A real signal gets a process of its own, not one in which other tests loaded a dozen native
    libraries.
    """
    process = multiprocessing.get_context("spawn").Process(
        target=interrupt_a_block, args=(tmp_path,)
    )
    process.start()
    process.join()
    assert (process.exitcode, (tmp_path / "interrupted").exists()) == (0, True)


@pytest.mark.usefixtures("played")
def test_a_round_that_is_cut_short_keeps_its_runs_at_the_same_time(tmp_path):
    """They wait for the runs alone, without which they have no slow-down."""
    records: list[RunRecord] = []

    def interrupt(event):
        if isinstance(event, session.RunBegins) and event.repeat == 1 and not event.beside:
            raise KeyboardInterrupt

    cases = suite(tmp_path, *files(tmp_path, 4, 9), repeats=2)
    with pytest.raises(KeyboardInterrupt):
        list(
            together.measure(
                cases, WHO, {}, "none", interrupt, lambda record: records.append(record) or record
            )
        )
    assert [(run.repeat, run.together is not None) for run in records] == [(0, False)] * 2 + [
        (0, True)
    ] * 2 + [(1, True)] * 2
    assert [run.together.slow_down_ratio for run in records[2:]] == [2.0, 2.0, None, None]


def test_a_group_in_which_one_sets_the_board_is_refused(tmp_path):
    """The group is refused before anything is measured."""
    first, second = files(tmp_path, 4, 9)
    with pytest.raises(ConfigError, match="power mode and governor are not changed"):
        suite(tmp_path, first, f'{second}\ngovernor = "performance"')


@pytest.mark.usefixtures("played")
def test_two_files_of_one_content_and_name_are_refused(tmp_path):
    """Their records would be one case, and each one's runs would be divided by the other's."""
    (case,) = files(tmp_path, 4)
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "4ms.replay.json").write_bytes((tmp_path / "4ms.replay.json").read_bytes())
    other = case.replace("4ms", "copy/4ms")
    outcomes = measure(suite(tmp_path, case, other, repeats=2))
    assert [type(outcome) for outcome in outcomes] == [RunRecord, RunRecord, ConfigError]
    assert f"{copy}/4ms.replay.json is the same model as another" in str(outcomes[2])
    named = suite(tmp_path, case, f'{other}\nname = "second"')
    assert [type(outcome) for outcome in measure(named)] == [RunRecord] * 4


@pytest.mark.usefixtures("played")
def test_a_model_that_is_left_of_a_group_runs_alone(tmp_path):
    """A model that cannot be measured is named once.

    Two that are left of three still run together.
    """
    cases = suite(tmp_path, *files(tmp_path, 4, 9, 7)).cases
    (tmp_path / "7ms.hef").write_bytes(b"x")
    absent = msgspec.structs.replace(cases[2], model=str(tmp_path / "7ms.hef"), runtime="hailo")
    error, alone = measure(contract_suite.Suite("s", (cases[0], absent)))
    assert (type(error), alone.model.name, alone.together) == (UnavailableError, "4 ms", None)
    error, *runs = measure(contract_suite.Suite("s", (*cases[:2], absent)))
    assert (type(error), [run.together is None for run in runs]) == (
        UnavailableError,
        [True, True, False, False],
    )


def test_models_that_do_not_fit_into_the_memory_are_one_line(tmp_path):
    """The memory that they took alone is compared with what is available now."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 1000000 kB\nMemAvailable: 500000 kB\n")
    together.check_memory({"a": 200.0, "b": 300.0}, Machine(tmp_path))
    with pytest.raises(
        UnavailableError,
        match=r"not enough memory to run them together \(a 300 MB, b 300 MB; 512 MB are available",
    ):
        together.check_memory({"a": 300.0, "b": 300.0}, Machine(tmp_path))
