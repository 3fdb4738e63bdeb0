"""Facts about users of a server in a closed loop, judged by the log of a server with known times, which runs in a process of its own."""

import time

import msgspec
import numpy as np
import pytest

from edgemeter.agent.bundle.recompute import FigureDifference, recompute
from edgemeter.agent.contract import samples
from edgemeter.agent.contract.case_settings import checked_settings
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.suite import Suite
from edgemeter.agent.engine import generating
from edgemeter.agent.session import session
from tests.fixtures.paced_server import paced_server
from tests.fixtures.run_jobs import one_case, run_job

PREFILL_MS, STEP_MS, TOKENS = 40.0, 5.0, 5


@pytest.fixture
def paced(tmp_path):
    """Yield a server of two places."""
    with paced_server(tmp_path, places=2, prefill_ms=PREFILL_MS, step_ms=STEP_MS) as server:
        yield server


def measured(server, **settings):
    """Measure a case of 8 prompt tokens and 5 more against it in this process."""
    usual = {"model": str(server.file), "mode": "rapid", "prompt_tokens": 8, "output_tokens": TOKENS}
    case = msgspec.structs.replace(one_case(**usual | settings), warm_up_seconds=0.0)
    now = time.monotonic_ns()
    return generating.measure_generation(run_job(case, seed=5, spawned_ns=now), now, lambda _: None)


@pytest.mark.alone
def test_a_closed_loop_is_as_the_server_saw_it(paced):
    """Four users of two places: who came when, their first tokens, and the rates are those of the server's own log."""
    run = measured(paced, concurrency=4)
    raw = {series.name: samples.unpack(series) for series in run.samples}
    begin_ns, users = run.timed.start_ns, 4
    logged = [entry for entry in paced.requests() if begin_ns <= entry["came_ns"] <= run.timed.end_ns]
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


def test_each_user_keeps_one_connection(paced):
    """Opened before the timed queries; no prompt is sent twice."""
    run = measured(paced, concurrency=3)
    logged = [entry for entry in paced.requests() if run.timed.start_ns <= entry["came_ns"] <= run.timed.end_ns]
    assert len({entry["connection"] for entry in logged}) == 3
    assert len({entry["prompt"] for entry in logged}) == len(logged)


@pytest.mark.alone
def test_a_server_that_ends_each_connection_is_asked_on_a_new_one(tmp_path):
    """Without a word, as llama-server does after a stream; no request fails, and none pays for it."""
    with paced_server(tmp_path, places=2, prefill_ms=PREFILL_MS, step_ms=STEP_MS, keeps_open=False) as server:
        run = measured(server, concurrency=2)
        logged = [entry for entry in server.requests() if run.timed.start_ns <= entry["came_ns"] <= run.timed.end_ns]
    assert len({entry["connection"] for entry in logged}) == len(logged) == run.load.samples
    assert run.generation.ttft.p50_ms == pytest.approx(PREFILL_MS, rel=0.2)


def test_goodput_counts_who_met_every_limit(paced):
    """Of four users of two places half wait: TTFT is below 50 ms for who did not, and TPOT for all."""
    run = measured(paced, concurrency=4, slo="ttft=75ms, tpot=1s")
    raw = {series.name: samples.unpack(series) for series in run.samples}
    good = int((raw["first_token"] <= 75e6).sum())
    goodput = run.generation.goodput
    assert goodput.limits_ms == {"ttft": 75.0, "tpot": 1000.0}
    assert (goodput.good, goodput.missed) == (good, {"ttft": run.latency.count - good, "tpot": 0})
    assert goodput.good_ratio == good / run.latency.count
    assert goodput.requests_per_s <= run.throughput_per_s
    everything = measured(paced, concurrency=2, slo="latency=100s").generation.goodput
    assert everything.good_ratio == 1.0


def test_the_record_is_recomputed_without_a_difference(paced):
    """Users, tail, rates and goodput follow from the raw samples; a falsified share does not."""
    settings = {
        "model": str(paced.file), "mode": "rapid", "prompt_tokens": 8, "output_tokens": TOKENS, "repeats": 1, "concurrency": 2,
        "slo": "ttft=75ms",
    }  # fmt: skip
    assert checked_settings(settings)
    suite = Suite("s", (msgspec.structs.replace(one_case(**settings), warm_up_seconds=0.0),))
    (record,) = session.measure(suite, session.DeviceIdentity("bench", "lab"), {}, "no power sensor", lambda _: None)
    assert isinstance(record, RunRecord), record
    assert (record.scenario, record.load.concurrency) == ("concurrent", 2)
    assert [finding for finding in recompute(record) if isinstance(finding, FigureDifference)] == []
    better = msgspec.structs.replace(record.generation.goodput, good_ratio=0.123, requests_per_s=99.0)
    forged = msgspec.structs.replace(record, generation=msgspec.structs.replace(record.generation, goodput=better))
    fields = {finding.field for finding in recompute(forged) if isinstance(finding, FigureDifference)}
    assert fields == {"generation.goodput.good_ratio", "generation.goodput.requests_per_s"}
