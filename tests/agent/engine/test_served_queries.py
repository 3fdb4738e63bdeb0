"""Facts about the queries of a served model, judged by the log of a server with a known time and by the textbook of queues."""

import heapq
import time
from math import sqrt

import msgspec
import numpy as np
import pytest

from edgemeter.agent.base.errors import MeasurementError
from edgemeter.agent.contract import samples
from edgemeter.agent.engine import measure
from edgemeter.agent.runtimes.served_http import OpenInference
from edgemeter.agent.verdict import judge
from edgemeter.agent.verdict.answer_rules import RULES
from edgemeter.agent.verdict.rule import RunFacts
from tests.fixtures.oip_server import ServedModelScript, oip_server
from tests.fixtures.paced_model_server import paced_model_server
from tests.fixtures.run_jobs import one_case, run_job

SERVICE_MS = 10.0
ENDS = ("pause_end", "pause_start")


# To any request.
ANSWER = b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 4], "data": [1, 3, 5, 7]}]}'


def measured(server, **settings):
    """Measure a case against it in this process."""
    case = one_case(str(server.file), **{"mode": "rapid"} | settings)
    now = time.monotonic_ns()
    work = run_job(msgspec.structs.replace(case, warm_up_seconds=0.5), seed=5, spawned_ns=now)
    return measure.measure(work, now, lambda _: None)


def timed_entries(run, server):
    """Return what the server's log has of the timed part, in the order of arrival."""
    return [entry for entry in server.requests() if run.timed.start_ns <= entry["came_ns"] <= run.timed.end_ns]


def violated(run):
    """Return the rules on answers that a run violates."""
    return {rule.name for rule in RULES if rule.evidence(RunFacts(run, ()))}


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


def test_the_share_of_failures_is_the_planted_one(tmp_path):
    """Counted by kind as the server logged them, within the bounds of a binomial, and in no latency."""
    share = 0.1
    with paced_model_server(tmp_path, places=2, service_ms=4.0, failing_ratio=share, first_fault=200) as server:
        run = measured(server, concurrency=2, seconds=2.0, slo="latency=1s")
        entries = timed_entries(run, server)
    failed = run.served.failed_queries
    requests = failed + run.latency.count
    assert run.served.failures == {"http 500": failed}
    (first_ns,) = [entry["came_ns"] for entry in server.requests()[200:201]]
    later = [entry for entry in entries if entry["came_ns"] >= first_ns]
    assert failed == pytest.approx(sum(entry["status"] == 500 for entry in later), abs=2)
    assert abs(failed - share * len(later)) < 4 * sqrt(share * (1 - share) * len(later))
    assert run.latency.min_ms > 3.0
    assert run.served.goodput.good == run.latency.count
    assert run.served.goodput.good_ratio == pytest.approx(run.latency.count / requests)
    assert {"failed-answers", "served"} <= violated(run)
    assert len(entries) >= requests


@pytest.mark.parametrize("settings", [{"concurrency": 2}, {"rate_per_s": 60.0}, {}])
@pytest.mark.parametrize(("status", "kind"), [(0, "broke off"), (200, "no answer")])
def test_requests_that_are_dropped_or_answered_by_an_error_count_as_failed(tmp_path, settings, status, kind):
    """Each once: one that the server took for 10 ms and cut is not sent again, and an error under status 200 is no answer."""
    with paced_model_server(tmp_path, places=2, service_ms=10.0, failing_ratio=0.15, status=status, first_fault=30) as server:
        run = measured(server, **{"seconds": 3.0} | settings)
        failed, failed_in_all = (sum("fails" in entry for entry in part) for part in (timed_entries(run, server), server.requests()))
    assert failed > 5
    # The first query of each user counts as nothing; some end before the first that is answered, or after the last.
    assert failed - settings.get("concurrency", 0) <= run.served.failed_queries <= failed_in_all
    assert run.served.failures == {kind: run.served.failed_queries}
    assert "failed-answers" in violated(run)


def test_users_wait_as_the_server_asks(tmp_path):
    """`Retry-After` of 50 ms: nothing comes on a connection before it is over, and the time is stated."""
    with paced_model_server(
        tmp_path, places=2, service_ms=4.0, failing_ratio=0.1, status=429, retry_after_s=0.05, first_fault=100
    ) as server:
        run = measured(server, concurrency=2, seconds=1.5)
        entries = timed_entries(run, server)
    refused = [entry for entry in entries if entry["status"] == 429]
    assert run.served.failures == {"http 429": run.served.failed_queries}
    ends_ns, begins_ns = (samples.unpack(series) for name in ENDS for series in run.samples if series.name == name)
    assert run.load.paused_ms == pytest.approx((ends_ns - begins_ns).sum() / 1e6)
    # The end of the run cuts the last.
    is_cut = ends_ns >= run.timed.length_ns
    assert np.all((ends_ns - begins_ns)[~is_cut] >= 50e6)
    assert len(refused) - 2 <= len(ends_ns)
    for entry in refused[:-2]:
        following = [other["came_ns"] for other in entries if other["connection"] == entry["connection"]]
        assert min((came_ns for came_ns in following if came_ns > entry["came_ns"]), default=1 << 63) - entry["came_ns"] >= 45e6
    assert "users-waited" in violated(run)


