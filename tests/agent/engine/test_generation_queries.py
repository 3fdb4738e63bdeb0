"""Facts about users of a language model behind a server: they come by the schedule, and their times count from it."""

import threading
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from edgemeter.agent import generators
from edgemeter.agent.base.errors import MeasurementError
from edgemeter.agent.bundle.recompute import FigureDifference, recompute
from edgemeter.agent.contract import samples
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.suite import Suite
from edgemeter.agent.engine import generating, generation_queries, request_loops
from edgemeter.agent.engine.prompts.synthetic import SyntheticPrompts
from edgemeter.agent.engine.scenarios import poisson
from edgemeter.agent.engine.scenarios.timing import TimingPlan
from edgemeter.agent.generators import Generated, Limits
from edgemeter.agent.runtimes import Options
from edgemeter.agent.session import session
from tests.fixtures.language_server import LanguageServer, Reply, llama_cpp_server, llama_server
from tests.fixtures.run_jobs import one_case, run_job

SHIPPED = Path(__file__).resolve().parents[3] / "models" / "language" / "edgemeter-notes_q8_0.gguf"
SERVICE_MS = 20
WARM_UP_MOST = 4  # A query when it is loaded, a cold one, and two to warm up.
PAUSE_S = 0.0003


class OneByOne:
    """A server that takes a fixed time for a query, one after the other in the order in which they come in."""

    def __init__(self) -> None:
        self.server: LanguageServer = llama_server()
        self._answer = self.server.routes["/completion"]
        self._turn = threading.Lock()
        self.server.routes["/completion"] = self.complete

    def complete(self, content: dict) -> Reply:
        """Return the answer when those before are done."""
        with self._turn:
            time.sleep(SERVICE_MS / 1e3)
            return replace(self._answer(content), pause_s=PAUSE_S)


@pytest.fixture
def one_by_one():
    """Yield a server of one place."""
    server = OneByOne()
    yield server.server
    server.server.close()


def case_of(model, **settings):
    """Return a case of 8 prompt tokens and 4 more in an open loop."""
    usual = {"model": str(model), "mode": "rapid", "prompt_tokens": 8, "output_tokens": 4, "scenario": "poisson"}
    return msgspec.structs.replace(one_case(**usual | settings), warm_up_seconds=0.0)


def measured(folder, server, **settings):
    """Measure a case against a server in this process."""
    path = folder / "m.server"
    path.write_text(f'url = "{server.url}"\n')
    now = time.monotonic_ns()
    work = run_job(case_of(path, **settings), seed=5, spawned_ns=now)
    return work, generating.measure_generation(work, now, lambda _: None)


@pytest.mark.alone
def test_times_count_from_the_schedule_as_in_queueing_theory(tmp_path, one_by_one):
    """Arrivals are those drawn before; none is answered sooner than by waiting in line from its arrival on (Lindley's recursion)."""
    work, run = measured(tmp_path, one_by_one, rate_per_s=200.0, queries=90)
    raw = {series.name: samples.unpack(series) for series in run.samples}
    due = poisson.schedule_ns(TimingPlan(work.case.queries, work.case.seconds, 0, work.seed, rate_per_s=work.case.rate_per_s))
    assert np.array_equal(raw["arrival"], due)
    assert np.all(raw["query_start"] >= raw["arrival"])
    ends, earliest = np.sort(raw["arrival"] + raw["latency"]), 0
    for arrival, end in zip(raw["arrival"], ends, strict=True):
        earliest = max(earliest, int(arrival)) + SERVICE_MS * 1_000_000
        assert end >= earliest
    # The 90th came after 0.45 s, and 90 take 1.8 s: the wait is in TTFT and in the whole.
    assert run.generation.ttft.max_ms > 5 * SERVICE_MS
    assert run.load.is_sustained is False
    assert (run.load.target_per_s, run.load.utilisation_ratio, run.load.unserved) == (200.0, None, 0)
    assert run.load.in_flight_max > 5
    assert run.load.achieved_per_s <= 1000 / SERVICE_MS


