from math import comb

import numpy as np
import pytest

from edgemeter.agent.engine.scenarios import latency_statistics


def shuffled(count: int):
    """Return 1, 2, ... in an order of no meaning, int64 [count]."""
    return np.random.default_rng(count).permutation(np.arange(1, count + 1))


def test_a_percentile_needs_as_many_queries_as_in_mlperf():
    """The minimum query counts are those of MLPerf's early stopping."""
    for percentile, queries in [(0.50, 11), (0.90, 64), (0.95, 130), (0.99, 662), (0.999, 6636)]:
        assert latency_statistics.queries_needed(percentile) == queries, f"{percentile!r}"
    # With 126,593 queries MLPerf v4.1 (Dell L4 RetinaNet) discarded 12,410 for p90.
    assert latency_statistics.over_latency_limit(126_593, 0.9) - 1 == 12_410


def test_the_binomial_distribution_is_exact():
    """The cumulative distribution equals the sum of the exact terms."""
    exact = np.cumsum([comb(30, k) * 0.2**k * 0.8 ** (30 - k) for k in range(31)])
    np.testing.assert_allclose(latency_statistics.binomial_cdf(30, 0.2), exact, rtol=1e-12)


def test_a_percentile_that_too_few_queries_support_is_refused():
    """64 queries give p50 and p90, and 661 give no p99, which one more does.

    In MLPerf's scenario the estimate is then the slowest query.
    """
    latency = latency_statistics.summarise_latency(shuffled(64) * 1_000_000, "single_stream")
    assert latency.count == 64
    assert latency.p50_ms == 32.5
    assert latency.p99_ms is None
    assert latency.p90_ms == pytest.approx(57.7)
    assert latency.early_stopping_ms == {"p50": 43.0, "p90": 64.0}
    latency_ns = np.append(shuffled(661), 662) * 1_000
    assert latency_statistics.summarise_latency(latency_ns[:-1]).p99_ms is None
    latency = latency_statistics.summarise_latency(latency_ns, "single_stream")
    assert latency.early_stopping_ms["p99"] == 0.662
    assert 0.99 * 0.662 <= latency.p99_ms <= 0.662
    assert latency_statistics.summarise_latency(latency_ns, "poisson").early_stopping_ms == {}


def test_one_query_has_no_percentiles_and_no_spread():
    """It is counted, and nothing is claimed about its distribution.

    A stage without samples is absent.
    """
    latency = latency_statistics.summarise_latency(
        np.array([5_000_000], dtype=np.int64), "single_stream"
    )
    assert latency.count == 1
    assert latency.mean_ms == 5.0
    assert latency.p50_ms is None
    assert latency_statistics.summarise_stage(np.array([], dtype=np.int64)) is None
