"""Facts about users of a server in a closed loop, judged by the log of a server with known times, which runs in a process of its own."""

import time

import msgspec
import numpy as np
import pytest

from edgemeter.agent.bundle.recompute import FigureDifference, recompute
from edgemeter.agent.contract import samples
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.suite import Suite
from edgemeter.agent.engine import generating
from edgemeter.agent.session import session
from tests.fixtures.paced_server import paced_server
from tests.fixtures.run_jobs import brief_case, run_job

PREFILL_MS, STEP_MS, TOKENS = 40.0, 5.0, 5


def case_of(server, **settings):
    """Return a case of 8 prompt tokens and 5 more."""
    return brief_case(server.file, prompt_tokens=8, output_tokens=TOKENS, **settings)


def measured(server, **settings):
    """Measure a case against it in this process."""
    now = time.monotonic_ns()
    return generating.measure_generation(run_job(case_of(server, **settings), seed=5, spawned_ns=now), now, lambda _: None)


def timed_entries(server, begin_ns, end_ns):
    """Return the requests that came between these moments, in the order in which they came."""
    return [entry for entry in server.requests() if begin_ns <= entry["came_ns"] <= end_ns]


@pytest.mark.alone
def test_a_closed_loop_is_as_the_server_saw_it(tmp_path):
    """Four users of two places: who came when, their first tokens, and the rates are those of the server's own log."""
    with paced_server(tmp_path, places=2, prefill_ms=PREFILL_MS, step_ms=STEP_MS) as server:
        run = measured(server, concurrency=4)
        logged = timed_entries(server, run.timed.start_ns, run.timed.end_ns)
    raw = {series.name: samples.unpack(series) for series in run.samples}
    begin_ns, users = run.timed.start_ns, 4
    assert run.load.samples == len(logged) >= 9 * users
    # The first query of each was sent in one burst: it is in no statistic.
    ramp_up_ns = round(run.load.ramp_up_ms * 1e6)
    assert ramp_up_ns == pytest.approx(max(entry["token_ns"][-1] for entry in logged[:users]) - begin_ns, abs=30e6)
    logged = logged[users:]
    assert run.latency.count == len(logged)
    came_ns = np.array([entry["came_ns"] for entry in logged]) - begin_ns
    first_ns = np.array([entry["token_ns"][0] for entry in logged]) - begin_ns
    assert np.all(np.abs(np.sort(raw["query_start"]) - came_ns) < 30e6)
    assert run.generation.ttft.p50_ms == pytest.approx(float(np.median(first_ns - came_ns)) / 1e6, rel=0.1)
    # Of two places the third and fourth user wait for those before them.
    assert run.generation.ttft.p50_ms > PREFILL_MS + STEP_MS * (TOKENS - 1)
    assert run.generation.tpot.p50_ms < 2 * STEP_MS
    # The server's own rate while all four were there: two places, each with a request of known length.
    end_ns = np.sort([entry["token_ns"][-1] for entry in logged])[-users] - begin_ns
    tokens = sum(ramp_up_ns < moment - begin_ns <= end_ns for entry in logged for moment in entry["token_ns"])
    assert run.generation.output_tokens_per_s == pytest.approx(tokens * 1e9 / (end_ns - ramp_up_ns), rel=0.05)
    assert run.generation.output_tokens_per_s == pytest.approx(run.throughput_per_s * TOKENS, rel=0.1)
    assert (run.load.concurrency, run.load.in_flight_max) == (users, users)
    assert 0 < run.load.tail_ms < 3 * (PREFILL_MS + STEP_MS * TOKENS)


@pytest.mark.services
def test_each_user_keeps_one_connection_and_the_record_is_recomputed_without_a_difference(tmp_path):
    """No prompt is sent twice; users, tail, rates and goodput follow from the raw samples, a falsified share does not."""
    with paced_server(tmp_path, places=2, prefill_ms=PREFILL_MS, step_ms=STEP_MS) as server:
        suite = Suite("s", (msgspec.structs.replace(case_of(server, concurrency=3, slo="ttft=75ms"), repeats=1),))
        (record,) = session.measure(suite, session.DeviceIdentity("bench", "lab"), {}, "no power sensor", lambda _: None)
        assert isinstance(record, RunRecord), record
        start_ns = record.windows.timed_start_ns
        logged = timed_entries(server, start_ns, start_ns + record.windows.timed_end_ns)
    assert len({entry["connection"] for entry in logged}) == 3
    assert len({entry["prompt"] for entry in logged}) == len(logged) == record.load.samples
    assert (record.scenario, record.load.concurrency) == ("concurrent", 3)
    raw = {series.name: samples.unpack(series) for series in record.samples}
    good = int((raw["first_token"] <= 75e6).sum())
    assert (record.generation.goodput.good, record.generation.goodput.missed) == (good, {"ttft": record.latency.count - good})
    assert [finding for finding in recompute(record) if isinstance(finding, FigureDifference)] == []
    better = msgspec.structs.replace(record.generation.goodput, good_ratio=0.123, requests_per_s=99.0)
    forged = msgspec.structs.replace(record, generation=msgspec.structs.replace(record.generation, goodput=better))
    fields = {finding.field for finding in recompute(forged) if isinstance(finding, FigureDifference)}
    assert fields == {"generation.goodput.good_ratio", "generation.goodput.requests_per_s"}


@pytest.mark.services
def test_a_server_that_ends_each_connection_is_asked_on_a_new_one(tmp_path):
    """Without a word, as llama-server does after a stream; no request fails."""
    with paced_server(tmp_path, places=2, prefill_ms=PREFILL_MS, step_ms=STEP_MS, keeps_open=False) as server:
        run = measured(server, concurrency=2)
        logged = timed_entries(server, run.timed.start_ns, run.timed.end_ns)
    assert len({entry["connection"] for entry in logged}) == len(logged) == run.load.samples
    assert run.generation.failed_queries == 0
