"""Facts about the queries of a served model, judged by the log of a server with a known time and by the textbook of queues."""

import heapq
import time

import msgspec
import numpy as np
import pytest

from edgemeter.agent.base.errors import AnswerError, MeasurementError
from edgemeter.agent.contract import samples
from edgemeter.agent.contract.record_conditions import Scheduling
from edgemeter.agent.contract.record_figures import Load
from edgemeter.agent.contract.record_served import Served
from edgemeter.agent.engine import measure
from edgemeter.agent.verdict import judge
from edgemeter.agent.verdict.rule import RunFacts
from tests.fixtures.measured_factory import measured as sound_run
from tests.fixtures.paced_model_server import paced_model_server
from tests.fixtures.played_servers import PlayedModelServer, busy, measure_model
from tests.fixtures.played_time import play_time
from tests.fixtures.run_jobs import one_case, run_job

SERVICE_MS = 10.0
LOADS = [{"concurrency": 2}, {"scenario": "poisson", "rate_per_s": 60.0}, {}]


def measured(server, **settings):
    """Measure a case against it in this process."""
    case = one_case(str(server.file), **{"mode": "rapid"} | settings)
    now = time.monotonic_ns()
    work = run_job(msgspec.structs.replace(case, warm_up_seconds=0.1), seed=5, spawned_ns=now)
    return measure.measure(work, now, lambda _: None)


def timed_entries(run, server):
    """Return what the server's log has of the timed part, in the order of arrival."""
    return [entry for entry in server.requests() if run.timed.start_ns <= entry["came_ns"] <= run.timed.end_ns]


def violated(run):
    """Return the rules that a run violates."""
    return {rule.name for rule in judge.RULES if rule.evidence(RunFacts(run, ()))}


def ends_in_line(arrivals, services, places):
    """Return when each of these arrivals has been served by the first free of so many places, in their order."""
    free = [0.0] * places
    ends = []
    for arrival, service in zip(arrivals, services, strict=True):
        ends.append(max(arrival, heapq.heappop(free)) + service)
        heapq.heappush(free, ends[-1])
    return np.array(ends)


@pytest.mark.parametrize("places", [1, 2])
@pytest.mark.alone
def test_arrivals_wait_as_the_textbook_of_queues_has_it(tmp_path, places):
    """M/D/k: none is answered before the recursion over its arrivals has it, with the times that the server's log has for each."""
    rate_per_s = 50.0 * places
    with paced_model_server(tmp_path, places=places, service_ms=SERVICE_MS) as server:
        run = measured(server, rate_per_s=rate_per_s, seconds=8.0 / places)
        entries = timed_entries(run, server)
    raw = {series.name: samples.unpack(series) for series in run.samples}
    arrivals, ends = np.sort(raw["arrival"]), np.sort(raw["arrival"] + raw["latency"])
    came, finished = (np.sort([entry[name] for entry in entries]) - run.timed.start_ns for name in ("came_ns", "done_ns"))
    assert (run.load.unserved, run.latency.count) == (0, len(entries))
    assert np.all(np.sort(raw["query_start"]) >= arrivals)
    assert np.all(came >= np.sort(raw["query_start"]))
    services = [entry["done_ns"] - entry["began_ns"] for entry in entries]
    assert np.all(ends >= np.sort(ends_in_line(arrivals, services, places)))
    # Latencies hold the way of the answer, and nothing else: on any machine it was short once.
    assert 0 <= np.min(ends - finished) < 5e6
    assert run.latency.mean_ms >= (finished.mean() - arrivals.mean()) / 1e6
    # A port may be drawn again.
    assert len({entry["connection"] for entry in entries}) > 0.9 * len(entries)
    assert len(arrivals) / (arrivals[-1] / 1e9) == pytest.approx(rate_per_s, rel=0.15)
    if places == 1:
        # Pollaczek and Khinchine, half a service at a load of a half; the mean of 400 dependent waits scatters by a sixth.
        waits_ms = (ends_in_line(arrivals, [SERVICE_MS * 1e6] * len(arrivals), 1) - arrivals) / 1e6 - SERVICE_MS
        assert waits_ms.mean() == pytest.approx(SERVICE_MS / 2, rel=0.5)


@pytest.mark.services
@pytest.mark.parametrize(("status", "kind"), [(0, "broke off"), (200, "no answer"), (500, "http 500")])
def test_failures_are_counted_as_the_server_logged_them(tmp_path, status, kind):
    """Each once, by kind: one that the server cut is not sent again, and an error under status 200 is no answer."""
    with paced_model_server(tmp_path, places=2, service_ms=4.0, failing_ratio=0.15, status=status, first_fault=30) as server:
        run = measured(server, concurrency=2, queries=150, slo="latency=100s")
        failed, failed_in_all = (sum("fails" in entry for entry in part) for part in (timed_entries(run, server), server.requests()))
    assert failed > 5
    # The first query of each user counts as nothing; some end after the last that is answered.
    assert failed - 2 <= run.served.failed_queries <= failed_in_all
    assert run.served.failures == {kind: run.served.failed_queries}
    assert (run.served.goodput.good, run.output_check.differing) == (run.latency.count, 0)
    assert {"failed-answers", "served"} <= violated(run)


