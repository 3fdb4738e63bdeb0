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


def goodput_of(good_ratio, **limits_ms):
    """Return the goodput of 64 requests, None where there are no limits."""
    if good_ratio is None:
        return None
    missed = dict.fromkeys(limits_ms, 0) | {next(iter(limits_ms)): round(64 * (1 - good_ratio))}
    return Goodput(limits_ms=limits_ms, good=round(64 * good_ratio), good_ratio=good_ratio, requests_per_s=1.0, missed=missed)


def run_at(rate=None, users=None, good_ratio=None, is_sustained=None, failed=0, unserved=0, ttft_ms=100, **changes):
    """Return a run of 64 requests at this rate, or of so many users: 10 tokens/s a user, 9 times the users in all."""
    generation = make_generation(
        goodput=goodput_of(good_ratio, ttft=500.0, tpot=50.0), failed_queries=failed, user_tokens_per_s=10.0,
        output_tokens_per_s=9.0 * (users or rate), ttft=summarise_latency(np.full(64, ttft_ms * 1_000_000)),
    )  # fmt: skip
    load = Load(samples_per_query=1, samples=64, target_per_s=rate, concurrency=users, is_sustained=is_sustained, unserved=unserved)
    return make_record(scenario="poisson" if rate else "concurrent", load=load, generation=generation, **changes)


def served_at(rate=None, users=None, good_ratio=None, failed=0, latency_ms=30.0, **changes):
    """Return a run of a served model, which has no tokens: 64 requests, half of them within `latency_ms`."""
    load = Load(samples_per_query=1, samples=64, target_per_s=rate, concurrency=users, is_sustained=rate and True)
    return make_record(
        scenario="poisson" if rate else "concurrent", load=load,
        served=Served(failed_queries=failed, goodput=goodput_of(good_ratio, latency=50.0)),
        latency=summarise_latency(np.full(64, round(latency_ms * 1e6))), throughput_per_s=rate or 20.0 * users, **changes,
    )  # fmt: skip


def batched_at(users):
    """Return a run of a served model whose requests are of eight samples each."""
    return msgspec.structs.replace(served_at(users=users), load=Load(samples_per_query=8, samples=512, concurrency=users))


def invalid(*reasons):
    """Return the verdict of a run that failed by these rules."""
    return Verdict(state="invalid", reasons=reasons)


FAILING = invalid("not-steady: 5%", "failed-answers: 4 of 68 queries failed")
SUSTAINED = {"is_sustained": True}
SWEEPS = {
    "users of one server, in any order, with a repeat": [run_at(users=users) for users in (4, 1, 2, 2)],
    "the lowest rate that is not held ends it, whatever a later one seems to hold by chance": [
        run_at(1.0, good_ratio=1.0, **SUSTAINED), run_at(6.2, good_ratio=0.95, **SUSTAINED),
        run_at(7.1, good_ratio=0.8, ttft_ms=612, **SUSTAINED), run_at(7.5, good_ratio=0.91, **SUSTAINED),
    ],
    "a line that grows is the limit": [run_at(1.0, **SUSTAINED), run_at(2.0, is_sustained=False)],
    "all rates hold": [run_at(1.0, **SUSTAINED), run_at(2.0, **SUSTAINED)],
    "no rate holds": [run_at(1.0, is_sustained=False), run_at(2.0, is_sustained=False)],
    "queries of the most users fail": [run_at(users=2), run_at(users=4), run_at(users=8, failed=6, verdict=FAILING)],
    "limits, and queries of the most users fail": [
        *(run_at(users=users, good_ratio=1.0) for users in (2, 4)), run_at(users=8, good_ratio=0.95, failed=6, verdict=FAILING),
    ],
    "a prompt from a cache says nothing of a load": [
        run_at(users=2), run_at(users=4), run_at(users=8, failed=6, verdict=invalid(*FAILING.reasons, "cached-prompt: 5")),
    ],
    "a level that shows nothing does not end those that hold": [
        run_at(1.0), run_at(1.86, **SUSTAINED), run_at(2.6, **SUSTAINED), run_at(3.71, is_sustained=False),
    ],
    "a rate that was not held is a level, though its run is invalid": [
        run_at(1.0, **SUSTAINED), run_at(2.0, is_sustained=False, verdict=invalid("rate-not-sustained: 5")),
    ],
    "a served model": [*(served_at(rate, good_ratio=1.0) for rate in (20.0, 42.0)), served_at(48.0, good_ratio=0.8, latency_ms=61)],
    "samples of a fixed batch are no requests": [batched_at(1), batched_at(2)],
}  # fmt: skip


def test_the_levels_of_one_server_are_a_sweep_from_the_lowest():
    """By case: the sentence, and the table, in which a served model has no column of tokens."""
    blocks = []
    for title, runs in SWEEPS.items():
        of_case = sweeps(runs)
        table = Console(width=140, record=True, file=StringIO())
        print_sweeps(of_case, table)
        lines = "".join(f"{line.rstrip()}\n" for line in table.export_text().splitlines())
        holds = ", ".join(f"{point.target_per_s or point.concurrency} {point.holds}" for point in of_case[0].points)
        blocks.append(f"== {title}\n{of_case[0].summary}\nholds: {holds}\n{lines}")
    same_as_snapshot("load-sweeps", "\n".join(blocks))


def test_runs_that_are_no_levels_of_one_server_are_no_sweep():
    """One level, one query after the other, another device, a run from a cache, a model in the agent's own process."""
    assert sweeps([run_at(users=2), run_at(users=2), make_record(generation=make_generation())]) == []
    assert sweeps([run_at(users=2), run_at(users=4, device="pi-2")]) == []
    assert sweeps([run_at(users=1), run_at(users=2, verdict=invalid("cached-prompt: 5"))]) == []
    assert sweeps([msgspec.structs.replace(served_at(rate), served=None) for rate in (1.0, 2.0)]) == []


def test_errors_are_what_failed_and_what_was_left_out():
    """Above a hundredth of failed ones no load is held."""
    run = run_at(5.0, failed=4, unserved=6, **SUSTAINED)
    assert error_ratio(run) == pytest.approx(10 / (run.latency.count + 10))
    assert "without an answer" in limit_of(run)
    assert limit_of(run_at(5.0, **SUSTAINED)) is None


def test_a_limit_of_the_client_is_not_stated_as_the_servers():
    """Arrivals that were left out never came to the server: it is not known to have had a line."""
    in_line = run_at(6.4, is_sustained=False, unserved=9)
    run = msgspec.structs.replace(in_line, load=msgspec.structs.replace(in_line.load, in_flight_max=256))
    assert "Edgemeter sends" in limit_of(run)
    assert "wait in line" in limit_of(in_line)
    late = run_at(6.4, is_sustained=False, unserved=9, good_ratio=0.8)
    assert limit_of(msgspec.structs.replace(late, load=run.load)).startswith("TTFT p90")


def test_runs_of_other_limits_are_another_sweep():
    """A goodput under other limits is another figure."""
    loose = [run_at(rate, good_ratio=1.0, **SUSTAINED) for rate in (1.0, 2.0)]
    strict = [
        msgspec.structs.replace(run, generation=msgspec.structs.replace(run.generation, goodput=goodput_of(1.0, ttft=1.0))) for run in loose
    ]
    assert {sweep.limits for sweep in sweeps([*loose, *strict])} == {"TTFT 500 ms, TPOT 50 ms", "TTFT 1 ms"}
