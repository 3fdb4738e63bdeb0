"""Facts about rates of several users: which of their queries count."""

from dataclasses import replace

import numpy as np
import pytest

from edgemeter.agent.engine.scenarios import scenario
from edgemeter.agent.engine.scenarios.generation_statistics import (
    TokenMoments,
    decode_tokens_per_s,
    output_tokens_per_s,
)
from edgemeter.agent.engine.scenarios.timing import TimedQueries

MS = 1_000_000


def timed(starts_ms, latency_ms, users):
    starts, latency = np.array(starts_ms) * MS, np.array(latency_ms) * MS
    return TimedQueries(
        starts, latency, 0, int((starts + latency).max()), overlap=True, users=users
    )


def test_rates_end_when_the_first_user_has_nothing_left():
    """Four and a third queries end in 20 ms, before a tail of 20 ms that does not count.

    Two users ask queries of 10 ms, the last of which takes 30.
    """
    queries = timed([0, 0, 10, 10], [10, 10, 10, 30], 2)
    assert queries.busy_end_ns == 20 * MS
    load = scenario.load_of_timed(queries, 1, None)
    assert (load.concurrency, load.in_flight_max, load.target_per_s) == (2, 2, None)
    assert scenario.throughput_per_s("concurrent", queries, 4) == pytest.approx((3 + 1 / 3) / 0.020)
    # Tokens count by their own moments: of the long query two of four came before the tail, the
    # first of them at 15 ms.
    token_ns = np.array([5, 6, 8, 10] * 3 + [5, 9, 20, 30]) * MS
    moments = TokenMoments(
        np.array([5, 5, 5, 5]) * MS, queries.latency_ns, np.array([4, 4, 4, 4]), token_ns
    )
    assert output_tokens_per_s(moments, queries) == pytest.approx(14 / 0.020)
    assert decode_tokens_per_s(moments, queries) == pytest.approx(10 / 0.020)


def test_the_burst_at_the_start_is_in_no_rate():
    """Rates begin when the first queries of both users have ended, at 12 and 20 ms.

    Of a query from 12 to 32 ms three fifths count, and of its four tokens the two after 20 ms.
    """
    queries = replace(
        timed([12, 20, 32, 40], [20, 20, 20, 20], 2), ramp_up_ns=np.array([12, 20]) * MS
    )
    assert (queries.busy_begin_ns, queries.busy_end_ns) == (20 * MS, 52 * MS)
    load = scenario.load_of_timed(queries, 1, None)
    assert load.samples == 6
    assert scenario.throughput_per_s("concurrent", queries, 4) == pytest.approx(
        (0.6 + 1 + 1 + 0.6) / 0.032
    )
    token_ns = np.array([5, 8, 9, 20] * 4) * MS
    moments = TokenMoments(np.full(4, 5 * MS), queries.latency_ns, np.full(4, 4), token_ns)
    assert output_tokens_per_s(moments, queries) == pytest.approx((2 + 4 + 4 + 3) / 0.032)


def test_tokens_that_came_with_the_first_are_not_decoded():
    """Each of two users decodes 28 tokens in 380 ms, and gets 32 in all.

    Each has a place, and the first four tokens come after 100 ms, then four each 40 ms.
    """
    starts = [380 * number for number in range(20) for _ in range(2)]
    queries = timed(starts, [380] * 40, 2)
    chunks_ms = [100 + 40 * chunk for chunk in range(8) for _ in range(4)]
    moments = TokenMoments(
        np.full(40, 100) * MS, queries.latency_ns, np.full(40, 32), np.array(chunks_ms * 40) * MS
    )
    assert decode_tokens_per_s(moments, queries) == pytest.approx(2 * 28 / 0.380)
    assert output_tokens_per_s(moments, queries) == pytest.approx(2 * 32 / 0.380)
