"""A replay lasts as long as recorded and gives the recorded outputs.

Mistakes in a recording are named.
"""

import json
import time

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.runtimes import Options
from edgemeter.agent.runtimes.replay import ReplayRuntime
from tests.fixtures.rows import table_row
from tests.fixtures.still_time import stop_time

MINIMAL = {"format": "edgemeter-replay", "schema": 1, "latencies_ms": [0.1], "inputs": []}


@pytest.fixture
def recording(tmp_path):
    """Return a function that writes a recording of MINIMAL and what is given."""

    def write(**settings):
        path = tmp_path / "model.replay.json"
        path.write_text(json.dumps({**MINIMAL, **settings}))
        return path

    return write


@pytest.fixture(autouse=True)
def _still(monkeypatch):
    """Stop the clock, but for a microsecond with each look at it."""
    stop_time(monkeypatch, look_ns=1_000)


def played(path, count, **extra):
    runtime = ReplayRuntime()
    runtime.load(path, Options(extra=extra))
    call = runtime.bind([])
    durations = []
    for _ in range(count):
        started_ns = time.monotonic_ns()
        call()
        durations.append((time.monotonic_ns() - started_ns) / 1e6)
    return durations


def test_calls_last_as_recorded_in_turn(recording):
    """The first call follows the last, whether calls spin before their end or sleep until it."""
    for wait in ("spin", "sleep"):
        assert played(recording(latencies_ms=[1, 2, 3]), 7, wait=wait) == pytest.approx(
            [1, 2, 3, 1, 2, 3, 1], abs=0.01
        )


def test_before_its_end_a_call_sleeps_no_more_unless_it_may_not_spin(recording, monkeypatch):
    """A call spins in its last half millisecond, since a sleep may end late.

    Hundreds of simulated devices share a processor, and only sleep.
    """
    slept, sleep = [], time.sleep
    monkeypatch.setattr(
        time, "sleep", lambda seconds: (slept.append(seconds * 1e3), sleep(seconds))
    )
    path = recording(latencies_ms=[5.0])
    played(path, 1)
    played(path, 1, wait="sleep")
    assert slept == pytest.approx([4.5, 5.0], abs=0.01)


def test_a_seed_shuffles_each_round_and_always_the_same_way(recording):
    """Every round holds every latency, and each seed gives its own fixed order."""
    latencies_ms = list(range(1, 21))
    seeded, repeated, other = (
        [
            round(latency_ms)
            for latency_ms in played(recording(latencies_ms=latencies_ms, seed=seed), 40)
        ]
        for seed in (7, 7, 8)
    )
    assert seeded == repeated != other
    assert sorted(seeded[:20]) == sorted(seeded[20:]) == latencies_ms
    assert seeded[:20] != seeded[20:] != latencies_ms


def test_loading_and_the_first_call_last_as_recorded(recording):
    """A cold start is slower, once."""
    path = recording(latencies_ms=[1.0], first_ms=5.0, load_ms=8.0)
    assert ReplayRuntime().load(path, Options()).load_ns == pytest.approx(8_000_000, abs=10_000)
    assert played(path, 3) == pytest.approx([5.0, 1.0, 1.0], abs=0.01)


def test_outputs_are_recorded_values_or_zeros(recording):
    """Values have the recorded dtype and shape."""
    path = recording(
        outputs=[
            {
                "name": "boxes",
                "shape": [1, 2],
                "dtype": "uint8",
                "values": [0, 255],
                "scale": 0.5,
                "zero_point": 3,
            },
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
    # Nobody takes a replay for a measurement of a library.
    assert (loaded.package, loaded.backend, loaded.import_ns) == ("edgemeter", "replay", 0)


def test_what_is_wrong_with_a_recording_is_named(recording):
    """The message leads to the key or to the setting."""
    with pytest.raises(ConfigError, match="choose spin or sleep"):
        ReplayRuntime().load(recording(), Options(extra={"wait": "pray"}))
    for change, words in [
        ({"latencies_ms": []}, r"latencies_ms"),
        ({"latencies_ms": [-1]}, r"latencies_ms"),
        ({"latencies": [1]}, r"unknown field `latencies`"),
        ({"schema": 2}, r"schema"),
        ({"inputs": [{"name": "x", "shape": [-1], "dtype": "uint8"}]}, r"inputs"),
        (
            {"outputs": [{"name": "y", "shape": [2], "dtype": "uint8", "values": [1]}]},
            r"has 1 values, its shape \[2\] takes 2",
        ),
        (
            {"outputs": [{"name": "y", "shape": [1], "dtype": "uint8", "values": [256]}]},
            r"a value that uint8 cannot hold",
        ),
    ]:
        with table_row(change), pytest.raises(ConfigError, match=words) as refusal:
            ReplayRuntime().load(recording(**change), Options())
        assert "\n" not in str(refusal.value), f"{change!r}"
