"""Figures of servers as they are met in practice equal what each server logs.

Where nothing can be known there is a reason.
"""

import gc
import statistics
import time

import pytest

from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.contract.record_generation import UNSTREAMED
from edgemeter.agent.engine.measure import measure as measure_job
from edgemeter.agent.verdict.facts import Facts
from edgemeter.agent.verdict.judge import judge
from tests.fixtures.behaving_server import BehavingServer
from tests.fixtures.in_process_http import InProcessNetwork
from tests.fixtures.record_factory import make_environment
from tests.fixtures.rows import table_row
from tests.fixtures.run_jobs import brief_case, run_job
from tests.fixtures.server_behaviours import BEHAVIOURS, STEP_MS
from tests.fixtures.still_time import stop_time

PROMPT_TOKENS, OUTPUT_TOKENS, QUERIES = 8, 12, 4
# A microsecond passes with each look at the clock.
EXACT_MS = 0.03
# The others say something of the machine that runs this test, or of so few queries.
OF_A_SERVER = {"cached-prompt", "failed-queries", "ended-early"}


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Return a function that measures a behaviour and returns the run and the server's log.

    The log has the answers to the timed queries.
    """
    stop_time(monkeypatch, look_ns=1_000)
    # Before each timed part: most of what a run of milliseconds costs.
    monkeypatch.setattr(gc, "collect", lambda *_: 0)
    network = InProcessNetwork(monkeypatch)

    def measure(behaviour):
        server = BehavingServer(behaviour)
        path = tmp_path / "m.server"
        path.write_text(f'url = "{network.listen(server.connect)}"\n{behaviour.file}')
        case = brief_case(
            path, prompt_tokens=PROMPT_TOKENS, output_tokens=OUTPUT_TOKENS, queries=QUERIES
        )
        job = run_job(case, spawned_ns=time.monotonic_ns())
        run = measure_job(job, time.monotonic_ns(), lambda _: None)
        long = [answer for answer in server.log if answer.limit == OUTPUT_TOKENS and answer.writes]
        if run.load.failed_queries:
            return run, [
                answer
                for answer in long
                if answer.tokens == OUTPUT_TOKENS and len(answer.writes) > 1
            ]
        # The last four repeat two others.
        return run, long[-run.latency.count - 4 : -4]

    return measure


def behaviours(outcome):
    """Return the behaviours of which a client can state this."""
    return [
        (name, behaviour) for name, behaviour in BEHAVIOURS.items() if behaviour.outcome == outcome
    ]


def violated(run):
    judged = judge(Facts(run, (), make_environment()))
    return OF_A_SERVER & {violation.rule for violation in (*judged.violations, *judged.notes)}


@pytest.mark.parametrize("outcome", ["times", "failures"])
def test_tokens_and_times_are_those_of_the_servers_log(measured, outcome):
    """The figures hold for every form of answer, and beside queries that fail."""
    for name, behaviour in behaviours(outcome):
        with table_row(name):
            run, log = measured(behaviour)
            generation = run.generation
            assert violated(run) == set(behaviour.rules)
            expected = (
                OUTPUT_TOKENS
                if behaviour.tokens is None
                else max(OUTPUT_TOKENS * behaviour.tokens, 1)
            )
            assert generation.output_lengths.mean_tokens == pytest.approx(expected)
            assert list(run.load.failures) == (
                [behaviour.detail] if behaviour.outcome == "failures" else []
            )
            assert generation.ttft.mean_ms == pytest.approx(
                statistics.fmean(answer.ttft_ms for answer in log), abs=EXACT_MS
            )
            tpot_ms = [answer.tpot_ms for answer in log if answer.tpot_ms is not None]
            assert (generation.tpot is None) == (not tpot_ms)
            # The tokens of pieces that hold several are estimated by their length.
            if tpot_ms and generation.itl is not None:
                assert generation.tpot.mean_ms == pytest.approx(
                    statistics.mean(tpot_ms), abs=EXACT_MS
                )


def test_what_comes_at_once_has_no_times(measured):
    """The run has a reason in place of times, and its tokens are counted."""
    for name, behaviour in behaviours("no times"):
        with table_row(name):
            run, _ = measured(behaviour)
            generation = run.generation
            assert violated(run) == set(behaviour.rules)
            assert (generation.ttft, generation.tpot, generation.decode_tokens_per_s) == (
                None,
                None,
                None,
            )
            assert run.reasons[UNSTREAMED]
            assert generation.output_lengths.mean_tokens == OUTPUT_TOKENS


def test_a_server_that_sends_comments_and_never_a_token_is_given_up(measured):
    """The query is given up after `timeout_s`, however many comments arrive."""
    with pytest.raises(EdgemeterError, match=r"no token for 0\.4 s"):
        measured(BEHAVIOURS["comments, never a token"])


def test_hidden_reasoning_is_in_the_time_to_first_token_and_not_in_that_of_the_others(measured):
    """Hidden reasoning lengthens the time to first token, and no other token's time.

    Six of twelve tokens are hidden thoughts; the five steps after the first piece are one token
    each, of 2 ms.
    """
    generation = measured(BEHAVIOURS["hidden reasoning"])[0].generation
    assert (generation.ttft.mean_ms, generation.tpot.mean_ms) == pytest.approx(
        (9 * STEP_MS, STEP_MS), abs=EXACT_MS
    )
    assert (
        generation.hidden_reasoning_tokens,
        generation.prefill_tokens_per_s,
        generation.itl,
    ) == (6, None, None)
