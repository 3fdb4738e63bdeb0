"""Facts about `edgemeter.agent.engine.scenarios.latency_statistics`."""

from math import comb

import numpy as np
import pytest

from edgemeter.agent.engine.scenarios import latency_statistics
from tests.fixtures.first_order import first_order
from tests.fixtures.rows import table_row


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


def test_bounds_are_the_narrowest_order_statistics_that_hold():
    """Of 1, 2, ... n by exact sums: no more than 2.5% for fewer below the lower one, 97.5% at least for the upper one."""
    for count, level in [(64, 0.5), (200, 0.9)]:

        def below(number, count=count, level=level):
            return sum(comb(count, k) * level**k * (1 - level) ** (count - k) for k in range(int(number)))

        low, high = latency_statistics.order_bounds(np.arange(1.0, count + 1), level)
        assert below(low) <= 0.025 < below(low + 1)
        assert below(high - 1) < 0.975 <= below(high)
    # Below 1 of 100 nothing is known of the other side; queries that depend are worth fewer, at the same share of all.
    assert latency_statistics.order_bounds(np.arange(1.0, 21.0), 0.9)[1] is None
    assert latency_statistics.order_bounds(np.arange(1.0, 129.0), 0.5, 64) == (48.0, 82.0)


def test_a_percentile_that_too_few_queries_support_is_refused():
    """64 queries give p50 and p90; p95 and p99 are null and state how many they need."""
    latency = latency_statistics.summarise_latency(shuffled(64) * 1_000_000)
    assert latency.count == 64
    assert latency.p50_ms == 32.5
    assert latency.p95_ms is None
    assert latency.p99_ms is None
    assert latency.p90_ms == pytest.approx(57.7)
    assert latency.refused == {"p95": 130, "p99": 662, "p99_9": 6636}
    assert latency.early_stopping_ms["p90"] == 64.0


def test_the_one_query_in_a_thousand_is_stated_from_6636_queries_on():
    """6,635 queries refuse p99.9; one more states it with its lower bound and its early-stopping estimate, the slowest query."""
    latency_ns = np.append(shuffled(6635), 6636) * 1_000
    assert latency_statistics.summarise_latency(latency_ns[:-1]).refused == {"p99_9": 6636}
    latency = latency_statistics.summarise_latency(latency_ns)
    assert (latency.refused, latency.early_stopping_ms["p99_9"]) == ({}, 6.636)
    assert latency.p99_9_low_ms < 0.999 * 6.636 <= latency.p99_9_ms <= 6.636


def autoregressive(draw, rows, n):
    """Return latencies of 5 ms whose logarithms follow a first-order process, [rows, n]."""
    noise = draw.standard_normal((rows, n)) * np.sqrt(1 - 0.9**2)
    noise[:, 0] /= np.sqrt(1 - 0.9**2)
    return 5.0 * np.exp(0.2 * first_order(noise, 0.9))


def bursts(draw, rows, n):
    """Return latencies of which one in twenty is three times as long: another job stays for five queries on average."""
    begins, ends = 0.05 / 0.95 / 5, 1 / 5
    count = int(1.5 * rows * n * begins) + 50
    chain = np.repeat(np.tile([False, True], count), draw.geometric(np.tile([begins, ends], count)))
    slow = chain[: rows * n].reshape(rows, n)
    return 5.0 * np.exp(0.05 * draw.standard_normal((rows, n))) * np.where(slow, 3 * np.exp(0.2 * draw.standard_normal((rows, n))), 1)


def queue(draw, rows, n):
    """Return latencies of queries that arrive at random, wait in line at a load of 80%, and are served for about the same time."""
    burn = 1000
    work = 5.0 * np.exp(0.01 * draw.standard_normal((rows, burn + n)))
    steps = work[:, :-1] - draw.exponential(5.0 / 0.8, (rows, burn + n - 1))
    walk = np.concatenate((np.zeros((rows, 1)), np.cumsum(steps, axis=1)), axis=1)
    return (walk - np.minimum.accumulate(walk, axis=1) + work)[:, burn:]


