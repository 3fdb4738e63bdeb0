"""The replay generator: it plays recorded moments, and what a recording says of a model."""

import time
from pathlib import Path

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.generators import Limits
from edgemeter.agent.generators.replay import ReplayGenerator
from edgemeter.agent.runtimes import Options
from tests.fixtures.still_time import stop_time

RECORDING = {
    "format": "edgemeter-generation-replay",
    "schema": 1,
    "queries": [
        {"first_ms": 3.0, "steps_ms": [1.0, 2.0]},
        {"first_ms": 1.0, "steps_ms": [0.5], "step_tokens": 3},
    ],
    "prefill_ms_per_token": 0.5,
}


@pytest.fixture(autouse=True)
def _time(monkeypatch):
    stop_time(monkeypatch, look_ns=1_000)


def opened(folder: Path, **changes: object) -> ReplayGenerator:
    """Return a generator that has loaded a recording with these changes."""
    path = folder / "model.replay.json"
    path.write_bytes(msgspec.json.encode(RECORDING | changes))
    generator = ReplayGenerator()
    generator.load(path, Options(), 64)
    return generator


def stamps_of(
    generator: ReplayGenerator, output_tokens: int, prompt: list[int]
) -> list[tuple[float, int]]:
    """Return the stamps of a query: ms after its start, tokens."""
    query = generator.bind(prompt, Limits(output_tokens))
    stamps: list[tuple[float, int]] = []
    begin = time.monotonic_ns()
    query(lambda count: stamps.append(((time.monotonic_ns() - begin) / 1e6, count)))
    return stamps


def test_stamps_come_as_recorded_and_queries_take_turns(tmp_path):
    """The first token comes after the prompt's time, and each query replays the next recording.

    Recorded steps repeat when a query is longer than its recording.
    """
    generator = opened(tmp_path)
    first, second = stamps_of(generator, 4, [1, 2]), stamps_of(generator, 4, [1, 2])
    assert [count for _, count in first] == [1, 1, 1, 1]
    assert [at for at, _ in first] == pytest.approx([4.0, 5.0, 7.0, 8.0], abs=0.01)
    assert [count for _, count in second] == [3, 1]
    assert [at for at, _ in second] == pytest.approx([2.0, 2.5], abs=0.01)


def test_a_recorded_end_of_text_ends_a_query_early(tmp_path):
    """The replay stops at an end of text at which the recorded engine stopped."""
    answer = opened(tmp_path, end_after_tokens=2).bind([1], Limits(5))(lambda _: None)
    assert (answer.output_tokens, answer.ended) == (2, "end_of_text")


def test_a_wrong_key_is_named(tmp_path):
    """A recording with a misspelt key is refused, and the error names the key."""
    with pytest.raises(ConfigError, match="frist_ms"):
        opened(tmp_path, queries=[{"frist_ms": 1.0, "steps_ms": [1.0]}])
