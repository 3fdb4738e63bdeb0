"""Facts about functions that are measured in the process of their caller.

Their time is right, and what misleads is stated.
"""

import asyncio
import functools
import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec
import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError, MeasurementError
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.engine import job
from edgemeter.agent.engine.function_subject import FunctionCall, busiest_threads, measure_call
from edgemeter.agent.verdict.facts import Facts
from edgemeter.agent.verdict.judge import judge
from tests.fixtures.rows import table_row


def run_of(function, inputs=(), **settings):
    limits = {
        "repeats": 1,
        "queries": 16,
        "seconds": 0.0,
        "warm_up_seconds": 0.02,
        "idle_seconds": 0.0,
    }
    case = Case(model="function", runtime="python", **{**limits, **settings})
    work = job.RunJob(
        case=case, sha256="0" * 64, size_bytes=0, seed=0, accuracy=False, idle=False, spawned_ns=0
    )
    return measure_call(work, FunctionCall(function, inputs), lambda _: None)


def rules_of(run):
    return set(judge(Facts(run)).rules)


def work(seconds):
    time.sleep(seconds)


@pytest.mark.usefixtures("played")
def test_a_call_of_known_length_is_measured_as_long():
    """The warm-up is apart, and the error is one reading of the clock at most."""
    run = run_of(work, 0.002)
    assert (run.latency.count, run.load.samples) == (16, 16)
    assert run.latency.mean_ms == run.latency.max_ms == pytest.approx(2.0, abs=0.002)
    assert run.throughput_per_s == pytest.approx(500, rel=1e-3)
    assert (run.runtime.name, run.runtime.backend) == ("python", "in-process")


def test_calls_too_short_for_the_clock_are_timed_in_batches(played):
    """Reading the clock takes 1 us, and a query takes a thousand times that at least.

    The latency is that of a single call.
    """
    run = run_of(lambda: played.sleep(2e-6), queries=16)
    assert 500 <= run.load.samples / 16 < 1000
    assert run.load.samples % 16 == 0
    assert run.latency.p50_ms == pytest.approx(0.002, rel=0.01)
    assert run.throughput_per_s == pytest.approx(500_000, rel=0.01)
    run = run_of(work, 0.001)
    assert run.load.samples == run.latency.count


def test_inputs_are_arguments_keywords_or_the_argument():
    """A tuple holds arguments, a dict holds keywords, and any other value is the argument."""
    for inputs, call in [
        ((1, 2), ((1, 2), {})),
        ({"a": 1}, ((), {"a": 1})),
        ([1, 2], (([1, 2],), {})),
        ((), ((), {})),
    ]:
        assert FunctionCall(work, inputs).arguments == call


def count_up(numbers):
    return sum(range(numbers))


def memoised():
    """Return a function that stores its results by itself, in a dictionary."""
    stored = {}

    def function(size):
        if size not in stored:
            stored[size] = [count_up(size)]
        return stored[size]

    return function


def in_a_thread():
    """Start work and return before it is done."""
    threading.Thread(target=threading.Event().wait, args=(0.05,), daemon=True).start()
    count_up(20_000)


def test_what_misleads_is_stated():
    """A doubt is stated for each function that misleads, and none for a busy loop."""
    for function, inputs, doubt in [
        (functools.lru_cache(count_up), (200_000,), "functools"),
        (memoised(), (200_000,), "the same list"),
        (in_a_thread, (), "a thread running"),
        (list.sort, (list(range(2000, 0, -1)),), "changes its inputs"),
        (count_up, (20_000,), None),
    ]:
        with table_row(doubt):
            run = run_of(function, inputs)
            assert ("incomplete-calls" in rules_of(run)) == (doubt is not None)
            assert doubt is None or doubt in run.runtime.facts["incomplete"]


@pytest.mark.usefixtures("played")
def test_work_that_is_put_off_is_refused_or_waited_for():
    """Coroutines, generators and iterators are refused, and a future is waited for.

    The refusal is a line that says what to measure.
    """

    async def coroutine():
        await asyncio.sleep(0)

    def starts_coroutine():
        return coroutine()

    for function, inputs, words in [
        (coroutine, (), "asyncio.run"),
        (starts_coroutine, (), "asyncio.run"),
        (lambda: (number for number in range(9)), (), "list"),
        (map, (str, [1]), "list"),
        (threading.Thread, (), "wait"),
        (lambda: {"all": [iter("ab")]}, (), "list"),
    ]:
        with table_row(words), pytest.raises(ConfigError, match=words):
            run_of(function, inputs)
    with ThreadPoolExecutor(1) as pool:
        assert run_of(lambda: [pool.submit(time.sleep, 0.003)]).latency.p50_ms >= 3.0


class PutOffArray:
    """An array that is computed when it is waited for, as those of JAX are."""

    shape, dtype = (2,), "float32"

    def block_until_ready(self):
        time.sleep(0.003)


@pytest.mark.usefixtures("played")
def test_results_of_an_asynchronous_framework_are_waited_for():
    """Arrays within the returned value are waited for too."""
    run = run_of(lambda: {"logits": [PutOffArray()]})
    assert run.latency.p50_ms >= 3.0
    assert [tensor.shape for tensor in run.outputs] == [(2,)]


@pytest.mark.usefixtures("played")
def test_wrong_inputs_and_errors_of_the_function_are_one_line():
    """Wrong inputs are refused before the function is called."""
    with pytest.raises(
        ConfigError, match="does not take these inputs: missing a required argument"
    ):
        run_of(work)
    with pytest.raises(MeasurementError, match="the function raised ZeroDivisionError"):
        run_of(lambda: 1 / 0)


@pytest.mark.usefixtures("played")
def test_garbage_is_freed_while_queries_are_timed():
    """The collector is off meanwhile, and garbage in cycles must not fill the memory."""
    alive = []

    def function():
        circle = [bytes(1000)]
        circle.append(circle)
        work(0.02)
        alive.append(len(gc.get_objects(0)))

    run_of(function, queries=200)
    # The first calls show that there is garbage.
    assert max(alive[3:]) < 50 + min(alive)
    assert gc.isenabled()


def test_arrays_are_described_as_tensors():
    """The record states their shapes and types; text is part of the data's identity."""
    run = run_of(lambda image, text: (image * 2, text), (np.ones((1, 3, 8, 8), np.float32), "a"))
    assert [(tensor.shape, tensor.dtype) for tensor in (*run.inputs, *run.outputs)] == [
        ((1, 3, 8, 8), "float32")
    ] * 2
    assert run.precision == "fp32"
    # Who cannot tell the threads of a function says why.
    assert (run.runtime.threads, "PyTorch" in run.runtime.threads_reason) == (1, True)


def test_a_busy_thread_of_the_caller_is_stated():
    """The share of the time in which it ran is stated; a thread that began later is left out."""
    before_ns = {"noisy, thread 7": 100, "quiet, thread 8": 50}
    assert (
        busiest_threads(
            before_ns, before_ns | {"noisy, thread 7": 400, "late, thread 9": 999}, 1000
        )
        == "0.3000 noisy, thread 7"
    )
    run = run_of(count_up, (20_000,))
    facts = {"other_threads_ratio": "0.0600 noisy, thread 7"}
    assert "other-threads" in rules_of(
        msgspec.structs.replace(run, runtime=msgspec.structs.replace(run.runtime, facts=facts))
    )
    assert "other-threads" not in rules_of(run)
