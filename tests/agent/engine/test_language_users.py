"""Facts about users of a language model behind a server.

They come by the schedule, and their times count from it.
"""

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from edgemeter.agent import generators
from edgemeter.agent.base.errors import AnswerError, MeasurementError
from edgemeter.agent.bundle.recompute import recompute
from edgemeter.agent.contract import samples
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_generation import EMPTY_ANSWER
from edgemeter.agent.contract.suite import Suite
from edgemeter.agent.engine import users
from edgemeter.agent.engine.language_subject import (
    LanguageSubject,
    TextAnswer,
    moments_of,
    with_cached,
    without_unstreamed,
)
from edgemeter.agent.engine.scenarios import poisson
from edgemeter.agent.engine.scenarios.generation_statistics import tpot_ns
from edgemeter.agent.engine.scenarios.timing import TimedQueries, TimingPlan
from edgemeter.agent.engine.stopwatch import Stopwatch
from edgemeter.agent.engine.subject import ARRIVAL
from edgemeter.agent.generators import Generated
from edgemeter.agent.session import session
from tests.fixtures.language_server import llama_cpp_server
from tests.fixtures.played_servers import PlayedTextServer, busy, measure_text
from tests.fixtures.played_time import LOOK_NS
from tests.fixtures.questions import write_questions
from tests.fixtures.rows import table_row
from tests.fixtures.run_jobs import brief_case, run_job

SHIPPED = Path(__file__).resolve().parents[3] / "models" / "language" / "edgemeter-notes_q8_0.gguf"
MS = 1_000_000
# The server's time to the first of four tokens, and for a whole answer.
FIRST_MS, ANSWER_MS = 20, 23
ALONE = {"seconds": 0.0}
ARRIVALS = {"scenario": "poisson", "rate_per_s": 30.0}


def paused_ms(run):
    begins_ns, ends_ns = (
        samples.unpack(each)
        for name in ("pause_start", "pause_end")
        for each in run.samples
        if each.name == name
    )
    return (ends_ns - begins_ns).sum() / MS


@pytest.fixture
def measured(monkeypatch, played):
    """Return a function that measures a case against a server.

    `refuse` may refuse the nth request. The function returns the run and the server.
    """
    del played

    def measure(refuse=lambda _: None, **settings):
        server = PlayedTextServer(refuse)
        return measure_text(monkeypatch, server, **settings), server

    return measure


def test_arrivals_are_those_drawn_before_and_prompts_are_never_the_same(measured):
    """Rates count tokens over the time that passed, and not over times that overlap.

    The wait after an arrival is in the times.
    """
    run, server = measured(scenario="poisson", rate_per_s=25.0, queries=12)
    raw = {each.name: samples.unpack(each) for each in run.samples}
    due = poisson.schedule_ns(TimingPlan(12, 0.0, 0, 5, rate_per_s=25.0))
    assert np.array_equal(raw["arrival"], due)
    assert np.all(raw["query_start"] >= raw["arrival"])
    assert np.all(raw["latency"] >= ANSWER_MS * MS)
    window_s = run.timed.length_ns / 1e9
    assert run.throughput_per_s == pytest.approx(12 / window_s)
    assert run.generation.prefill_tokens_per_s == pytest.approx(12 * 8 / window_s)
    assert run.generation.decode_tokens_per_s == pytest.approx(12 * 3 / window_s)
    assert run.generation.output_tokens_per_s == pytest.approx(12 * 4 / window_s)
    assert (run.load.target_per_s, run.load.unserved) == (25.0, 0)
    assert len(set(server.prompts)) == len(server.prompts) - 2 * run.output_check.compared


def subject_of(monkeypatch, server):
    monkeypatch.setattr(generators, "create", lambda _: server)
    subject = LanguageSubject(run_job(brief_case("m.server", prompt_tokens=8, output_tokens=4)))
    subject.load()
    return subject


