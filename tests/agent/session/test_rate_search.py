"""Facts about `edgemeter.agent.session.rate_search`: the highest rate that a server holds, found run by run."""

import msgspec
import pytest

from edgemeter.agent.base.errors import MeasurementError
from edgemeter.agent.contract.load_sweep import bracket, sweeps
from edgemeter.agent.contract.record_figures import Load
from edgemeter.agent.contract.suite import Suite
from edgemeter.agent.session import rate_search, session
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


def test_a_failed_run_ends_the_search_and_a_case_with_a_rate_is_one_run():
    """No rate follows from an error; nothing is searched for."""
    assert rate_search.next_step(case_of(), [MeasurementError("the server broke off")]) is None
    assert rate_search.next_step(case_of(), [record_at(None, None), MeasurementError("the server broke off")]) is None
    case = case_of(rate_per_s=2.0)
    assert rate_search.next_step(case, []) is case
    assert rate_search.next_step(case, [record_at(2.0, False)]) is None


def test_each_step_of_a_search_is_a_run_of_its_own(monkeypatch, tmp_path):
    """A session goes on until the capacity is bracketed, and numbers the runs as they come."""
    steps = []

    def measured(run, *_):
        steps.append(run)
        return record_at(run.case.rate_per_s, run.case.rate_per_s is None or run.case.rate_per_s < 33.0)

    (tmp_path / "m.server").write_text('url = "http://nowhere.invalid"\n')
    monkeypatch.setattr(session, "measure_run", measured)
    events = []
    suite = Suite("s", (msgspec.structs.replace(case_of(model=str(tmp_path / "m.server")), repeats=1),))
    records = list(session.measure(suite, session.DeviceIdentity("bench", "lab"), {}, "no sensor", events.append))
    rates = [run.case.rate_per_s for run in steps]
    assert len(records) == len(set(rates)) > 4
    assert [run.place for run in steps] == list(range(1, len(rates) + 1))
    places = [(event.place, event.total) for event in events if isinstance(event, session.RunBegins)]
    assert places == [(number, number) for number in range(1, len(rates) + 1)]
    (sweep,) = sweeps(records)
    holding, failing = bracket(sweep.points)
    assert holding.target_per_s < 33.0 <= failing.target_per_s <= 1.1 * holding.target_per_s
