"""Replay: lasts as long as recorded, gives what was recorded, and says what is wrong with a recording."""

import json
import math
import time

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.runtimes import Options
from edgemeter.agent.runtimes.replay import ReplayRuntime
from tests.fixtures.rows import table_row

MINIMAL = {"format": "edgemeter-replay", "schema": 1, "latencies_ms": [0.1], "inputs": []}


@pytest.fixture
def recording(tmp_path):
    """Return a function that writes a recording of MINIMAL and what is given."""

    def write(**settings):
        path = tmp_path / "model.replay.json"
        path.write_text(json.dumps({**MINIMAL, **settings}))
        return path

    return write


def played(path, count, **extra):
    """Return how long each of `count` calls lasted, in ms."""
    runtime = ReplayRuntime()
    runtime.load(path, Options(extra=extra))
    call = runtime.bind([])
    durations = []
    for _ in range(count):
        started_ns = time.perf_counter_ns()
        call()
        durations.append((time.perf_counter_ns() - started_ns) / 1e6)
    return durations


def test_no_call_is_shorter_than_recorded_and_most_are_not_longer(recording):
    """Whatever else the machine does, the quickest of repeated calls is within 0.2 ms of the recording."""
    latencies_ms = [1.0, 3.0, 2.0]
    path = recording(latencies_ms=latencies_ms)
    shortest = [math.inf] * 3
    # A busy machine delays most calls; it takes more of them until one is left alone.
    for _ in range(100):
        durations = played(path, 30)
        shortest = [min(shortest_ms, *durations[index::3]) for index, shortest_ms in enumerate(shortest)]
        if all(duration_ms < latency_ms + 0.2 for duration_ms, latency_ms in zip(shortest, latencies_ms, strict=True)):
            break
    for duration_ms, latency_ms in zip(shortest, latencies_ms, strict=True):
        assert latency_ms <= duration_ms < latency_ms + 0.2


def test_sleeping_alone_is_never_short_either(recording):
    """Without spinning a call is late, not early."""
    assert min(played(recording(latencies_ms=[1.0]), 10, wait="sleep")) >= 1.0


def test_sleeping_costs_the_processor_less_than_it_lasts(recording):
    """Hundreds of simulated devices share a processor."""
    path = recording(latencies_ms=[5.0])
    before_ns = time.process_time_ns()
    played(path, 20, wait="sleep")
    assert time.process_time_ns() - before_ns < 50_000_000


def order(path, count):
    """Return the first `count` latencies that a fresh replay is going to play, in ms."""
    runtime = ReplayRuntime()
    runtime.load(path, Options())
    return [next(runtime._latencies_ns) / 1e6 for _ in range(count)]


def test_without_a_seed_latencies_come_in_order_again_and_again(recording):
    """After the last comes the first."""
    assert order(recording(latencies_ms=[1, 2, 3]), 7) == [1, 2, 3, 1, 2, 3, 1]


def test_a_seed_shuffles_each_round_and_always_the_same_way(recording):
    """Every round holds every latency; the same seed gives the same order, another seed another."""
    latencies_ms = list(range(1, 21))
    seeded = order(recording(latencies_ms=latencies_ms, seed=7), 40)
    assert seeded == order(recording(latencies_ms=latencies_ms, seed=7), 40)
    assert sorted(seeded[:20]) == sorted(seeded[20:]) == latencies_ms
    assert seeded[:20] != seeded[20:] != latencies_ms
    assert seeded != order(recording(latencies_ms=latencies_ms, seed=8), 40)


def test_loading_and_the_first_call_last_as_recorded(recording):
    """A cold start is slower, once."""
    path = recording(latencies_ms=[1.0], first_ms=5.0, load_ms=8.0)
    assert ReplayRuntime().load(path, Options()).load_ns >= 8_000_000
    assert order(path, 3) == [5.0, 1.0, 1.0]


def test_outputs_are_recorded_values_or_zeros(recording):
    """Values have the dtype and shape that was recorded."""
    path = recording(
        outputs=[
            {"name": "boxes", "shape": [1, 2], "dtype": "uint8", "values": [0, 255], "scale": 0.5, "zero_point": 3},
            {"name": "scores", "shape": [2, 3], "dtype": "float32"},
        ]
    )
    runtime = ReplayRuntime()
    loaded = runtime.load(path, Options())
    runtime.bind([])()
    boxes, scores = runtime.outputs()
    assert (boxes.dtype, boxes.tolist()) == (np.uint8, [[0, 255]])
    assert (scores.dtype, scores.tolist()) == (np.float32, [[0, 0, 0]] * 2)
    assert (loaded.outputs[0].scale, loaded.outputs[0].zero_point) == (0.5, 3)


def test_it_is_labelled_as_what_it_is(recording):
    """Nobody takes a replay for a measurement of a library."""
    loaded = ReplayRuntime().load(recording(), Options())
    assert (loaded.package, loaded.backend, loaded.import_ns) == ("edgemeter", "replay", 0)


def test_what_is_wrong_with_a_recording_is_named(recording):
    """The message leads to the key."""
    for change, words in [
        ({"latencies_ms": []}, r"latencies_ms"),
        ({"latencies_ms": [-1]}, r"latencies_ms"),
        ({"latencies": [1]}, r"unknown field `latencies`"),
        ({"schema": 2}, r"schema"),
        ({"inputs": [{"name": "x", "shape": [-1], "dtype": "uint8"}]}, r"inputs"),
        ({"outputs": [{"name": "y", "shape": [2], "dtype": "uint8", "values": [1]}]}, r"has 1 values, its shape \[2\] takes 2"),
        ({"outputs": [{"name": "y", "shape": [1], "dtype": "uint8", "values": [256]}]}, r"a value that uint8 cannot hold"),
    ]:
        with table_row(change), pytest.raises(ConfigError, match=words) as refusal:
            ReplayRuntime().load(recording(**change), Options())
        assert "\n" not in str(refusal.value), f"{change!r}"


def test_another_way_of_waiting_is_refused(recording):
    """Only spin and sleep."""
    with pytest.raises(ConfigError, match="choose spin or sleep"):
        ReplayRuntime().load(recording(), Options(extra={"wait": "pray"}))