def test_a_query_that_is_sent_late_is_late_in_its_times(monkeypatch, played):
    """Half a second between arrival and send is in TTFT and in the latency, not in TPOT.

    Thus there is no coordinated omission.
    """
    subject = subject_of(monkeypatch, PlayedTextServer())
    watch = Stopwatch(subject)
    watch.ask(0, ARRIVAL, played.now_ns - 500 * MS)
    timed = watch.timed(0)
    assert timed.starts_ns[0] - timed.arrivals_ns[0] == pytest.approx(500 * MS, abs=4 * LOOK_NS)
    moments = moments_of(timed, subject.answers)
    assert moments.first_ns[0] == pytest.approx((500 + FIRST_MS) * MS, abs=6 * LOOK_NS)
    assert tpot_ns(moments)[0] == pytest.approx(MS + LOOK_NS)
    assert timed.latency_ns[0] == moments.token_ns[-1]


def test_a_server_that_never_answers_is_an_error_with_the_kinds_of_its_failures(measured):
    """The server fails after the warm-up of three queries, and most or all queries fail."""
    for load, kinds in ((ARRIVALS, "http 503: 20"), (ALONE, "http 503: 11")):
        with pytest.raises(MeasurementError, match=f"{kinds}\\).*no slot"):
            measured(lambda number: busy(number) if number > 3 else None, queries=20, **load)


def test_a_query_without_a_token_has_no_first_one(measured):
    """A reply without tokens is an error of the model and not an answer."""
    with pytest.raises(MeasurementError, match="no token"):
        measured(output_tokens=0)


def test_a_refused_user_waits_and_its_query_does_not_count(measured):
    """The user waits a tenth of a second if the server does not say for how long.

    The run has its 32 answers all the same.
    """
    run, _ = measured(
        lambda number: busy(number) if number % 4 == 0 else None, concurrency=4, queries=32
    )
    assert run.latency.count >= 32
    assert run.load.failures == {"http 503": run.load.failed_queries}
    assert paused_ms(run) >= 100 * (run.load.failed_queries - 4)


@pytest.mark.usefixtures("played")
def test_users_give_up_a_server_that_refuses_most(monkeypatch):
    """The level ends with the few answers once ten more queries of each user have failed."""
    server = PlayedTextServer(lambda number: busy(number) if number > 4 + 20 else None)
    timed = users.run(
        Stopwatch(subject_of(monkeypatch, server)), TimingPlan(64, 0.0, 0, 0, users=4)
    )
    answered = timed.numbers.size
    # The first answer to each user does not count, and a user who comes late has none.
    assert answered + timed.ramp_up_ns.size == 4 + 20
    assert answered + 40 < len(timed.failures) <= answered + 40 + 8


def test_a_wait_that_the_server_asked_for_is_a_pause(measured):
    """It counts towards neither the time that was asked for nor the energy of the others."""
    refused = AnswerError("busy", kind="http 429", retry_after_s=0.3)
    run, _ = measured(lambda number: refused if number == 8 else None, queries=4, seconds=0.5)
    assert run.load.failures == {"http 429": 1}
    assert paused_ms(run) == pytest.approx(300, abs=0.01)
    assert 800 <= run.timed.length_ns / MS <= 800 + 2 * ANSWER_MS


class OddTextServer(PlayedTextServer):
    """A server whose answer to the nth request has other facts, as `facts_of(n)` says."""

    def __init__(self, facts_of):
        super().__init__()
        self.facts_of = facts_of

    def answer(self, prompt, count):
        return replace(super().answer(prompt, count), **self.facts_of(self.requests))


@pytest.mark.usefixtures("played")
def test_an_answer_in_one_piece_is_no_timed_query_where_most_are_streamed(monkeypatch):
    """Such an answer is counted as a failure."""
    server = OddTextServer(lambda number: {} if number % 4 else {"unstreamed": "in one piece"})
    run = measure_text(monkeypatch, server, queries=20)
    assert run.load.failures == {"in one piece": 5}
    assert run.generation.ttft.count == run.latency.count == 15


@pytest.mark.usefixtures("played")
def test_the_most_of_what_was_cached_is_stated_where_some_answers_state_it(monkeypatch):
    """An answer that does not state a count had no cached tokens."""
    server = OddTextServer(lambda number: {"cached_tokens": 6 if number % 2 else None})
    assert measure_text(monkeypatch, server, queries=8).generation.cached_tokens == 6