@pytest.mark.alone
def test_a_query_that_is_sent_late_is_late_in_its_times(tmp_path):
    """Half a second between arrival and send is in TTFT and in the whole, and not in TPOT: no coordinated omission."""
    server = llama_server()
    path = tmp_path / "m.server"
    path.write_text(f'url = "{server.url}"\n')
    generator = generators.create("server")
    loaded = generator.load(path, Options(), 12)
    subject = generation_queries.GenerationSubject(generator, loaded, SyntheticPrompts(loaded, 8, 0), Limits(4))
    call = generator.bind_concurrent(subject.prompts.of(0), subject.limits)
    request = subject.attempt(0, call, time.monotonic_ns() - 500_000_000)
    assert request.start_ns - request.arrival_ns >= 500_000_000
    assert request.token_ns[0] >= 500_000_000
    assert request.tpot_ns == pytest.approx((request.token_ns[-1] - request.token_ns[0]) / 3)
    assert request_loops.TimedRequests([request], request.arrival_ns, overlap=True).timed().latency_ns[0] == request.token_ns[-1]
    generator.close()
    server.close()


def test_rates_are_over_the_window_and_prompts_are_never_the_same(tmp_path, one_by_one):
    """Tokens by the time that passed, not by the sum of times that overlap; each query has a connection of its own."""
    _, run = measured(tmp_path, one_by_one, rate_per_s=25.0, queries=12)
    window_s = (run.timed.end_ns - run.timed.start_ns) / 1e9
    # On a busy machine some are read together with the first one of their answer, and count with it.
    decoded = run.generation.decode_tokens_per_s * window_s
    assert decoded == pytest.approx(round(decoded))
    assert 6 * 3 <= round(decoded) <= 12 * 3
    assert run.generation.prefill_tokens_per_s == pytest.approx(12 * 8 / window_s)
    assert run.throughput_per_s == pytest.approx(12 / window_s)
    assert run.generation.own_decode_tokens_per_s is None
    contents = [
        content for content in one_by_one.contents("/completion") if content["n_predict"] == 4 and isinstance(content["prompt"], list)
    ]
    assert all(content["cache_prompt"] is False for content in contents)
    assert len({tuple(content["prompt"]) for content in contents}) == len(contents) - 2 * run.output_check.compared
    assert len(one_by_one.connections) >= 12


@pytest.mark.parametrize("settings", [{"rate_per_s": 30.0}, {"scenario": "single_stream", "seconds": 0.0}])
def test_failed_queries_are_counted_by_kind_and_in_no_statistic(tmp_path, one_by_one, settings):
    """Each third is refused: the run is kept, and its latencies are those of the others."""
    answer, contents = one_by_one.routes["/completion"], []

    def refuse(content):
        contents.append(content)
        return Reply({"error": "no slot"}, status=503) if len(contents) % 3 == 0 else answer(content)

    one_by_one.routes["/completion"] = refuse
    _, run = measured(tmp_path, one_by_one, queries=15, **settings)
    generation = run.generation
    assert generation.failures == {"http 503": generation.failed_queries}
    assert generation.failed_queries >= 5
    assert run.latency.count + generation.failed_queries >= 15
    assert run.latency.min_ms >= SERVICE_MS


def test_a_server_that_never_answers_is_one_line(tmp_path, one_by_one):
    """With the kinds of its failures and the last reason."""
    answer, contents = one_by_one.routes["/completion"], []

    def refuse(content):
        contents.append(content)
        return Reply({"error": "no slot"}, status=503) if len(contents) > WARM_UP_MOST else answer(content)

    one_by_one.routes["/completion"] = refuse
    with pytest.raises(MeasurementError, match=r"http 503: \d+\).*503: no slot") as refusal:
        measured(tmp_path, one_by_one, rate_per_s=50.0, queries=20)
    assert "\n" not in str(refusal.value)


def test_a_refused_user_waits_and_its_query_does_not_count(tmp_path, one_by_one):
    """Two places for four users, and 503 at once for the others without a time to wait: a run has its 32 answers all the same."""
    answer, places, refused = one_by_one.routes["/completion"], threading.Semaphore(2), []

    def complete(content):
        if not places.acquire(blocking=False):
            refused.append(time.monotonic())
            return Reply({"error": "no slot"}, status=503)
        try:
            return answer(content)
        finally:
            places.release()

    one_by_one.routes["/completion"] = complete
    _, run = measured(tmp_path, one_by_one, scenario="concurrent", rate_per_s=None, concurrency=4, queries=32)
    assert run.latency.count >= 32
    assert run.generation.failures == {"http 503": run.generation.failed_queries}
    timed_s = (run.timed.end_ns - run.timed.start_ns) / 1e9
    assert run.generation.failed_queries <= 4 * (1 + 10 * timed_s)