@pytest.mark.parametrize(
    ("settings", "dies_at"), [({"concurrency": 4}, 20), ({"rate_per_s": 200.0}, 20), ({}, 20), ({"queries": 1000}, 700)]
)
def test_a_server_that_dies_ends_the_run_in_one_line(tmp_path, settings, dies_at):
    """Before the timed part, or in it where queries come one after the other, with what was tried."""
    with paced_model_server(tmp_path, service_ms=1.0, dies_at=dies_at) as server, pytest.raises(MeasurementError) as gone:
        measured(server, **{"seconds": 4.0} | settings)
    assert "\n" not in str(gone.value)
    assert "answer" in str(gone.value)


@pytest.mark.parametrize("settings", [{"concurrency": 4}, {"rate_per_s": 200.0}])
def test_a_server_that_dies_under_load_leaves_an_invalid_run_that_states_it(tmp_path, settings):
    """What was answered before is kept, with the failures by kind: no figure of it passes for one of the load."""
    with paced_model_server(tmp_path, service_ms=1.0, dies_at=700) as server:
        run = measured(server, seconds=4.0, queries=1000, **settings)
    assert run.served.failed_queries == sum(run.served.failures.values()) > 0.01 * run.latency.count
    assert set(run.served.failures) <= {"no connection", "broke off"}
    assert run.output_check.compared == 0
    assert run.output_check.reason.startswith("the server did not answer a repeated query: ")
    violated_rules = {rule.name for rule in judge.RULES if rule.evidence(RunFacts(run, ()))}
    assert violated_rules >= {"failed-answers", "unrepeated-answers"}


def test_answers_that_belong_to_others_are_found(tmp_path):
    """A server that mixes up what it answers at once: each timed answer of the sample is compared with that to the same input alone."""
    with paced_model_server(tmp_path, places=4, service_ms=5.0, mixes_up=True) as server:
        run = measured(server, concurrency=4, seconds=0.5)
    assert run.output_check.differing > 0


def test_users_whose_own_process_is_busy_are_a_doubt(tmp_path):
    """What exceeds the time of one interpreter waits in the client; one user's queries do not overlap."""
    with paced_model_server(tmp_path, places=2, service_ms=4.0) as server:
        users, alone = (measured(server, seconds=0.2, **load) for load in ({"concurrency": 2}, {}))
    for run, share, is_doubted in ((users, 0.5, False), (users, 0.8, True), (alone, 0.8, False)):
        # The kernel counts over a window of its own.
        scheduling = msgspec.structs.replace(run.scheduling, window_ms=1e4, ran_ms=share * 1e4)
        assert ("client-busy" in violated(msgspec.structs.replace(run, scheduling=scheduling))) == is_doubted


def test_the_requests_of_arrivals_are_made_before_the_timed_part(tmp_path, monkeypatch):
    """A million numbers as JSON take tens of milliseconds each: the process that asks makes none of them while its own work is counted."""
    steps = []
    read, request = measure.read_scheduling, OpenInference.request
    monkeypatch.setattr(measure, "read_scheduling", lambda: steps.append("read") or read())
    monkeypatch.setattr(OpenInference, "request", lambda *words: steps.append("made") or request(*words))
    script = ServedModelScript(inputs=[("x", "FP32", [1000000])], instead=lambda _, path: (200, {}, ANSWER) if "infer" in path else None)
    with oip_server(script) as url:
        (tmp_path / "large.server").write_text(f'url = "{url}"\nprotocol = "oip"\ntransport = "json"\n')
        case = one_case(str(tmp_path / "large.server"), mode="rapid", rate_per_s=10.0, queries=16, seconds=1.0)
        work = run_job(msgspec.structs.replace(case, warm_up_seconds=0.1), spawned_ns=time.monotonic_ns())
        measure.measure(work, work.spawned_ns, lambda _: None)
    begin = steps.index("read")
    assert "made" in steps[:begin]
    assert steps[begin : begin + 2] == ["read", "read"]
