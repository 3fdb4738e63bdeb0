"""Facts about where a run on the questions of a file ends.

A faster model is asked the same ones as a slower one, however long it has.
"""

import json
import time
from pathlib import Path

import msgspec
import pytest

from edgemeter.agent.base.errors import AnswerError
from edgemeter.agent.engine import closed_loop, measure, users
from edgemeter.agent.engine.scenarios import poisson
from edgemeter.agent.engine.stopwatch import Stopwatch
from tests.fixtures.played_servers import PlayedTextServer, measure_text
from tests.fixtures.questions import questions_case, write_questions
from tests.fixtures.run_jobs import run_job
from tests.fixtures.timing_world import Answering, plan

pytestmark = pytest.mark.usefixtures("played")

LENGTHS = (3, 500, 20, 7, 90, 260, 1)


def measured(folder: Path, step_ms: float, **settings):
    """Measure a replay of two steps of this length: at least three queries and half a second."""
    path = folder / f"{step_ms}.replay.json"
    recording = {
        "format": "edgemeter-generation-replay",
        "schema": 1,
        "queries": [{"first_ms": step_ms, "steps_ms": [step_ms]}],
    }
    path.write_text(json.dumps(recording))
    options = {"options": {"wait": "sleep"}}
    case = msgspec.structs.replace(
        questions_case(path, queries=3, output_tokens=2, **options, **settings), seconds=0.5
    )
    return measure.measure(run_job(case), time.monotonic_ns(), lambda _: None)


def write_lengths(folder: Path, lengths=LENGTHS) -> str:
    return write_questions(folder, *({"prompt": "x" * length, "answer": "y"} for length in lengths))


def test_models_of_other_speeds_are_asked_the_same_questions(tmp_path):
    """A slow model ends in its first pass, and a fast one in its 36th.

    Both are asked three queries or for half a second.
    """
    questions = write_lengths(tmp_path)
    fast, slow = (measured(tmp_path, step_ms, questions=questions) for step_ms in (1.0, 90.0))
    assert (fast.latency.count, slow.latency.count) == (36 * len(LENGTHS), len(LENGTHS))
    assert fast.generation.prompt_lengths == slow.generation.prompt_lengths


def test_a_query_that_fails_asks_no_further_pass():
    """The failed query was asked, so that six answers and a failure are a whole pass."""

    def answer(number, _):
        if number == 1:
            raise AnswerError("busy", kind="http 500")

    timed = closed_loop.run(Stopwatch(Answering(answer)), plan(queries=3, pass_queries=7))
    assert timed.numbers.tolist() == [0, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("load", [{"concurrency": 2}, {"scenario": "poisson", "rate_per_s": 100.0}])
def test_users_of_a_server_ask_whole_passes_too(monkeypatch, tmp_path, load):
    """This holds for two users, who ask 16 queries at least, and for a rate of arrivals.

    The rate brings ten queries in the time.
    """
    run = measure_text(
        monkeypatch,
        PlayedTextServer(),
        questions=write_lengths(tmp_path),
        queries=3,
        seconds=0.1,
        **load,
    )
    assert run.latency.count >= 14
    assert run.latency.count % len(LENGTHS) == 0


def test_the_time_that_is_expected_is_that_of_whole_passes():
    """At 1 s a query, a run of 10 s ends with the second pass of seven.

    Four users ask the 35 queries of five passes in nine rounds, after a first one.
    """
    assert closed_loop.seconds(
        plan(queries=3, seconds=10.0, expected_ns=10**9, pass_queries=7)
    ) == pytest.approx(14.0)
    four_users = plan(queries=3, seconds=5.0, expected_ns=10**9, pass_queries=7, users=4)
    assert users.seconds(four_users) == pytest.approx(9.0 + 1.0)
    assert (
        poisson.schedule_ns(plan(queries=3, seconds=10.0, rate_per_s=1.0, pass_queries=7)).size
        == 14
    )