def test_users_give_up_a_server_that_refuses_most(tmp_path, one_by_one):
    """The level ends with the few that were answered, for the rule on failed answers to judge."""
    answer, contents = one_by_one.routes["/completion"], []

    def refuse(content):
        contents.append(content)
        return answer(content) if len(contents) < 40 else Reply({"error": "no slot"}, status=503)

    one_by_one.routes["/completion"] = refuse
    _, run = measured(tmp_path, one_by_one, scenario="concurrent", rate_per_s=None, concurrency=4, queries=64)
    assert 20 < run.latency.count < 40
    assert run.latency.count + 40 < run.generation.failed_queries <= run.latency.count + 40 + 8


@pytest.mark.needs(module="xllamacpp")
@pytest.mark.services
def test_llama_cpp_serves_users_and_every_figure_follows_from_the_record(tmp_path):
    """The real server with two places; the record is recomputed from its raw samples without a difference."""
    with llama_cpp_server(SHIPPED, tmp_path, places=2) as path:
        suite = Suite("s", (msgspec.structs.replace(case_of(path, rate_per_s=20.0, queries=24, output_tokens=16), repeats=1),))
        (record,) = session.measure(suite, session.DeviceIdentity("bench", "lab"), {}, "no power sensor", lambda _: None)
    assert isinstance(record, RunRecord), record
    assert record.scenario == "poisson"
    assert (record.load.samples, record.load.target_per_s, record.load.unserved) == (24, 20.0, 0)
    assert (record.generation.cached_tokens, record.generation.ended_early, record.output_check.differing) == (0, 0, 0)
    assert [finding for finding in recompute(record) if isinstance(finding, FigureDifference)] == []


def test_a_wait_that_the_server_asked_for_is_a_pause(tmp_path, one_by_one):
    """It counts towards neither the time that was asked for nor the energy of the others."""
    answer, contents = one_by_one.routes["/completion"], []

    def refuse(content):
        contents.append(content)
        return Reply({"error": "busy"}, status=429, headers={"Retry-After": "0.3"}) if len(contents) == 8 else answer(content)

    one_by_one.routes["/completion"] = refuse
    _, run = measured(tmp_path, one_by_one, scenario="single_stream", rate_per_s=None, queries=4, seconds=0.5)
    assert run.generation.failures == {"http 429": 1}
    assert (run.load.pauses, round(run.load.paused_ms, -2)) == (1, 300.0)
    assert (run.timed.end_ns - run.timed.start_ns) / 1e6 >= 450 + run.load.paused_ms


def test_a_few_replies_in_one_piece_are_failures_and_most_of_them_no_stream():
    """An answer that a proxy held back is in no statistic of the others."""

    def answered(number, reason):
        answer = Generated((), "text", "length", 8, 4, 0, unstreamed=reason)
        return request_loops.TimedRequest(number, number * 10, number * 10, (2, 3, 4, 5), answer)

    few = request_loops.TimedRequests([answered(number, "in one piece" if number == 2 else None) for number in range(5)], 0)
    parted = generation_queries.without_unstreamed(few)
    assert [query.number for query in parted.queries] == [0, 1, 3, 4]
    assert [(failure.number, failure.kind, failure.end_ns) for failure in parted.failures] == [(2, "in one piece", 25)]
    unstreamed = request_loops.TimedRequests([answered(number, None if number == 2 else "in one piece") for number in range(5)], 0)
    assert generation_queries.without_unstreamed(unstreamed) is unstreamed


@pytest.mark.parametrize(
    ("counts", "figures"), [((None, 6, None), (0, 6, 0)), ((None, None, None), (None, None, None)), ((0, None, 6), (0, 0, 6))]
)
def test_once_a_server_states_cached_tokens_an_answer_without_them_has_none(counts, figures):
    """A count of 0 is left out by vLLM; a server that never states any may have cached what it likes."""
    queries = [
        request_loops.TimedRequest(number, number * 10, number * 10, (2, 3), Generated((), "text", "length", 8, 2, cached))
        for number, cached in enumerate(counts)
    ]
    generation = generation_queries.with_cached(request_loops.TimedRequests(queries, 0))
    assert tuple(query.answer.cached_tokens for query in generation.queries) == figures
