"""Facts about the statistics of generated text: definitions, what is left out, and bounds of gaps that belong together."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from edgemeter.agent.contract.record_generation import LanguageModel
from edgemeter.agent.engine.scenarios.generation_statistics import (
    TokenMoments,
    bandwidths_mb_per_s,
    decode_tokens_per_s,
    prefill_tokens_per_s,
    summarise_gaps,
    summarise_tpot,
    tpot_ns,
)
from tests.fixtures.record_factory import make_generation


def moments(*queries: list[int]) -> TokenMoments:
    """Return the moments of queries, each given by those of its tokens, ns."""
    return TokenMoments(
        first_ns=np.array([query[0] for query in queries]),
        latency_ns=np.array([query[-1] for query in queries]),
        output_tokens=np.array([len(query) for query in queries]),
        token_ns=np.array([moment for query in queries for moment in query]),
    )


def test_tpot_and_the_rates_follow_their_definitions():
    """(last - first) / (n - 1) a query; rates are ratios of sums, so that a slow query counts by its time."""
    two = moments([100, 110, 130], [200, 240, 280])
    assert tpot_ns(two, 3).tolist() == [15, 40]
    assert decode_tokens_per_s(two, 3) == pytest.approx(4 / (30 + 80) * 1e9)
    assert prefill_tokens_per_s(two, 1000) == pytest.approx(1000 / 300 * 1e9)


def test_a_query_that_ended_early_counts_for_ttft_alone():
    """Its tokens are in no TPOT, no gap and no decode rate."""
    three = moments([100, 110, 120], [100, 500], [100, 110, 120])
    assert tpot_ns(three, 3).tolist() == [10, 10]
    assert three.gaps_ns(3)[0].tolist() == [10, 10, 10, 10]
    assert three.gaps_ns(3)[1].tolist() == [0, 0, 2, 2]
    assert decode_tokens_per_s(three, 3) == pytest.approx(1e9 / 10)
    assert three.complete(3).tolist() == [True, False, True]


def test_one_token_has_no_tpot_and_no_gap():
    """A prefill alone is no decode."""
    alone = moments([100], [120])
    assert summarise_tpot(alone, 1) is None
    assert summarise_gaps(alone, 1) is None
    assert decode_tokens_per_s(alone, 1) is None
    assert alone.stamped_tokens_max() == 1


def test_tokens_that_came_together_have_a_tpot_but_no_gaps():
    """Gaps of zero are of the stream, not of the model."""
    joined = moments([100, 100, 100, 130, 130], [100, 130, 130, 130, 160])
    assert joined.stamped_tokens_max() == 3
    assert summarise_gaps(joined, 5) is None
    assert summarise_tpot(joined, 5) is not None


def test_the_last_token_of_a_query_and_the_first_of_the_next_did_not_come_together():
    """Moments count from each query's own start and may be equal by chance."""
    assert moments([100, 120], [120, 140]).stamped_tokens_max() == 1


def test_bounds_of_gaps_are_wider_where_queries_differ():
    """With a level for each query, 60 x 50 gaps know no more than 60 queries do: 95% bounds cover the true median, naive ones do not."""
    draw = np.random.default_rng(3)
    covered = 0
    for _ in range(40):
        levels = draw.normal(1_000_000, 100_000, 60)
        gaps = (levels[:, None] + draw.normal(0, 5_000, (60, 50))).astype(np.int64)
        latency = summarise_gaps(moments(*np.cumsum(np.c_[np.full(60, 10_000_000), gaps], axis=1).tolist()), 51)
        assert latency is not None
        assert latency.p50_low_ms is not None
        assert latency.p50_high_ms is not None
        covered += latency.p50_low_ms <= 1.0 <= latency.p50_high_ms
    assert covered >= 33


def test_gaps_of_few_queries_have_percentiles_without_bounds():
    """Ten queries cannot be resampled; what too few gaps support is refused."""
    few = moments(*([100 + 10 * index for index in range(12)] for _ in range(10)))
    latency = summarise_gaps(few, 12)
    assert latency is not None
    assert latency.count == 110
    assert latency.p90_ms is not None
    assert latency.p90_low_ms is None
    assert latency.refused == {"p95": 130, "p99": 662, "p99_9": 6636}


def test_at_a_depth_every_token_is_one_step_from_the_start():
    """Three tokens by 30 ns are 10 ns each, where two gaps after the first would be 9 and 11; a single token counts."""
    steps = replace(moments([10, 19, 30], [20, 40, 60]), decodes_from_start=True)
    assert tpot_ns(steps, 3).tolist() == [10, 20]
    assert decode_tokens_per_s(steps, 3) == pytest.approx(6e9 / 90)
    assert tpot_ns(replace(moments([10], [30]), decodes_from_start=True), 1).tolist() == [10, 30]


def test_a_token_reads_the_weights_and_what_is_in_the_cache():
    """At depth 1,000 with 10 more the cache holds 1,005 tokens on average; who shares a reading has no bandwidth."""
    model = LanguageModel(weights_mb=100.0, kv_token_bytes=50_000.0)
    deep = make_generation(depth_tokens=1000, prompt_tokens=0, output_tokens=10, decode_tokens_per_s=20.0, model=model)
    assert bandwidths_mb_per_s(deep, overlap=False) == pytest.approx((2000.0, 20 * (100 + 50.25)))
    assert bandwidths_mb_per_s(deep, overlap=True) == (None, None)
    assert bandwidths_mb_per_s(msgspec.structs.replace(deep, speculative="draft-simple"), overlap=False) == (None, None)
    window = msgspec.structs.replace(deep, model=LanguageModel(weights_mb=100.0))
    assert bandwidths_mb_per_s(window, overlap=False) == (2000.0, None)
