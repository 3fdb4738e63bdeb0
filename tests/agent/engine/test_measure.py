"""Facts about `edgemeter.agent.engine.measure`.

A batch that is fixed above 1 is timed whole and scored, and a run idles where it should.
"""

import os
import sys
import time
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from edgemeter.agent import runtimes
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.record_accuracy import OutputCheck
from edgemeter.agent.contract.record_conditions import DatasetInfo, Model, RuntimeInfo
from edgemeter.agent.engine.measure import measure, measure_subject
from edgemeter.agent.engine.process_usage import peak_mb
from edgemeter.agent.engine.subject import Results
from edgemeter.agent.runtimes import TensorInfo
from tests.fixtures.cheats import Honest
from tests.fixtures.played_time import play_time
from tests.fixtures.replay_case import write_replay
from tests.fixtures.run_jobs import brief_case, rapid_run, run_job, write_photographs
from tests.fixtures.timing_world import World

SIDE, CLASSES, ANCHORS, BATCH, PHOTOGRAPHS = 16, 2, 128, 4, 6


CARD = f"""
name = "passed-through"
task = "detection"
family = "yolov8"
precision = "fp32"
input = {{height = {SIDE}, width = {SIDE}, layout = "NCHW"}}
output = {{classes = {CLASSES}, nms_iou = 0.7}}
"""


class PassingThrough(Honest):
    """A runtime that shapes its four pictures into the outputs of a YOLOv8."""

    def load(self, model, options):
        loaded = super().load(model, options)
        x = TensorInfo("x", (BATCH, 3, SIDE, SIDE), "float32")
        return replace(
            loaded,
            inputs=(x,),
            outputs=(TensorInfo("y", (BATCH, 4 + CLASSES, ANCHORS), "float32"),),
        )

    def answer(self):
        return self.x.reshape(BATCH, 4 + CLASSES, ANCHORS)


@pytest.fixture
def photographs(tmp_path):
    """Return a folder of pictures that are a detector's answer themselves.

    Each holds one box, and the annotations match it.
    """
    pictures = []
    for number in range(1, PHOTOGRAPHS + 1):
        answer = np.zeros((4 + CLASSES, ANCHORS), np.uint8)
        answer[:4, 7] = (100 + 5 * number, 120, 80, 60)
        answer[4 + number % CLASSES, 7] = 200
        pixels = answer.reshape(3, SIDE, SIDE).transpose(1, 2, 0)
        pictures.append((pixels, [((answer[:4, 7] / 255 * SIDE).tolist(), number % CLASSES + 1)]))
    return write_photographs(tmp_path, pictures)


@pytest.mark.parametrize("scenario", ["single_stream", "offline"])
def test_a_fixed_batch_is_timed_whole_and_scored(monkeypatch, tmp_path, photographs, scenario):
    """Every photograph is found as with a batch of 1.

    The record says how many samples a call takes.
    """
    monkeypatch.setitem(runtimes.RUNTIMES, "through", f"{__name__}:PassingThrough")
    (tmp_path / "four.onnx.toml").write_text(CARD)
    measured = rapid_run(
        tmp_path / "four.onnx",
        idle_seconds=0.0,
        runtime="through",
        scenario=scenario,
        **photographs,
    )
    assert (measured.accuracy.value, measured.answers.objects) == (pytest.approx(1), PHOTOGRAPHS)
    assert (measured.batch, measured.inputs[0].shape, measured.answers.found) == (
        BATCH,
        (BATCH, 3, SIDE, SIDE),
        PHOTOGRAPHS,
    )


BATCHES = """
import time
from edgemeter.agent.runtimes.python_model import PythonModel
def f(x):
    time.sleep(0 if len(x) == 1 else 0.05)
    return x
def make(): return PythonModel(call=f, inputs={"x": ("float32", (None, 4))}, backend="BACKEND")
"""


@pytest.mark.parametrize(("backend", "compiles"), [("jit,cpu", True), ("callable", False)])
def test_the_first_query_is_one_of_the_runs_batch(monkeypatch, tmp_path, backend, compiles):
    """Loading calls the model with a batch of 1, which is not one of this run.

    The time of compiling is stated for backends that compile.
    """
    play_time(monkeypatch)
    (tmp_path / "net.py").write_text(BATCHES.replace("BACKEND", backend))
    case = brief_case(tmp_path / "net.py:make", scenario="offline", batch=BATCH)
    cold = measure(run_job(case), 0, lambda _: None).cold_start
    assert cold.first_ms == pytest.approx(50, abs=0.1)
    assert (cold.compile_ms is not None) == compiles


