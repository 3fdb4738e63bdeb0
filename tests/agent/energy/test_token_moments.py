"""Facts about the tokens of a first moment: joined ones, and those of a burst, were decoded before it."""

import numpy as np

from edgemeter.agent.energy.token_moments import tokens_after_first


def after_first(*queries, is_local=False):
    """Return the tokens after the first moment of queries with tokens at these microseconds."""
    token_ns = np.array([moment * 1000 for query in queries for moment in query], np.int64)
    return tokens_after_first(token_ns, np.array([len(query) for query in queries], np.int64), is_local=is_local).tolist()


def test_tokens_of_one_piece_and_of_one_burst_are_of_the_first_moment():
    """One by one, joined, four lines of a segment that are read 30 us apart, and a single token; each query by itself."""
    one_by_one = [100, 2100, 4100, 6100]
    joined = [100, 100, 100, 6100]
    burst = [100, 130, 160, 190, 8100, 8130, 8160, 8190]
    assert after_first(one_by_one, joined, burst, [50], one_by_one) == [3, 1, 4, 0, 3]


def test_a_late_second_token_is_later_however_short_the_others_are():
    """Jitter of a stream is no burst: 40% of the mean gap."""
    assert after_first([0, 400, 2000, 3000]) == [3]
    assert after_first() == []
    assert after_first([0, 400, 800, 60_000]) == [3]
    assert after_first([0, 90, 180, 60_000], [0, 0, 90], is_local=True) == [3, 1]
