"""Facts about the queries of a served model.

They are judged by the stamps of a server with a known time and by the textbook of queues.
"""

import heapq
import threading
import time
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from edgemeter.agent.base.errors import AnswerError, MeasurementError
from edgemeter.agent.contract import samples
from edgemeter.agent.contract.record_figures import Load
from edgemeter.agent.engine import measure
from edgemeter.agent.engine.job import Scheduling
from edgemeter.agent.verdict.facts import Facts
from edgemeter.agent.verdict.judge import judge
from tests.fixtures.measured_factory import measured as sound_run
from tests.fixtures.oip_server import ServedModelScript, oip_server, served_file
from tests.fixtures.played_servers import PlayedModelServer, busy, measure_model
from tests.fixtures.record_factory import make_runtime
from tests.fixtures.run_jobs import one_case, run_job

SERVICE_MS = 10.0
LOADS = [{"concurrency": 2}, {"scenario": "poisson", "rate_per_s": 60.0}, {}]


def violated(run):
    return set(judge(Facts(run)).rules)


def ends_in_line(arrivals, services, places):
    """Return when each of these arrivals has been served, in their order.

    Each is served by the first free one of so many places.
    """
    free = [0.0] * places
    ends = []
    for arrival, service in zip(arrivals, services, strict=True):
        ends.append(max(arrival, heapq.heappop(free)) + service)
        heapq.heappush(free, ends[-1])
    return np.array(ends)


@pytest.mark.parametrize("places", [1, 2])
@pytest.mark.alone
def test_arrivals_wait_as_the_textbook_of_queues_has_it(tmp_path, places):
    """In an M/D/k queue none is answered before the recursion over its arrivals says so."""
    rate_per_s, gate, stamps = 50.0 * places, threading.Semaphore(places), []

    def compute(arrays):
        came_ns = time.monotonic_ns()
        with gate:
            time.sleep(SERVICE_MS / 1e3)
            stamps.append((came_ns, time.monotonic_ns()))
        return {"y": arrays["x"] * 2 + 1}

    with oip_server(ServedModelScript(compute=compute)) as url:
        case = one_case(
            str(served_file(tmp_path, url)),
            mode="rapid",
            rate_per_s=rate_per_s,
            seconds=8.0 / places,
        )
        now = time.monotonic_ns()
        work = run_job(msgspec.structs.replace(case, warm_up_seconds=0.1), seed=5, spawned_ns=now)
        run = measure.measure(work, now, lambda _: None)
    timed = np.array(
        [entry for entry in sorted(stamps) if run.timed.start_ns <= entry[0] <= run.timed.end_ns]
    )
    raw = {series.name: samples.unpack(series) for series in run.samples}
    arrivals, ends = np.sort(raw["arrival"]), np.sort(raw["arrival"] + raw["latency"])
    came, finished = (np.sort(timed[:, column]) - run.timed.start_ns for column in (0, 1))
    assert (run.load.unserved, run.latency.count) == (0, len(timed))
    assert np.all(np.sort(raw["query_start"]) >= arrivals)
    assert np.all(came >= np.sort(raw["query_start"]))
    textbook = np.sort(ends_in_line(arrivals, [SERVICE_MS * 1e6] * len(arrivals), places))
    assert np.all(ends >= textbook)
    # Latencies hold the way of the answer, and nothing else: on any machine it was short once.
    assert 0 <= np.min(ends - finished) < 5e6
    assert run.latency.mean_ms >= (finished.mean() - arrivals.mean()) / 1e6
    assert len(arrivals) / (arrivals[-1] / 1e9) == pytest.approx(rate_per_s, rel=0.15)
    if places == 1:
        # Pollaczek and Khinchine, half a service at a load of a half; the mean of 400 dependent
        # waits scatters by a sixth.
        waits_ms = (textbook - arrivals) / 1e6 - SERVICE_MS
        assert waits_ms.mean() == pytest.approx(SERVICE_MS / 2, rel=0.5)


@pytest.mark.usefixtures("played")
@pytest.mark.parametrize("load", LOADS)
def test_a_query_that_fails_is_counted_by_its_kind_and_in_no_latency(monkeypatch, load):
    """Each seventh query from the twentieth on fails.

    The others take their 5 ms, from their arrival at the earliest.
    """
    server = PlayedModelServer(
        lambda number: busy(number) if number > 20 and number % 7 == 0 else None
    )
    run = measure_model(monkeypatch, server, queries=64, **load)
    failed = run.load.failed_queries
    assert run.load.failures == {"http 503": failed}
    assert 7 <= failed <= server.requests / 7
    assert run.latency.p50_ms >= 5.0
    assert load or run.latency.max_ms == pytest.approx(5.0, abs=0.01)
    assert run.latency.count + failed >= 64
    assert "failed-queries" in violated(run)