def test_a_run_times_its_queries_and_nothing_around_them(monkeypatch, tmp_path):
    """The first call, the warm-up and the idle phases are no part of the timed queries.

    There are 64 queries of 2 ms, and 3 s of idle before and after them.
    """
    play_time(monkeypatch)
    model = write_replay(tmp_path, load_ms=30.0, first_ms=20.0)
    case = msgspec.structs.replace(brief_case(model, idle_seconds=3.0), warm_up_seconds=1.0)
    phases = []
    run = measure(
        run_job(case, idle=True, spawned_ns=time.monotonic_ns()), time.monotonic_ns(), phases.append
    )
    assert [phase.name for phase in phases] == [
        "load",
        "prepare",
        "warm-up",
        "idle before",
        "timed",
        "idle after",
        "accuracy",
    ]
    assert (run.latency.count, run.load.samples, run.warm_up.steady) == (64, 64, True)
    assert run.latency.max_ms == pytest.approx(2.0, abs=0.01)
    assert run.throughput_per_s == pytest.approx(500, rel=5e-3)
    assert (run.cold_start.load_ms, run.cold_start.first_ms) == (
        pytest.approx(30, abs=0.1),
        pytest.approx(20, abs=0.1),
    )
    assert run.warm_up.duration_ms == pytest.approx(500, abs=5)
    assert (
        run.idle_before.end_ns <= run.timed.start_ns < run.timed.end_ns <= run.idle_after.start_ns
    )
    assert [round(idle.length_ns / 1e6) for idle in (run.idle_before, run.idle_after)] == [
        3000,
        3000,
    ]
    assert run.output_check.compared > run.output_check.differing == 0


def test_a_module_that_has_every_attribute_disturbs_no_run(monkeypatch, tmp_path):
    """`torch.ops` makes a namespace of any name that it is asked for."""
    play_time(monkeypatch)
    monkeypatch.setitem(
        sys.modules, "ops_of_any_name", type("Ops", (), {"__getattr__": lambda *_: object()})()
    )
    assert measure(run_job(brief_case(write_replay(tmp_path))), 0, lambda _: None).latency.count


class Elsewhere(World):
    """A subject whose model another process holds; `trouble` is what loading it raises."""

    process = os.getppid()

    def __init__(self, trouble=None):
        super().__init__(lambda _: 1000)
        self.trouble, self.closed = trouble, 0

    def load(self):
        if self.trouble:
            raise self.trouble

    def bind(self, number, user=None):
        del number, user
        return int

    def results(self, timed, emit):
        del emit
        return Results(
            queries=timed,
            model=Model(name="m", sha256="0" * 64, file="m", size_bytes=0, task="unknown"),
            runtime=RuntimeInfo(name="r", package="r", version="1", backend="cpu", threads=1),
            precision="fp32",
            inputs=(),
            outputs=(),
            dataset=DatasetInfo(name="none", sha256="0" * 64, images=0),
            output_check=OutputCheck(compared=0),
        )

    def close(self):
        self.closed += 1


def test_the_memory_of_a_run_is_that_of_the_process_with_the_model():
    """A language model may run behind a server in a process of its own.

    That process works on, so that its peak may rise between two looks at it.
    """
    subject = Elsewhere()
    before_mb = peak_mb(subject.process)
    memory = measure_subject(run_job(brief_case("m.onnx")), subject, 0, lambda _: None).memory
    after_mb = peak_mb(subject.process)
    assert before_mb <= memory.peak_mb <= after_mb
    assert not before_mb <= peak_mb() <= after_mb
    assert memory.loaded_mb <= memory.peak_mb
    assert subject.closed == 1


def test_the_moments_of_queries_are_no_growth_of_the_model(monkeypatch):
    """Four moments of 8 bytes a query are subtracted, here from a process that does not grow.

    With three million queries a process grew by 36 bytes each.
    """
    monkeypatch.setattr("edgemeter.agent.engine.measure.resident_mb", lambda *_: 100.0)
    subject = Elsewhere()
    subject.kept_bytes = 0
    run = measure_subject(run_job(brief_case("m.onnx", queries=1000)), subject, 0, lambda _: None)
    assert run.memory.grown_mb == pytest.approx(-32e-6 * run.latency.count)


def test_a_subject_that_cannot_be_loaded_is_closed():
    """It may have started something before it failed."""
    subject = Elsewhere(ConfigError("broken"))
    with pytest.raises(ConfigError, match="broken"):
        measure_subject(run_job(brief_case("m.onnx")), subject, 0, lambda _: None)
    assert subject.closed == 1
