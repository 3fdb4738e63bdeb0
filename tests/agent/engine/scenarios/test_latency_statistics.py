"""Facts about `edgemeter.agent.engine.scenarios.latency_statistics`."""

from math import comb

import numpy as np
import pytest

from edgemeter.agent.engine.scenarios import latency_statistics


def test_a_percentile_needs_as_many_queries_as_in_mlperf():
    """The minimum query counts are those of MLPerf's early stopping."""
    for percentile, queries in [(0.50, 11), (0.90, 64), (0.95, 130), (0.99, 662), (0.999, 6636)]:
        assert latency_statistics.queries_needed(percentile) == queries, f"{percentile!r}"


def test_early_stopping_discards_what_mlperf_discards():
    """With 126,593 queries MLPerf v4.1 (Dell L4 RetinaNet) discarded 12,410 for p90."""
    assert latency_statistics.over_latency_limit(126_593, 0.9) - 1 == 12_410


def test_the_binomial_distribution_is_exact():
    """The cumulative distribution equals the sum of the exact terms."""
    exact = np.cumsum([comb(30, k) * 0.2**k * 0.8 ** (30 - k) for k in range(31)])
    np.testing.assert_allclose(latency_statistics.binomial_cdf(30, 0.2), exact, rtol=1e-12)


def test_a_percentile_that_too_few_queries_support_is_refused():
    """64 queries give p50 and p90; p95 and p99 are null and state how many they need."""
    latency = latency_statistics.summarise_latency(np.arange(1, 65, dtype=np.int64) * 1_000_000)
    assert latency.count == 64
    assert latency.p50_ms == 32.5
    assert latency.p95_ms is None
    assert latency.p99_ms is None
    assert latency.p90_ms == pytest.approx(57.7)
    assert latency.refused == {"p95": 130, "p99": 662, "p99_9": 6636}
    assert latency.early_stopping_ms["p90"] == 64.0


def test_the_one_query_in_a_thousand_is_stated_from_6636_queries_on():
    """6,635 queries refuse p99.9; one more states it with its lower bound and its early-stopping estimate, the slowest query."""
    latency_ns = np.arange(1, 6637, dtype=np.int64) * 1_000
    assert latency_statistics.summarise_latency(latency_ns[:-1]).refused == {"p99_9": 6636}
    latency = latency_statistics.summarise_latency(latency_ns)
    assert (latency.refused, latency.early_stopping_ms["p99_9"]) == ({}, 6.636)
    assert latency.p99_9_low_ms < 0.999 * 6.636 <= latency.p99_9_ms <= 6.636


@pytest.mark.slow
def test_stated_bounds_cover_the_true_percentile():
    """The 95% bounds of p50 and p90 cover the truth in at least 95% (less sampling error) of 2,000 skewed samples."""
    draw = np.random.default_rng(1)
    truth = {"p50": 0.0, "p90": 1.2815515655446004}
    covered = dict.fromkeys(truth, 0)
    for _ in range(2000):
        latency = latency_statistics.summarise_latency((draw.lognormal(0, 1, 128) * 1e9).astype(np.int64))
        for name, z in truth.items():
            low, high = getattr(latency, f"{name}_low_ms"), getattr(latency, f"{name}_high_ms")
            covered[name] += low <= np.exp(z) * 1e3 <= (high or np.inf)
    assert all(0.94 <= count / 2000 <= 0.985 for count in covered.values()), covered


def test_one_query_has_no_percentiles_and_no_spread():
    """A single query is counted, and nothing is claimed about its distribution."""
    latency = latency_statistics.summarise_latency(np.array([5_000_000], dtype=np.int64))
    assert latency.count == 1
    assert latency.mean_ms == 5.0
    assert latency.sd_ms == 0.0
    assert latency.p50_ms is None


def test_a_stage_without_samples_is_absent():
    """No pre-processing happened: there is no summary of it."""
    assert latency_statistics.summarise_stage(np.array([], dtype=np.int64)) is None