@pytest.mark.usefixtures("played")
def test_hidden_thoughts_are_no_part_of_a_prefill(monkeypatch):
    """They come before the first token; with several users the time of all counts."""
    for load, has_rate in (({}, False), ({"concurrency": 2}, True)):
        server = OddTextServer(lambda _: {"hidden_reasoning_tokens": 2})
        generation = measure_text(monkeypatch, server, queries=16, **load).generation
        assert generation.hidden_reasoning_tokens == 2
        assert (generation.prefill_tokens_per_s is not None) == has_rate


class Silent(PlayedTextServer):
    """A server that has no word for one of the questions."""

    def bind(self, prompt, limits):

        def query(_):
            raise AnswerError("no token", kind=EMPTY_ANSWER)

        return query if "nothing" in str(prompt) else super().bind(prompt, limits)


@pytest.mark.usefixtures("played")
def test_a_question_without_an_answer_is_answered_wrong(monkeypatch, tmp_path):
    """It is one of the questions that the score is of."""
    questions = write_questions(
        tmp_path,
        *({"prompt": prompt, "answer": "right"} for prompt in ("one", "two", "nothing", "three")),
    )
    run = measure_text(monkeypatch, Silent(), questions=questions, queries=4)
    assert run.load.failures == {EMPTY_ANSWER: run.load.failed_queries}
    assert (run.accuracy.images, run.accuracy.value) == (4, 0.0)


@pytest.mark.needs(module="xllamacpp")
def test_llama_cpp_serves_users_and_every_figure_follows_from_the_record(tmp_path):
    """The real server with two places is used.

    The record is recomputed from its raw samples without a difference.
    """
    with llama_cpp_server(SHIPPED, tmp_path, places=2) as path:
        case = brief_case(
            path, prompt_tokens=8, output_tokens=16, scenario="poisson", rate_per_s=20.0, queries=24
        )
        suite = Suite("s", (msgspec.structs.replace(case, repeats=1),))
        (record,) = session.measure(
            suite, session.DeviceIdentity("bench", "lab"), {}, "no power sensor", lambda _: None
        )
    assert isinstance(record, RunRecord), record
    assert record.scenario == "poisson"
    assert (record.load.samples, record.load.target_per_s, record.load.unserved) == (24, 20.0, 0)
    assert (
        record.generation.cached_tokens,
        record.generation.ended_early,
        record.output_check.differing,
    ) == (0, 0, 0)
    assert recompute(record)[1] == ()


def text(cached=0, unstreamed=None):
    return TextAnswer(
        Generated("text", "length", 8, 4, cached, unstreamed=unstreamed), (2, 3, 4, 5)
    )


def test_a_few_replies_in_one_piece_are_failures_and_most_of_them_no_stream():
    """An answer that a proxy held back is in no statistic of the others."""
    numbers = np.arange(5)
    timed = TimedQueries(numbers * 10, np.full(5, 5), 0, 45, numbers=numbers)
    parted = without_unstreamed(
        timed,
        {number: text(unstreamed="in one piece" if number == 2 else None) for number in range(5)},
    )
    assert parted.numbers.tolist() == [0, 1, 3, 4]
    assert [(failed.number, failed.kind, failed.end_ns) for failed in parted.failures] == [
        (2, "in one piece", 25)
    ]
    unstreamed = {
        number: text(unstreamed=None if number == 2 else "in one piece") for number in range(5)
    }
    assert without_unstreamed(timed, unstreamed) is timed


def test_once_a_server_states_cached_tokens_an_answer_without_them_has_none():
    """A count of 0 is left out by vLLM.

    A server that never states a count may have cached any number.
    """
    for counts, figures in [
        ((None, 6, None), (0, 6, 0)),
        ((None, None, None), (None, None, None)),
        ((0, None, 6), (0, 0, 6)),
    ]:
        with table_row(counts):
            answers = with_cached({number: text(cached) for number, cached in enumerate(counts)})
            assert tuple(answer.generated.cached_tokens for answer in answers.values()) == figures
