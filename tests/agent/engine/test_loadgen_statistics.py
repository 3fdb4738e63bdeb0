"""Facts about our percentiles beside MLPerf LoadGen's own, on the same latencies."""

import time
from itertools import cycle

import numpy as np
import pytest

from edgemeter.agent.engine.scenarios import latency_statistics

pytestmark = pytest.mark.loadgen

QUERIES = 7000
STATED = {"p50": "50.00", "p90": "90.00", "p99": "99.00"}


@pytest.fixture(scope="module")
def skewed_call():
    """Return a system under test whose queries last 10 us and more, skewed."""
    durations_ns = cycle(
        (10_000 + np.random.default_rng(4).lognormal(0, 1, QUERIES) * 5_000)
        .astype(np.int64)
        .tolist()
    )

    def call():
        end = time.perf_counter_ns() + next(durations_ns)
        while time.perf_counter_ns() < end:
            pass

    return call


def single_stream(*arguments, **settings):
    """Let LoadGen issue queries; it is imported only where it is installed."""
    from tests.fixtures import loadgen  # noqa: PLC0415 - at collection nothing optional is imported

    return loadgen.single_stream(*arguments, **settings)


@pytest.mark.parametrize("name", STATED)
def test_our_early_stopping_estimate_is_loadgens_own(name, skewed_call, tmp_path):
    """Our estimate from LoadGen's latencies equals that of its summary, to the nanosecond.

    The number of discarded queries is equal too.
    """
    summary = single_stream(
        skewed_call, tmp_path, queries=QUERIES, percentile=latency_statistics.PERCENTILES[name]
    )
    assert len(summary.latency_ns) == QUERIES
    latency = latency_statistics.summarise_latency(
        np.array(summary.latency_ns, dtype=np.int64), "single_stream"
    )
    assert (
        round(latency.early_stopping_ms[name] * 1e6) == summary.figures["early_stopping_latency_ss"]
    )
    discarded = (
        latency_statistics.over_latency_limit(QUERIES, latency_statistics.PERCENTILES[name]) - 1
    )
    assert (
        f"Would discard {discarded} highest latency queries"
        in summary.figures["early_stopping_result"]
    )
    assert (
        round(latency.early_stopping_ms["p99"] * 1e6)
        == summary.figures["early_stopping_latency_ms"]
    )


def test_our_percentiles_lie_beside_loadgens(skewed_call, tmp_path):
    """LoadGen states element floor(n p) of the sorted latencies.

    Ours, which interpolates, lies at most one element below it.
    """
    summary = single_stream(skewed_call, tmp_path, queries=QUERIES)
    latency = latency_statistics.summarise_latency(
        np.array(summary.latency_ns, dtype=np.int64), "single_stream"
    )
    ordered = sorted(summary.latency_ns)
    for name, percentile in STATED.items():
        index = int(QUERIES * latency_statistics.PERCENTILES[name])
        figure_ns = summary.figures[f"result_{percentile}_percentile_latency_ns"]
        assert figure_ns == ordered[index]
        assert ordered[index - 1] <= round(getattr(latency, f"{name}_ms") * 1e6, 3) <= figure_ns
