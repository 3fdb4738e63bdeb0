"""Facts about where a run on prompts of a file ends: a faster model is asked the same prompts as a slower one, however long it has."""

import json
import time
from pathlib import Path

import msgspec
import pytest

from edgemeter.agent.base.errors import AnswerError
from edgemeter.agent.engine import closed_loop, measure
from edgemeter.agent.engine.prompts.case_prompts import CasePrompts
from edgemeter.agent.engine.prompts.prompt_file import read_prompts
from edgemeter.agent.engine.scenarios import closed, poisson
from edgemeter.agent.engine.stopwatch import Stopwatch
from tests.fixtures.played_servers import PlayedTextServer, measure_text
from tests.fixtures.played_time import play_time
from tests.fixtures.real_prompts import prompts_case, write_prompts
from tests.fixtures.run_jobs import run_job
from tests.fixtures.timing_world import Answering, plan

LENGTHS = (3, 500, 20, 7, 90, 260, 1)


@pytest.fixture(autouse=True)
def _played(monkeypatch):
    play_time(monkeypatch)


def measured(folder: Path, step_ms: float, **settings):
    """Measure a replay of two steps of this length: at least three queries and half a second."""
    path = folder / f"{step_ms}.replay.json"
    recording = {"format": "edgemeter-generation-replay", "schema": 1, "queries": [{"first_ms": step_ms, "steps_ms": [step_ms]}]}
    path.write_text(json.dumps(recording))
    options = {"options": {"wait": "sleep"}}
    case = msgspec.structs.replace(prompts_case(path, queries=3, output_tokens=2, **options, **settings), seconds=0.5)
    return measure.measure(run_job(case), time.monotonic_ns(), lambda _: None)


def write_lengths(folder: Path, lengths=LENGTHS) -> str:
    """Write prompts of these lengths."""
    return write_prompts(folder, *({"prompt": "x" * length} for length in lengths))


def test_models_of_other_speeds_are_asked_the_same_prompts(tmp_path):
    """Three queries and half a second end within the first pass of a slow model, and in the 36th of a fast one."""
    prompts = write_lengths(tmp_path)
    fast, slow = (measured(tmp_path, step_ms, prompts=prompts) for step_ms in (1.0, 90.0))
    assert (fast.latency.count, slow.latency.count) == (36 * len(LENGTHS), len(LENGTHS))
    assert fast.generation.prompt_lengths == slow.generation.prompt_lengths


def test_a_query_that_fails_asks_no_further_pass():
    """It was asked, and what was asked is whole: six answers and a failure."""

    def answer(number, _):
        if number == 1:
            raise AnswerError("busy", kind="http 500")

    timed = closed_loop.run(Stopwatch(Answering(answer)), plan(queries=3, pass_queries=7))
    assert timed.numbers.tolist() == [0, 2, 3, 4, 5, 6]


def test_of_a_long_file_every_model_is_asked_as_many_prompts(tmp_path):
    """A pass of 60 would take 20 times the three queries: these end the run, so that the fast model is asked what the slow one is."""
    prompts = write_lengths(tmp_path, range(1, 61))
    fast, slow = (measured(tmp_path, step_ms, prompts=prompts) for step_ms in (1.0, 90.0))
    assert (fast.latency.count, slow.latency.count) == (3, 3)
    assert fast.generation.prompt_lengths == slow.generation.prompt_lengths


@pytest.mark.parametrize("load", [{"concurrency": 2}, {"scenario": "poisson", "rate_per_s": 100.0}])
def test_users_of_a_server_ask_whole_passes_too(monkeypatch, tmp_path, load):
    """Of two users, who ask 16 queries at least, and at a rate that brings ten in the time."""
    run = measure_text(monkeypatch, PlayedTextServer(), prompts=write_lengths(tmp_path), queries=3, seconds=0.1, **load)
    assert run.latency.count >= 14
    assert run.latency.count % len(LENGTHS) == 0


def test_a_run_over_the_time_lasts_for_its_time(tmp_path):
    """Sustained is about the time, also of a long file; questions that are scored are asked whole, however many there are."""
    prompts = write_lengths(tmp_path, range(1, 61))
    for mode, seconds in (("quick", 0.0), ("sustained", 1800.0)):
        case = msgspec.structs.replace(prompts_case(tmp_path / "m.gguf", mode=mode, prompts=prompts, queries=3), seconds=seconds or 10.0)
        long = CasePrompts(case, 100, read_prompts(prompts, None, 0))
        assert (long.seconds, long.pass_queries) == (seconds, 1)
    questions = write_prompts(tmp_path, *({"prompt": "x" * length, "answer": "y"} for length in range(1, 61)))
    case = msgspec.structs.replace(case, mode="quick", prompts=questions)
    scored = CasePrompts(case, 100, read_prompts(questions, None, 0))
    assert (scored.seconds, scored.pass_queries) == (1800.0, 60)


def test_the_time_that_is_expected_is_that_of_whole_passes():
    """At 1 s a query 10 s end with the second pass of seven; four users ask the 35 of five passes in nine rounds, after a first one."""
    assert closed.seconds(plan(queries=3, seconds=10.0, expected_ns=10**9, pass_queries=7)) == pytest.approx(14.0)
    users = plan(queries=3, seconds=5.0, expected_ns=10**9, pass_queries=7, users=4)
    assert closed.users_seconds(users) == pytest.approx(9.0 + 1.0)
    assert poisson.schedule_ns(plan(queries=3, seconds=10.0, rate_per_s=1.0, pass_queries=7)).size == 14
