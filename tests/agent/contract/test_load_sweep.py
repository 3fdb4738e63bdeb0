"""Facts about `edgemeter.agent.contract.load_sweep`: levels of users or rates, and the highest that holds."""

from io import StringIO

import msgspec
import numpy as np
import pytest
from rich.console import Console

from edgemeter.agent.cli.further_tables import print_sweeps
from edgemeter.agent.contract.load_sweep import error_ratio, limit_of, sweeps
from edgemeter.agent.contract.record_conditions import Verdict
from edgemeter.agent.contract.record_figures import Goodput, Load
from edgemeter.agent.contract.record_served import Served
from edgemeter.agent.engine.scenarios.latency_statistics import summarise_latency
from tests.fixtures.record_factory import make_generation, make_record
from tests.fixtures.snapshot import same_as_snapshot


def run_at(rate=None, users=None, good_ratio=None, is_sustained=None, failed=0, unserved=0, ttft_ms=100, **changes):
    """Return a run of 64 requests at this rate, or of so many users: 10 tokens/s a user, 9 times the users in all."""
    goodput = None
    if good_ratio is not None:
        missed = {"ttft": round(64 * (1 - good_ratio)), "tpot": 0}
        goodput = Goodput(
            limits_ms={"ttft": 500.0, "tpot": 50.0}, good=round(64 * good_ratio), good_ratio=good_ratio, requests_per_s=1.0, missed=missed
        )
    generation = make_generation(
        goodput=goodput, failed_queries=failed, user_tokens_per_s=10.0, output_tokens_per_s=9.0 * (users or rate),
        ttft=summarise_latency(np.full(64, ttft_ms * 1_000_000)),
    )  # fmt: skip
    load = Load(samples_per_query=1, samples=64, target_per_s=rate, concurrency=users, is_sustained=is_sustained, unserved=unserved)
    return make_record(scenario="poisson" if rate else "concurrent", load=load, generation=generation, **changes)


def test_the_levels_of_one_server_are_a_sweep_from_the_lowest():
    """Whatever the order of measuring; repeats of a level are one point, and another model is no level."""
    runs = [run_at(users=4), run_at(users=1), run_at(users=2), run_at(users=2), run_at(users=8, device="pi-2")]
    (sweep,) = sweeps(runs)
    assert [(point.concurrency, point.runs) for point in sweep.points] == [(1, 1), (2, 2), (4, 1)]
    assert [point.output_tokens_per_s for point in sweep.points] == [9.0, 18.0, 36.0]
    assert [point.ttft_p90_ms for point in sweep.points] == [100.0, 100.0, 100.0]
    assert sweep.summary.endswith("gives most with 4 users: 36 output tokens/s in all, 10 a user")


def test_runs_of_one_level_or_one_after_the_other_are_none():
    """A frontier needs two points."""
    assert sweeps([run_at(users=2), run_at(users=2), make_record(generation=make_generation())]) == []


def test_the_highest_rate_that_holds_is_one_sentence_with_its_limit():
    """The lowest rate that is not held ends it, whatever a later one seems to hold by chance."""
    runs = [
        run_at(1.0, good_ratio=1.0, is_sustained=True), run_at(6.2, good_ratio=0.95, is_sustained=True),
        run_at(7.1, good_ratio=0.8, is_sustained=True, ttft_ms=612), run_at(7.5, good_ratio=0.91, is_sustained=True),
    ]  # fmt: skip
    (sweep,) = sweeps(runs)
    assert sweep.summary.endswith(
        "holds 6.2 requests/s with TTFT 500 ms, TPOT 50 ms for 90% of requests (7.1 no longer, limited by TTFT p90 of 612 ms)"
    )


def test_without_limits_a_line_that_grows_is_the_limit():
    """And where all or none hold, the sentence states that."""
    (sweep,) = sweeps([run_at(1.0, is_sustained=True), run_at(2.0, is_sustained=False)])
    assert sweep.summary.endswith("holds 1 requests/s (2 no longer, limited by requests that wait in line)")
    (sweep,) = sweeps([run_at(1.0, is_sustained=True), run_at(2.0, is_sustained=True)])
    assert sweep.summary.endswith("holds 2 requests/s, the most that was tried")
    (least,) = sweeps([run_at(1.0, is_sustained=False), run_at(2.0, is_sustained=False)])
    assert "does not hold 1 requests/s, the least that was tried" in least.summary


def test_errors_are_what_failed_and_what_was_left_out():
    """Above a hundredth of failed ones no load is held."""
    run = run_at(5.0, is_sustained=True, failed=4, unserved=6)
    assert error_ratio(run) == pytest.approx(10 / (run.latency.count + 10))
    assert "without an answer" in limit_of(run)
    assert limit_of(run_at(5.0, is_sustained=True)) is None


def test_a_limit_of_the_client_is_not_stated_as_the_servers():
    """Arrivals that were left out never came to the server: it is not known to have had a line."""
    in_line = run_at(6.4, is_sustained=False, unserved=9)
    run = msgspec.structs.replace(in_line, load=msgspec.structs.replace(in_line.load, in_flight_max=256))
    assert limit_of(run) == "the number of queries that Edgemeter sends at once"
    assert limit_of(in_line) == "requests that wait in line"
    late = run_at(6.4, is_sustained=False, unserved=9, good_ratio=0.8)
    late = msgspec.structs.replace(late, load=run.load)
    assert limit_of(late).startswith("TTFT p90")


