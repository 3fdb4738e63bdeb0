"""Facts about `edgemeter.agent.session.rate_search`: the highest rate that a server holds, found run by run."""

import pytest

from edgemeter.agent.base.errors import MeasurementError
from edgemeter.agent.contract.load_sweep import sweeps
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_figures import Load
from edgemeter.agent.contract.suite import Suite
from edgemeter.agent.session import rate_search, session
from tests.fixtures.paced_server import paced_server
from tests.fixtures.record_factory import make_generation, make_latency, make_record
from tests.fixtures.rows import table_row
from tests.fixtures.run_jobs import one_case


def case_of(**settings):
    """Return a case whose rate is to be found."""
    usual = {"model": "m.server", "mode": "rapid", "prompt_tokens": 8, "output_tokens": 4, "scenario": "poisson", "rate_per_s": "auto"}
    return one_case(**usual | settings)


def record_at(rate, is_sustained):
    """Return a run at this rate, of a single stream without one."""
    load = Load(samples_per_query=1, samples=64, target_per_s=rate, is_sustained=is_sustained)
    return make_record(scenario="poisson" if rate else "single_stream", load=load, generation=make_generation(), latency=make_latency())


def search(capacity):
    """Return the steps of a search and their runs, of a server that holds rates below `capacity`; of a few queries nothing shows."""
    steps, records = [], []
    while step := rate_search.next_step(case_of(), records):
        steps.append(step)
        records.append(record_at(step.rate_per_s, None if step.queries < 64 else step.rate_per_s < capacity))
    return steps, records


def test_the_search_brackets_the_capacity_to_a_tenth():
    """Wherever it lies: the lowest rate that was not held is at most 1.1 times the highest that was."""
    for capacity in [0.03, 0.9, 1.0, 6.6, 48.0, 700.0, 20_000.0]:
        with table_row(capacity):
            tried = [step.rate_per_s for step in search(capacity)[0][1:]]
            held_rate, failing = max(rate for rate in tried if rate < capacity), min(rate for rate in tried if rate >= capacity)
            assert failing <= 1.1 * held_rate
            assert len(tried) <= rate_search.MOST_STEPS


def test_the_first_step_is_no_level_of_the_sweep():
    """A server that holds below 26 a second is stated to hold what the steps show, although a few queries show nothing."""
    records = search(26.0)[1]
    (sweep,) = sweeps(records)
    rates = [record.load.target_per_s for record in records[1:]]
    assert [point.target_per_s for point in sweep.points] == sorted(rates)
    assert f"holds {max(rate for rate in rates if rate < 26):g} requests/s (" in sweep.summary


def test_no_step_is_shorter_than_ten_answers():
    """However high the rate: while the first answers are on their way, no line shows."""
    records = [record_at(None, None), record_at(500.0, True)]
    step = rate_search.next_step(case_of(seconds=0.0), records)
    assert (step.rate_per_s, step.seconds) == (1000.0, pytest.approx(10 * records[0].latency.mean_ms / 1e3))


def test_a_failed_run_ends_the_search():
    """No rate follows from an error."""
    assert rate_search.next_step(case_of(), [MeasurementError("the server broke off")]) is None
    assert rate_search.next_step(case_of(), [record_at(None, None), MeasurementError("the server broke off")]) is None


def test_a_case_with_a_rate_is_one_run():
    """Nothing is searched for."""
    case = case_of(rate_per_s=2.0)
    assert rate_search.next_step(case, []) is case
    assert rate_search.next_step(case, [record_at(2.0, False)]) is None


@pytest.mark.services
def test_a_session_finds_what_a_server_of_two_places_can(tmp_path):
    """A request takes 60 ms: 33 a second at most, of which queues leave less; each step is a record."""
    with paced_server(tmp_path, places=2, prefill_ms=30, step_ms=10) as server:
        case = case_of(model=str(server.file), slo="ttft=150ms", queries=64)
        records = list(session.measure(Suite("s", (case,)), session.DeviceIdentity("bench", "lab"), {}, "no sensor", lambda _: None))
    assert all(isinstance(record, RunRecord) for record in records), records
    rates = [record.load.target_per_s for record in records]
    assert len(set(rates)) == len(rates) > 4
    assert [record.order_place for record in records] == list(range(1, len(rates) + 1))
    assert max(record.throughput_per_s for record in records) < 2 / 0.060
