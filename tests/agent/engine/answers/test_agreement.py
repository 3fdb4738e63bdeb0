"""Facts about `edgemeter.agent.engine.answers.agreement`: timed outputs against those of other kernels on the same model."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import numpy as np
import pytest

from edgemeter.agent import records, runtimes
from edgemeter.agent.engine import session, suites
from edgemeter.agent.engine.answers import reference_process
from edgemeter.agent.engine.answers.agreement import INPUTS, Reference, Timed, agree, choose
from edgemeter.agent.errors import ConfigError

MODELS = Path(__file__).parents[3] / "fixtures" / "runtimes"
PLAIN = {"graph_optimisation": "none"}


def timed(model, count=2, *, change=None, **settings):
    """Return the case, what was loaded, and queries as the timed part keeps them; `change` alters what was answered."""
    written = suites.SuiteFile(name="s", case=[suites.Settings(model=str(model), **settings)])
    (case,) = suites.expand(written, MODELS).cases
    runtime = runtimes.create(case.runtime)
    loaded = runtime.load(Path(case.model), runtimes.Options(extra=case.options, backend=case.backend))
    draw = np.random.default_rng(2)
    queries = []
    for item in range(count):
        inputs = [(draw.random((1, 4)) * 20).astype(loaded.inputs[0].dtype)]
        runtime.bind(inputs)()
        queries.append(Timed(item, inputs, [change(array) if change else array for array in runtime.outputs()]))
    runtime.close()
    return case, loaded, queries


@pytest.mark.parametrize(
    ("model", "reference"),
    [("litert_int8.tflite", " reference"), ("litert.tflite", " reference"), ("onnx.onnx", " cpu, graph_optimisation none")],
)
def test_sound_kernels_agree_with_the_reference(model, reference):
    """The same file on other kernels gives the same, to rounding; the record says which package, version and kernels those are."""
    found, why = agree(*timed(MODELS / model)[:2], 1.0, timed(MODELS / model)[2], None)
    assert why is None
    assert found.reference.endswith(reference)
    assert any(sign.isdigit() for sign in found.reference)
    assert (found.inputs, found.same_answer_ratio) == (2, None)
    # One step of the int8 output is 0.25 real units; floats are equal.
    assert found.largest_difference <= (0.25 if "int8" in model else 1e-6)
    assert found.lowest_cosine == pytest.approx(1.0, abs=1e-3)


def test_wrong_kernels_do_not_agree():
    """Outputs of the other sign: a cosine of -1, and a difference of twice the largest value, in real values."""
    case, loaded, queries = timed(MODELS / "onnx.onnx", change=lambda array: -array)
    found, _ = agree(case, loaded, 1.0, queries, None)
    largest = max(float(np.abs(query.outputs[0]).max()) for query in queries)
    assert found.lowest_cosine == pytest.approx(-1.0)
    assert found.largest_difference == pytest.approx(2 * largest, rel=1e-5)
    assert found.largest_difference_ratio == pytest.approx(2.0, rel=1e-5)


def test_answers_are_compared_where_there_is_a_task():
    """The mean over inputs, of those that say anything."""
    asked = []

    def same_answer(item, ours, theirs):
        asked.append((item, ours[0].shape, theirs[0].shape))
        return {0: 1.0, 1: None, 2: 0.5}[item]

    found, _ = agree(*timed(MODELS / "onnx.onnx", 3)[:2], 1.0, timed(MODELS / "onnx.onnx", 3)[2], same_answer)
    assert found.same_answer_ratio == 0.75
    assert asked == [(item, (1, 4), (1, 4)) for item in range(3)]


def test_outputs_that_are_no_numbers_have_no_figure():
    """NaN on our side: nothing is said of differences, and nothing stands in the record that JSON cannot hold."""
    case, loaded, queries = timed(MODELS / "onnx.onnx", change=lambda array: array * np.float32("nan"))
    found, _ = agree(case, loaded, 1.0, queries, None)
    assert (found.largest_difference, found.largest_difference_ratio, found.lowest_cosine) == (None, None, None)


def test_more_inputs_than_a_few_are_not_asked_for():
    """What it takes is bounded by number as well as by time."""
    case, loaded, queries = timed(MODELS / "onnx.onnx", INPUTS + 3)
    found, _ = agree(case, loaded, 1.0, queries, None)
    assert found.inputs == INPUTS


def test_a_reference_that_takes_too_long_or_breaks_is_a_reason(tmp_path):
    """The run is not lost: the record says what was tried and what came of it."""
    case, loaded, queries = timed(MODELS / "onnx.onnx")
    found, why = agree(case, loaded, 1.0, queries, None, limit_s=0.01)
    assert (found, why) == (None, "the reference (cpu, graph_optimisation none) gave no answer: it took longer than 0.01 s")
    (tmp_path / "broken.onnx").write_bytes(b"not a model")
    found, why = agree(msgspec.structs.replace(case, model=str(tmp_path / "broken.onnx")), loaded, 1.0, queries, None)
    assert found is None
    assert "cannot run" in why
    assert "broken.onnx" in why


def test_a_full_disk_or_an_answer_that_cannot_be_decoded_costs_no_run(tmp_path, monkeypatch):
    """The comparison is left out with the reason; nothing is raised that would end the run."""
    case, loaded, queries = timed(MODELS / "onnx.onnx")

    def undecodable(item, *_):
        message = f"item {item}: these are no detections"
        raise ConfigError(message)

    _, why = agree(case, loaded, 1.0, queries, undecodable)
    assert why.endswith("failed: item 0: these are no detections")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "not there"))
    found, why = agree(case, loaded, 1.0, queries, None)
    assert found is None
    assert "No such file or directory" in why


@pytest.mark.parametrize(
    ("timed_on", "chosen"),
    [
        (("litert", "xnnpack", {}, False), Reference("litert", "reference")),
        (("litert", "builtin", {}, False), Reference("litert", "reference")),
        (("litert", "xnnpack", {}, True), Reference("litert", "builtin")),
        (("litert", "builtin", {}, True), "too slow"),
        (("litert", "reference", {}, False), "the reference itself"),
        (("onnx", "cpu", {}, False), Reference("onnx", "cpu", PLAIN)),
        (("onnx", "tensorrt", PLAIN, True), Reference("onnx", "cpu", PLAIN)),
        (("onnx", "cpu", PLAIN, False), "the reference itself"),
        (("pytorch", "cuda", {"onednn": "off"}, False), Reference("pytorch", "cpu", {"onednn": "off"})),
        (("pytorch", "cpu", {"onednn": "off"}, False), "the reference itself"),
        (("replay", "replay", {}, False), "runs no model"),
        (("somebodys", "npu", {}, False), "'somebodys'"),
    ],
)
def test_the_reference_is_never_what_was_timed(timed_on, chosen):
    """Other kernels of the same runtime, or a reason."""
    runtime, backend, options, is_slow = timed_on
    found = choose(runtime, backend, options, is_slow=is_slow)
    assert chosen in found if isinstance(chosen, str) else found == chosen


def test_the_reference_process_ends_with_its_parent(tmp_path):
    """Its standard input is the parent's end of a pipe: when that closes it is gone at once, whatever it is doing."""
    slow = {"format": "edgemeter-replay", "schema": 1, "latencies_ms": [60_000.0]}
    slow |= {"inputs": [{"name": "x", "shape": [1, 4], "dtype": "float32"}], "outputs": []}
    (tmp_path / "m.replay.json").write_text(json.dumps(slow))
    request = reference_process.Request(str(tmp_path / "m.replay.json"), "replay", "replay", 1, {"wait": "sleep"})
    (tmp_path / reference_process.REQUEST).write_bytes(msgspec.json.encode(request))
    reference_process.write_arrays(reference_process.inputs_file(tmp_path, 0), [np.zeros((1, 4), np.float32)])
    command = [sys.executable, "-m", "edgemeter.agent.engine.answers.reference_process", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=2)
        process.stdin.close()
        assert process.wait(timeout=5) == 1


def test_the_record_carries_the_agreement_of_the_first_repeat(tmp_path):
    """In a session of two repeats the first compares, the second says why not; both travel."""
    settings = suites.Settings(model=str(MODELS / "onnx.onnx"), mode="rapid", repeats=2, agreement="first")
    suite = suites.expand(suites.SuiteFile(name="s", case=[settings]), tmp_path)
    runs = list(session.measure(suite, session.Identity("bench", "lab"), {}, "none", lambda _: None))
    first, second = (records.decode(records.encode(run)) for run in runs)
    assert first.agreement.lowest_cosine == pytest.approx(1.0)
    assert first.agreement_reason is None
    assert (second.agreement, second.agreement_reason.partition(" (")[0]) == (
        None,
        "agreement with a reference was not asked of this repeat",
    )
    assert first.answers.inputs >= 4