def test_a_level_at_which_queries_fail_is_the_one_that_does_not_hold():
    """A twentieth of eight users' queries were turned away, which makes the run invalid, and the sweep's answer."""
    failing = Verdict(state="invalid", reasons=("not-steady: 5%", "failed-answers: 4 of 68 queries failed"))
    runs = [run_at(users=2), run_at(users=4), run_at(users=8, failed=6, verdict=failing)]
    (sweep,) = sweeps(runs)
    assert [(point.concurrency, point.holds) for point in sweep.points] == [(2, True), (4, True), (8, False)]
    assert "gives most with 4 users: 36 output tokens/s in all" in sweep.summary
    assert "(8 no longer, limited by" in sweep.summary
    limited = [run_at(users=users, good_ratio=1.0) for users in (2, 4)]
    (sweep,) = sweeps([*limited, run_at(users=8, good_ratio=0.95, failed=6, verdict=failing)])
    assert "holds 4 users with" in sweep.summary
    cached = msgspec.structs.replace(failing, reasons=(*failing.reasons, "cached-prompt: 5"))
    assert len(sweeps([*runs[:2], run_at(users=8, failed=6, verdict=cached)])[0].points) == 2


def test_a_level_that_shows_nothing_does_not_end_those_that_hold():
    """A higher one that holds says more of it than its own schedule does."""
    (sweep,) = sweeps([run_at(1.0), run_at(1.86, is_sustained=True), run_at(2.6, is_sustained=True), run_at(3.71, is_sustained=False)])
    assert sweep.summary.endswith("holds 2.6 requests/s (3.71 no longer, limited by requests that wait in line)")


def test_an_invalid_run_is_no_level_but_for_a_rate_that_was_not_held():
    """A prompt from a cache says nothing of a load."""
    cached, late = (Verdict(state="invalid", reasons=(f"{rule}: 5",)) for rule in ("cached-prompt", "rate-not-sustained"))
    assert sweeps([run_at(users=1), run_at(users=2, verdict=cached)]) == []
    (sweep,) = sweeps([run_at(1.0, is_sustained=True), run_at(2.0, is_sustained=False, verdict=late)])
    assert len(sweep.points) == 2


def test_runs_of_other_limits_are_another_sweep():
    """A goodput under other limits is another figure."""
    loose = [run_at(rate, good_ratio=1.0, is_sustained=True) for rate in (1.0, 2.0)]
    strict = [
        msgspec.structs.replace(
            run,
            generation=msgspec.structs.replace(
                run.generation, goodput=msgspec.structs.replace(run.generation.goodput, limits_ms={"ttft": 1.0})
            ),
        )
        for run in loose
    ]
    assert {sweep.limits for sweep in sweeps([*loose, *strict])} == {"TTFT 500 ms, TPOT 50 ms", "TTFT 1 ms"}


def served_at(rate=None, users=None, good_ratio=None, failed=0, latency_ms=30.0, **changes):
    """Return a run of a served model, which has no tokens: 64 requests, half of them within `latency_ms`."""
    goodput = None
    if good_ratio is not None:
        missed = {"latency": round(64 * (1 - good_ratio))}
        goodput = Goodput(
            limits_ms={"latency": 50.0}, good=round(64 * good_ratio), good_ratio=good_ratio, requests_per_s=1.0, missed=missed
        )
    load = Load(samples_per_query=1, samples=64, target_per_s=rate, concurrency=users, is_sustained=rate and True)
    return make_record(
        scenario="poisson" if rate else "concurrent", load=load, served=Served(failed_queries=failed, goodput=goodput),
        latency=summarise_latency(np.full(64, round(latency_ms * 1e6))), throughput_per_s=rate or 20.0 * users, **changes,
    )  # fmt: skip


def test_a_served_model_has_a_sweep_without_tokens():
    """One sentence by its latency, nulls in JSON, and in the table no column of tokens."""
    runs = [served_at(rate, good_ratio=1.0) for rate in (20.0, 42.0)] + [served_at(48.0, good_ratio=0.8, latency_ms=61)]
    (sweep,) = sweeps(runs)
    assert sweep.summary.endswith(
        "holds 42 requests/s with latency 50 ms for 90% of requests (48 no longer, limited by latency p90 of 61 ms)"
    )
    (last,) = [point for point in msgspec.to_builtins(sweep.points) if point["target_per_s"] == 48.0]
    assert (last["latency_p90_ms"], last["good_ratio"], last["output_tokens_per_s"], last["ttft_p50_ms"]) == (61.0, 0.8, None, None)
    table = Console(width=140, record=True, file=StringIO())
    print_sweeps([sweep], table)
    same_as_snapshot("load-sweep-table", "".join(f"{line.rstrip()}\n" for line in table.export_text().splitlines()))


def test_requests_of_a_fixed_batch_are_not_its_samples():
    """The throughput counts samples, eight a request here."""
    load = Load(samples_per_query=8, samples=512, concurrency=2)
    runs = [msgspec.structs.replace(served_at(users=users), load=msgspec.structs.replace(load, concurrency=users)) for users in (1, 2)]
    (sweep,) = sweeps(runs)
    assert [point.requests_per_s for point in sweep.points] == [2.5, 5.0]
    assert "gives most with 2 users: 5 requests/s" in sweep.summary


def test_runs_in_a_process_of_their_own_are_no_sweep():
    """A model in the agent's own process has a queue of its own there."""
    assert sweeps([msgspec.structs.replace(served_at(rate), served=None) for rate in (1.0, 2.0)]) == []
