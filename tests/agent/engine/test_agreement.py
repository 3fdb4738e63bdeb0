"""Facts about `edgemeter.agent.engine.agreement`: which outputs are the same, and those of other kernels on the same model."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pytest

from edgemeter.agent import runtimes
from edgemeter.agent.contract import case_settings, record
from edgemeter.agent.contract import suite as contract_suite
from edgemeter.agent.contract.record_accuracy import OutputCheck
from edgemeter.agent.engine import reference_process
from edgemeter.agent.engine.agreement import (
    INPUTS,
    OutputDifference,
    TimedQuery,
    agree,
    choose_reference,
    output_difference,
    summarise_check,
)
from edgemeter.agent.session import session
from tests.fixtures.run_jobs import one_case, run_sandboxed_reference

MODELS = Path(__file__).parents[2] / "fixtures" / "runtimes"
PLAIN = {"graph_optimisation": "none"}


def timed(model, count=2, *, change=None, **settings):
    """Return the case, what was loaded, and queries as the timed part keeps them; `change` alters what was answered."""
    case = one_case(model, **settings)
    runtime = runtimes.create(case.runtime)
    loaded = runtime.load(Path(case.model), runtimes.Options(extra=case.options, backend=case.backend))
    draw = np.random.default_rng(2)
    queries = []
    for item in range(count):
        inputs = [(draw.random((1, 4)) * 20).astype(loaded.inputs[0].dtype)]
        runtime.bind(inputs)()
        queries.append(TimedQuery(item, inputs, [change(array) if change else array for array in runtime.outputs()]))
    runtime.close()
    return case, loaded, queries


def agree_here(*arguments):
    """Compare with a reference that runs in this process."""
    return agree(*arguments, lambda folder, _: str(reference_process.main(folder) or ""))


@pytest.mark.parametrize(("model", "reference"), [("litert_int8.tflite", " reference"), ("onnx.onnx", " cpu, graph_optimisation none")])
def test_sound_kernels_agree_with_the_reference(model, reference):
    """The same file on other kernels gives the same, to rounding; the record states package, version and kernels."""
    case, loaded, queries = timed(MODELS / model)
    agreement, why = agree_here(case, loaded, 1.0, queries, None)
    assert why is None
    assert agreement.reference.endswith(reference)
    assert any(sign.isdigit() for sign in agreement.reference)
    assert (agreement.inputs, agreement.same_answer_ratio) == (2, None)
    # One step of the int8 output is 0.25 real units; floats are equal.
    assert agreement.largest_difference <= (0.25 if "int8" in model else 1e-6)
    assert agreement.lowest_cosine == pytest.approx(1.0, abs=1e-3)


def test_wrong_kernels_do_not_agree():
    """Outputs of the other sign: a cosine of -1, and a difference of twice the largest value, in real values."""
    case, loaded, queries = timed(MODELS / "onnx.onnx", change=lambda array: -array)
    agreement, _ = agree_here(case, loaded, 1.0, queries, None)
    largest = max(float(np.abs(query.outputs[0]).max()) for query in queries)
    assert agreement.lowest_cosine == pytest.approx(-1.0)
    assert agreement.largest_difference == pytest.approx(2 * largest, rel=1e-5)
    assert agreement.largest_difference_ratio == pytest.approx(2.0, rel=1e-5)


def test_predictions_are_compared_where_there_is_a_task():
    """The mean over inputs, of those that are known, and of no more than a few inputs."""
    calls = []

    def same_answer(item, timed, reference):
        calls.append((item, timed[0].shape, reference[0].shape))
        return {0: 1.0, 1: None, 2: 0.5, 3: 0.0}[item]

    case, loaded, queries = timed(MODELS / "onnx.onnx", INPUTS + 3)
    agreement, _ = agree_here(case, loaded, 1.0, queries, same_answer)
    assert (agreement.inputs, agreement.same_answer_ratio) == (INPUTS, 0.5)
    assert calls == [(item, (1, 4), (1, 4)) for item in range(INPUTS)]


def test_outputs_that_are_no_numbers_have_no_figure():
    """NaN on our side: no differences are stated, and the record holds nothing that JSON cannot hold."""
    case, loaded, queries = timed(MODELS / "onnx.onnx", change=lambda array: array * np.float32("nan"))
    agreement, _ = agree_here(case, loaded, 1.0, queries, None)
    assert (agreement.largest_difference, agreement.largest_difference_ratio, agreement.lowest_cosine) == (None, None, None)


@pytest.mark.services
def test_a_reference_that_takes_too_long_or_breaks_is_a_reason(tmp_path):
    """It runs in the sandbox of the run, which is not lost: the record states what was tried, and the result."""
    case, loaded, queries = timed(MODELS / "onnx.onnx")
    run_reference = partial(run_sandboxed_reference, case)
    agreement, why = agree(case, loaded, 1.0, queries, None, run_reference)
    assert (agreement.inputs, why) == (2, None)
    agreement, why = agree(case, loaded, 1.0, queries, None, run_reference, limit_s=0.01)
    assert agreement is None
    assert why.endswith("returned no outputs: it took longer than 0.01 s")
    (tmp_path / "broken.onnx").write_bytes(b"not a model")
    broken = msgspec.structs.replace(case, model=str(tmp_path / "broken.onnx"))
    agreement, why = agree(broken, loaded, 1.0, queries, None, partial(run_sandboxed_reference, broken))
    assert agreement is None
    assert "broken.onnx" in why


def test_the_reference_is_never_what_was_timed():
    """Other kernels of the same runtime, or a reason."""
    for timed_on, expected in [
        (("litert", "xnnpack", {}, False), ("reference", {})),
        (("litert", "xnnpack", {}, True), ("builtin", {})),
        (("litert", "builtin", {}, True), "too slow"),
        (("litert", "reference", {}, False), "the timed ones are the reference"),
        (("onnx", "cpu", {}, False), ("cpu", PLAIN)),
        (("onnx", "tensorrt", PLAIN, True), ("cpu", PLAIN)),
        (("pytorch", "cuda", {"onednn": "off"}, False), ("cpu", {"onednn": "off"})),
        (("replay", "replay", {}, False), "runs no model"),
        (("somebodys", "npu", {}, False), "'somebodys'"),
    ]:
        runtime, backend, options, is_slow = timed_on
        reference = choose_reference(runtime, backend, options, is_slow=is_slow)
        assert expected in reference if isinstance(expected, str) else reference == expected, f"{timed_on!r}"


@pytest.mark.services
def test_the_record_carries_the_agreement_of_the_first_repeat(tmp_path):
    """In a session of two repeats the first compares, the second states why not; both are recorded."""
    settings = case_settings.Settings(model=str(MODELS / "onnx.onnx"), mode="rapid", repeats=2, agreement="first")
    suite = contract_suite.expand(contract_suite.SuiteFile(name="s", case=[settings]), tmp_path)
    runs = list(session.measure(suite, session.DeviceIdentity("bench", "lab"), {}, "none", lambda _: None))
    first, second = (record.decode(record.encode(run)) for run in runs)
    assert first.agreement.lowest_cosine == pytest.approx(1.0)
    assert first.agreement_reason is None
    assert (second.agreement, second.agreement_reason.partition(" (")[0]) == (
        None,
        "agreement with a reference was not requested for this repeat",
    )
    assert first.answers.inputs >= 4


RNG = np.random.default_rng(0)
FLOATS = RNG.normal(size=(1, 6, 40)).astype(np.float32)
NAN = np.array([1.0, np.nan, 3.0], np.float32)


def changed(array, index, value):
    """Return a copy with one value changed."""
    copy = array.copy()
    copy[index] = value
    return copy


def test_equal_outputs_are_identical_even_where_they_are_no_numbers():
    """The same NaN in the same place is the same answer; whether NaN may be there is another question."""
    for arrays in ([FLOATS], [NAN], [np.array([np.inf, -np.inf])], [], [np.zeros((1, 0, 6), np.float32)], [np.array(["a", "b"])]):
        assert output_difference(arrays, [array.copy() for array in arrays]) == OutputDifference(is_identical=True, ratio=0.0)


def test_what_cannot_be_subtracted_differs():
    """Another shape or number of tensors, NaN on one side, infinity of the other sign, something where nothing was."""
    for outputs, other in [
        ([np.zeros((1, 3, 6))], [np.zeros((1, 4, 6))]),
        ([FLOATS], [FLOATS, FLOATS]),
        ([NAN], [np.array([1.0, 2.0, 3.0], np.float32)]),
        ([np.array([1.0, 2.0])], [np.array([1.0, np.inf])]),
        ([np.zeros(3)], [np.array([0.0, 1e-9, 0.0])]),
    ]:
        difference = output_difference(outputs, other)
        assert (difference.is_identical, difference.ratio, difference.is_rounding) == (False, None, False), f"{outputs!r}, {other!r}"


def test_rounding_is_distinguished_from_a_changed_value():
    """Another order of summing moves the sixth digit of floats; integers have no noise, and a channel is judged by its own values."""
    noisy = (FLOATS * (1 + 1e-6 * RNG.normal(size=FLOATS.shape))).astype(np.float32)
    integers = np.arange(100, dtype=np.int8)
    # A YOLO's one tensor: its boxes reach 640, by which a score that is wrong by 0.5 would be rounding.
    tensor = np.zeros((1, 84, 840), np.float32)
    tensor[0, :4] = RNG.uniform(0, 640, (4, 840))
    tensor[0, 4:] = RNG.uniform(0, 1, (80, 840))
    # Of a class that the photograph does not show all scores are noise.
    tensor[0, 20] = 1e-7
    for name, outputs, other, is_rounding in [
        ("float kernels", FLOATS, noisy, True),
        ("one value of 240", FLOATS, changed(FLOATS, (0, 3, 7), FLOATS[0, 3, 7] + 0.1), False),
        ("one step of an integer", integers, changed(integers, 50, 51), False),
        ("a score beside boxes in pixels", tensor, changed(tensor, (0, 10, 5), tensor[0, 10, 5] + 0.5), False),
        ("a score of a class that is not there", tensor, changed(tensor, (0, 20, 5), 3e-7), True),
    ]:
        difference = output_difference([outputs], [other])
        assert (difference.is_rounding, difference.is_identical) == (is_rounding, False), name


def test_outputs_of_another_order_are_the_same_when_the_predictions_are():
    """Suppression inside a model may swap two boxes; without a look at the answers that is a difference."""
    swapped = output_difference([np.array([[1.0, 2.0]])], [np.array([[2.0, 1.0]])])
    check = summarise_check([replace(swapped, common_ratio=ratio) for ratio in (1.0, 0.98, None)])
    assert check == OutputCheck(compared=3, identical=0, worst_ratio=0.5, differing=2)
    assert summarise_check([]) == OutputCheck(compared=0, identical=0, worst_ratio=None, differing=0)
