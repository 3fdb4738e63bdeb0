"""Cases that cannot be measured here are refused once, before the first run.

The other cases are measured.
"""

import os
from pathlib import Path

import msgspec
import pytest

from edgemeter.agent.base.errors import (
    USAGE,
    ConfigError,
    EdgemeterError,
    MeasurementError,
    UnavailableError,
)
from edgemeter.agent.base.file_lock import RunLock
from edgemeter.agent.contract.suite import Suite
from edgemeter.agent.engine import inspection
from edgemeter.agent.machine.machine import Machine
from edgemeter.agent.session import checks, session
from edgemeter.agent.session.checks import refusals
from tests.fixtures.command import edgemeter
from tests.fixtures.record_factory import make_record, violating
from tests.fixtures.rows import table_row
from tests.fixtures.run_jobs import one_case, without_waiting

MODELS = Path(__file__).parents[2] / "fixtures/runtimes"


def case_of(folder, name, **settings):
    """Return a case of a file of that name, which holds a byte."""
    (folder / name).write_bytes(b"x")
    return one_case(str(folder / name), **settings)


def test_a_case_that_cannot_be_measured_is_refused_before_the_first_process(tmp_path):
    """The refusal names the remedy and comes before the run lock is waited for.

    An empty model, as a cut download leaves it, is refused too.
    """
    for name, settings, kind, says in [
        ("m.onnx", {"runtime": "onxn"}, ConfigError, "did you mean onnx"),
        ("m_edgetpu.tflite", {"runtime": "litert"}, ConfigError, "--runtime edgetpu"),
        ("m_edgetpu.tflite", {"runtime": "edgetpu"}, UnavailableError, "no Edge TPU is attached"),
    ]:
        with table_row(name, settings), pytest.raises(kind, match=says):
            checks.check(Suite("s", (case_of(tmp_path, name, **settings),)))
    (tmp_path / "m.onnx").write_bytes(b"")
    with pytest.raises(ConfigError, match="is empty"):
        checks.check(Suite("s", (one_case(str(tmp_path / "m.onnx")),)))


def test_a_refused_case_leaves_the_others(tmp_path):
    """The cases that this machine can measure are measured."""
    cases = (
        case_of(tmp_path, "m_edgetpu.tflite", runtime="edgetpu"),
        case_of(tmp_path, "m.replay.json"),
    )
    suite, reasons = checks.runnable(Suite("s", cases))
    assert suite.cases == cases[1:]
    assert [str(reason).partition(": ")[0] for reason in reasons] == [
        "m_edgetpu.tflite edgetpu 1 thread"
    ]


def test_more_threads_than_cores_are_refused(tmp_path):
    """The limit is the number of the machine's cores, or of those that `cpus` leaves.

    A replay and a server compute elsewhere, and a power mode may switch cores on.
    """
    cores = sorted(os.sched_getaffinity(0))
    of_machine = {"threads": len(cores) + 1}
    for name, settings, refused in [
        ("m.onnx", of_machine, True), ("m.onnx", {"threads": 500}, True),
        ("m.onnx", {"threads": 2, "cpus": cores[:1]}, True),
        ("m.onnx", {"threads": len(cores)}, False),
        ("m.onnx", {"threads": 2, "cpus": cores[:1], "power_mode": "0"}, True),
        ("m.onnx", of_machine | {"power_mode": "0"}, False), ("m.replay.json", of_machine, False),
    ]:  # fmt: skip
        with table_row(name, settings):
            errors = refusals(Suite("s", (case_of(tmp_path, name, **settings),)))
            assert bool(errors) is refused
            assert all(
                "would wait for each other" in str(error) and isinstance(error, ConfigError)
                for error in errors.values()
            )


def test_a_case_with_too_many_threads_leaves_the_others(tmp_path):
    """An order may have been written for a larger board.

    If the case is the only one, its line ends the command.
    """
    cases = (case_of(tmp_path, "m.onnx", threads=500), case_of(tmp_path, "m.replay.json"))
    suite, reasons = checks.runnable(Suite("s", cases))
    assert suite.cases == cases[1:]
    assert [str(reason).partition(": 500 threads would wait")[0] for reason in reasons] == [
        "m.onnx onnx 500 threads"
    ]
    ended = edgemeter("run", tmp_path / "m.onnx", "--threads", 500)
    assert (ended.returncode, ended.stderr.count("\n")) == (USAGE, 1)
    assert ended.stderr.startswith("edgemeter: 500 threads would wait for each other on the ")