@pytest.mark.usefixtures("played")
def test_users_wait_as_the_server_asks(monkeypatch):
    """With a `Retry-After` of 50 ms each refusal is a pause of that length."""
    refused = AnswerError("slow down", kind="http 429", retry_after_s=0.05)
    server = PlayedModelServer(lambda number: refused if number > 20 and number % 5 == 0 else None)
    run = measure_model(monkeypatch, server, queries=64, concurrency=2)
    assert run.load.failures == {"http 429": run.load.failed_queries}
    begins_ns, ends_ns = (
        samples.unpack(each)
        for name in ("pause_start", "pause_end")
        for each in run.samples
        if each.name == name
    )
    # The end of the run cuts the last.
    assert np.all((ends_ns - begins_ns)[ends_ns < run.timed.length_ns] >= 50e6)


@pytest.mark.usefixtures("played")
def test_a_server_that_dies_before_the_timed_part_ends_the_run(monkeypatch):
    """Ten attempts are made; in the timed part too where queries come one after the other."""
    for first, words in ((3, "no slot"), (34, "http 503: 41")):
        with pytest.raises(MeasurementError, match=words):
            measure_model(
                monkeypatch,
                PlayedModelServer(
                    lambda number, first=first: busy(number) if number >= first else None
                ),
            )


@pytest.mark.usefixtures("played")
def test_without_a_reply_to_a_repeated_query_nothing_is_compared(monkeypatch):
    """The timed answers are kept all the same."""
    server = PlayedModelServer(lambda number: busy(number) if number > 67 else None)
    run = measure_model(monkeypatch, server)
    assert (run.latency.count, run.output_check.compared, run.load.failed_queries) == (64, 0, 0)


class Garbling(PlayedModelServer):
    """A server whose every seventh answer, from the twentieth on, is none when it is read.

    `ended` counts the answers that were ended.
    """

    ended = 0

    def ask(self, inputs):
        answered = replace(super().ask(inputs), end=self.end)
        return (
            replace(answered, outputs=self.garbled)
            if self.requests > 20 and self.requests % 7 == 0
            else answered
        )

    def end(self):
        self.ended += 1

    def garbled(self):
        raise AnswerError("garbled", kind="no answer")


@pytest.mark.usefixtures("played")
def test_an_answer_that_may_be_none_is_read_and_each_is_ended(monkeypatch):
    """Reading happens outside the clock, and an answer that is none then has failed."""
    server = Garbling()
    run = measure_model(monkeypatch, server, queries=64)
    assert run.load.failures == {"no answer": run.load.failed_queries}
    assert run.load.failed_queries >= 7
    # The comparison at the end is not timed.
    assert server.requests - 8 <= server.ended <= server.requests


class MixedUp(PlayedModelServer):
    """A server that answers one beside others with another's output."""

    def bind_concurrent(self, inputs, user=None):
        return super().bind_concurrent([inputs[0] + 1], user)


@pytest.mark.usefixtures("played")
@pytest.mark.parametrize("load", LOADS[:2])
def test_answers_that_belong_to_others_are_found(monkeypatch, load):
    """Each timed answer of the sample is compared with that to the same input alone."""
    check = measure_model(monkeypatch, MixedUp(), **load).output_check
    assert check.compared == check.differing > 0
    assert measure_model(monkeypatch, PlayedModelServer(), **load).output_check.differing == 0


def test_users_whose_own_process_is_busy_are_a_doubt():
    """Work beyond the time of one interpreter waits in the client.

    The queries of one user do not overlap.
    """
    for users, share, is_doubted in ((2, 0.7, False), (2, 0.71, True), (None, 0.8, False)):
        load = Load(samples=64, concurrency=users, in_flight_max=users)
        runtime = make_runtime(name="served")
        run = sound_run(
            runtime=runtime,
            load=load,
            scheduling=Scheduling(window_ms=1e4, ran_ms=share * 1e4, cores=2),
        )
        assert ("client-busy" in violated(run)) == is_doubted


@pytest.mark.usefixtures("played")
def test_the_requests_of_arrivals_are_made_before_the_timed_part(monkeypatch):
    """The asking process makes no requests while its own work is counted.

    A million numbers as JSON take tens of milliseconds each.
    """
    steps = []
    read, bind = measure.read_scheduling, PlayedModelServer.bind_concurrent
    monkeypatch.setattr(measure, "read_scheduling", lambda: steps.append("read") or read())
    monkeypatch.setattr(
        PlayedModelServer, "bind_concurrent", lambda *words: steps.append("made") or bind(*words)
    )
    measure_model(monkeypatch, PlayedModelServer(), rate_per_s=10.0, queries=16, seconds=1.0)
    assert set(steps[:-2]) == {"made"}
    assert steps[-2:] == ["read", "read"]