@pytest.fixture
def played(monkeypatch):
    """Return the clock on which servers in this process answer."""
    return play_time(monkeypatch)


@pytest.mark.usefixtures("played")
@pytest.mark.parametrize("load", LOADS)
def test_a_query_that_fails_is_counted_by_its_kind_and_in_no_latency(monkeypatch, load):
    """Each seventh from the twentieth on; the others took their 5 ms, from their arrival at the earliest."""
    server = PlayedModelServer(lambda number: busy(number) if number > 20 and number % 7 == 0 else None)
    run = measure_model(monkeypatch, server, queries=64, **load)
    failed = run.served.failed_queries
    assert run.served.failures == {"http 503": failed}
    assert 7 <= failed <= server.requests / 7
    assert run.latency.min_ms >= 5.0
    assert load or run.latency.max_ms == pytest.approx(5.0, abs=0.01)
    assert run.latency.count + failed >= 64
    assert "failed-answers" in violated(run)


@pytest.mark.usefixtures("played")
def test_users_wait_as_the_server_asks(monkeypatch):
    """`Retry-After` of 50 ms: each refusal is a pause of that length, and the time is stated."""
    refused = AnswerError("slow down", kind="http 429", retry_after_s=0.05)
    server = PlayedModelServer(lambda number: refused if number > 20 and number % 5 == 0 else None)
    run = measure_model(monkeypatch, server, queries=64, concurrency=2)
    assert run.served.failures == {"http 429": run.served.failed_queries}
    assert run.load.pauses >= run.served.failed_queries - 2
    begins_ns, ends_ns = (samples.unpack(each) for name in ("pause_start", "pause_end") for each in run.samples if each.name == name)
    # The end of the run cuts the last.
    assert np.all((ends_ns - begins_ns)[ends_ns < run.timed.length_ns] >= 50e6)
    assert run.load.paused_ms == pytest.approx((ends_ns - begins_ns).sum() / 1e6)
    assert "users-waited" in violated(run)


@pytest.mark.usefixtures("played")
@pytest.mark.parametrize("load", LOADS)
def test_a_server_that_dies_before_the_timed_part_ends_the_run(monkeypatch, load):
    """After ten attempts; so it does in the timed part where queries come one after the other."""
    with pytest.raises(MeasurementError, match="no slot"):
        measure_model(monkeypatch, PlayedModelServer(lambda number: busy(number) if number >= 3 else None), **load)
    if not load:
        with pytest.raises(MeasurementError, match="http 503: 41"):
            measure_model(monkeypatch, PlayedModelServer(lambda number: busy(number) if number > 33 else None))


@pytest.mark.usefixtures("played")
def test_without_a_reply_to_a_repeated_query_nothing_is_compared(monkeypatch):
    """The timed answers stay, and the reason why none was compared."""
    server = PlayedModelServer(lambda number: busy(number) if number > 67 else None)
    run = measure_model(monkeypatch, server)
    assert (run.latency.count, run.output_check.compared, run.served.failed_queries) == (64, 0, 0)
    assert run.output_check.reason.startswith("the server did not answer a repeated query: ")
    assert "unrepeated-answers" in violated(run)


class MixedUp(PlayedModelServer):
    """A server that answers one beside others with another's output."""

    def bind_concurrent(self, inputs, user=None):
        """Return the call."""
        return super().bind_concurrent([inputs[0] + 1], user)


@pytest.mark.usefixtures("played")
@pytest.mark.parametrize("load", LOADS[:2])
def test_answers_that_belong_to_others_are_found(monkeypatch, load):
    """Each timed answer of the sample is compared with that to the same input alone."""
    check = measure_model(monkeypatch, MixedUp(), **load).output_check
    assert check.compared == check.differing > 0
    assert measure_model(monkeypatch, PlayedModelServer(), **load).output_check.differing == 0


def test_users_whose_own_process_is_busy_are_a_doubt():
    """What exceeds the time of one interpreter waits in the client; one user's queries do not overlap."""
    for users, share, is_doubted in ((2, 0.7, False), (2, 0.71, True), (None, 0.8, False)):
        load = Load(samples_per_query=1, samples=64, concurrency=users, in_flight_max=users)
        run = sound_run(served=Served(), load=load, scheduling=Scheduling(window_ms=1e4, ran_ms=share * 1e4, cores=2))
        assert ("client-busy" in violated(run)) == is_doubted


@pytest.mark.usefixtures("played")
def test_the_requests_of_arrivals_are_made_before_the_timed_part(monkeypatch):
    """A million numbers as JSON take tens of milliseconds each: the process that asks makes none of them while its own work is counted."""
    steps = []
    read, bind = measure.read_scheduling, PlayedModelServer.bind_concurrent
    monkeypatch.setattr(measure, "read_scheduling", lambda: steps.append("read") or read())
    monkeypatch.setattr(PlayedModelServer, "bind_concurrent", lambda *words: steps.append("made") or bind(*words))
    measure_model(monkeypatch, PlayedModelServer(), rate_per_s=10.0, queries=16, seconds=1.0)
    assert set(steps[:-2]) == {"made"}
    assert steps[-2:] == ["read", "read"]