def test_an_attached_coral_makes_the_case_possible(tmp_path):
    """A Coral in a PCIe slot shows as /dev/apex_0."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/apex_0").touch()
    suite = Suite("s", (case_of(tmp_path, "m_edgetpu.tflite", runtime="edgetpu"),))
    assert not [
        error for error in refusals(suite, Machine(tmp_path)).values() if "attached" in str(error)
    ]


def test_a_run_that_fails_is_not_repeated_to_the_end(tmp_path, monkeypatch):
    """A mistake or something absent would end every repeat with the same line.

    A failure that may pass is tried twice.
    """
    for kind, runs in [(ConfigError, 1), (UnavailableError, 1), (MeasurementError, 2)]:
        with table_row(kind):

            def fail(*_, kind=kind):
                raise kind("no model of this format")

            monkeypatch.setattr(session, "measure_run", fail)
            without_waiting(monkeypatch)
            suite = Suite(
                "s", (msgspec.structs.replace(case_of(tmp_path, "m.replay.json"), repeats=5),)
            )
            outcomes = list(
                session.measure(suite, session.DeviceIdentity("d", "f"), {}, "", lambda _: None)
            )
            assert [
                str(outcome) for outcome in outcomes if isinstance(outcome, EdgemeterError)
            ] == ["no model of this format"] * runs


def test_a_model_that_is_worth_nothing_is_not_measured_again(tmp_path, monkeypatch):
    """Only the first run is scored, so its repeats would seem sound."""
    case = msgspec.structs.replace(case_of(tmp_path, "m.replay.json"), repeats=3)
    without_waiting(monkeypatch)
    for rule, runs in [("accuracy-gate", 1), ("failed-queries", 3)]:
        with table_row(rule):
            record = make_record(verdict=violating("invalid", rule))
            monkeypatch.setattr(session, "measure_run", lambda *_, record=record: record)
            identity = session.DeviceIdentity("d", "f")
            assert (
                list(session.measure(Suite("s", (case,)), identity, {}, "", lambda _: None))
                == [record] * runs
            )


@pytest.mark.services
def test_what_can_be_known_is_refused_before_the_run_lock_is_asked_for(tmp_path, monkeypatch):
    """The command ends with one line and announces nothing."""
    monkeypatch.setattr(RunLock, "wait", lambda *_: pytest.fail("the run lock is asked for"))
    environment = os.environ | {"EDGEMETER_HOME": str(tmp_path / "home")}
    (tmp_path / "cut.tflite").write_bytes((MODELS / "litert.tflite").read_bytes()[:200])
    ended = edgemeter(
        "compare",
        MODELS / "litert.tflite",
        "cut.tflite",
        "--mode",
        "rapid",
        env=environment,
        cwd=tmp_path,
    )
    assert ended.returncode == USAGE, ended.stderr
    assert "truncated or garbled" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert not ended.stdout


def test_cases_that_open_the_same_are_opened_once(tmp_path, monkeypatch):
    """A sweep of threads has one model, so that one mistake gives one line.

    One process opens the model, and the line names all cases.
    """
    opened = []
    garbled = ConfigError("it is garbled")
    monkeypatch.setattr(
        inspection,
        "why_not",
        lambda case: opened.append(case) or (garbled if case.runtime == "onnx" else None),
    )
    monkeypatch.setattr(checks, "why_absent", lambda *_: None)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))
    cases = tuple(case_of(tmp_path, "m.onnx", threads=threads) for threads in (1, 2, 4))
    with pytest.raises(ConfigError) as refusal:
        checks.check(Suite("s", cases), opens=True)
    assert (str(refusal.value), len(opened)) == ("it is garbled", 1)
    suite, reasons = checks.runnable(Suite("s", (*cases, case_of(tmp_path, "m.replay.json"))))
    assert (len(suite.cases), len(reasons)) == (1, 1)