def test_queries_that_depend_have_wider_bounds_or_none():
    """The bounds of p50 and p90 hold the truth in at least 90% of 40 runs (sampling error 3%), or say how many queries they need."""
    for world in (autoregressive, bursts, queue):
        draw = np.random.default_rng(5)
        truth_ms = np.quantile(world(draw, 1, 400_000), (0.5, 0.9))
        misses = []
        for row in world(draw, 40, 4096):
            latency = latency_statistics.summarise_latency((row * 1e6).astype(np.int64))
            assert (latency.early_stopping_ms, latency.early_stopping_reason) == ({}, latency_statistics.DEPENDENT)
            assert latency.effective["p50"] < 4096
            for name, true_ms in zip(("p50", "p90"), truth_ms, strict=True):
                low, high = getattr(latency, f"{name}_low_ms"), getattr(latency, f"{name}_high_ms")
                assert (low is None) == (name in latency.unbounded)
                misses.append(low is not None and not low <= true_ms <= high)
        with table_row(world.__name__):
            assert np.mean(misses) <= 0.1


def test_independent_queries_keep_their_exact_bounds():
    """At most 5% of 60 runs of independent queries, with steps of the clock or without, are taken for dependent."""
    for step_ns in (1, 1_000, 1_000_000):
        rows = 5e6 * np.exp(0.2 * np.random.default_rng(6).standard_normal((60, 1024))) / step_ns
        summaries = [latency_statistics.summarise_latency(np.rint(row).astype(np.int64) * step_ns) for row in rows]
        with table_row(step_ns):
            assert np.mean([latency.early_stopping_reason is not None for latency in summaries]) <= 0.05
        independent = next(latency for latency in summaries if latency.early_stopping_reason is None)
        assert set(independent.effective.values()) == {1024}


def test_a_correlation_as_long_as_the_run_leaves_no_bounds():
    """A run that slows all the time has its percentiles without bounds, and says how many queries each would need."""
    noise = np.random.default_rng(7).normal(0, 0.01, 1024)
    latency = latency_statistics.summarise_latency((5e6 * (1 + noise + np.arange(1024) / 4096)).astype(np.int64))
    assert latency.p50_ms is not None
    assert (latency.p50_low_ms, latency.p50_high_ms) == (None, None)
    assert latency.unbounded["p50"] > 1024


def test_queries_that_are_early_or_late_in_pairs_have_bounds_or_none_in_every_order():
    """A server that answers twelve queries about at once or about 40 ms later, two at a time, in each of the 64 orders."""
    for order in range(1 << 6):
        late = np.repeat([order >> pair & 1 for pair in range(6)], 2)
        for seed in range(4):
            durations = np.random.default_rng(seed).integers(5_000_000, 6_000_000, 12)
            latency = latency_statistics.summarise_latency(durations + 40_000_000 * late)
            low_ms, high_ms = latency.p50_low_ms or 5.0, latency.p50_high_ms or 46.0
            assert 5.0 <= low_ms <= latency.p50_ms <= high_ms <= 46.0, f"{late} {seed}"


def test_one_slow_query_in_fifty_is_no_dependence():
    """What comes at equal distances is more even than chance: the bounds stay those of independent queries."""
    row = 5e6 * np.exp(0.05 * np.random.default_rng(8).standard_normal(4096)) * np.where(np.arange(4096) % 50 == 7, 2, 1)
    assert latency_statistics.summarise_latency(row.astype(np.int64)).early_stopping_reason is None


def test_one_query_has_no_percentiles_and_no_spread():
    """It is counted, and nothing is claimed about its distribution; a stage without samples is absent."""
    latency = latency_statistics.summarise_latency(np.array([5_000_000], dtype=np.int64))
    assert latency.count == 1
    assert latency.mean_ms == 5.0
    assert latency.sd_ms == 0.0
    assert latency.p50_ms is None
    assert latency_statistics.summarise_stage(np.array([], dtype=np.int64)) is None
