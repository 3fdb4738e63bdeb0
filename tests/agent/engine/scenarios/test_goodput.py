"""Facts about `edgemeter.agent.engine.scenarios.goodput`: requests that met all limits, worked out by hand."""

import numpy as np
import pytest

from edgemeter.agent.engine.scenarios.generation_statistics import TokenMoments
from edgemeter.agent.engine.scenarios.goodput import goodput_of
from edgemeter.agent.engine.scenarios.timing import TimedQueries

MS = 1_000_000


def four(users=None):
    """Return four requests of 3 tokens: TTFT 10, 20, 30, 40 ms, TPOT 5, 5, 15, 5 ms; they arrive 100 ms apart, or come of two users."""
    first, latency = np.array([10, 20, 30, 40]) * MS, np.array([20, 30, 60, 50]) * MS
    token_ns = np.concatenate([[a, (a + b) // 2, b] for a, b in zip(first, latency, strict=True)])
    starts = np.array([0, 0, 20, 30] if users else [0, 100, 200, 300]) * MS
    timed = TimedQueries(starts, latency, {}, 0, int((starts + latency).max()), None if users else starts, overlap=True, users=users)
    return TokenMoments(first, latency, np.array([3, 3, 3, 3]), token_ns), timed


def test_a_request_is_good_if_it_meets_every_limit():
    """The third breaks TPOT, the fourth TTFT; a request at the limit meets it."""
    goodput = goodput_of(*four(), {"ttft": 30.0, "tpot": 10.0}, 0)
    assert (goodput.good, goodput.good_ratio, goodput.missed) == (2, 0.5, {"ttft": 1, "tpot": 1})
    assert goodput.requests_per_s == pytest.approx(2 / 0.350)
    assert goodput_of(*four(), {"latency": 50.0}, 0).good == 3


def test_who_had_no_answer_is_never_good():
    """Two failed ones halve a share that was 4 of 4, almost; the rate of good ones stays."""
    goodput = goodput_of(*four(), {"ttft": 100.0}, 2)
    assert (goodput.good, goodput.good_ratio) == (4, pytest.approx(4 / 6))
    assert goodput.requests_per_s == pytest.approx(4 / 0.350)


def test_a_metric_that_a_request_lacks_is_not_met():
    """A single token has no time per further token."""
    single = TokenMoments(np.array([MS]), np.array([MS]), np.array([1]), np.array([MS]))
    timed = TimedQueries(np.array([0]), np.array([MS]), {}, 0, MS)
    assert goodput_of(single, timed, {"tpot": 1000.0}, 0).good == 0


def test_what_no_request_has_is_met_by_none():
    """An answer that does not stream has no time to its first token, whatever the moments."""
    goodput = goodput_of(*four(), {"ttft": 100.0, "latency": 100.0}, 0, ["ttft"])
    assert (goodput.good, goodput.missed) == (0, {"ttft": 4, "latency": 0})


def test_without_limits_there_is_no_goodput():
    """Nothing was asked for."""
    assert goodput_of(*four(), {}, 0) is None


def test_of_users_a_request_that_the_tail_cuts_counts_by_its_share():
    """Two users; the tail begins at 80 ms: all but nothing of the third, none of the fourth is cut where both end there."""
    moments, timed = four(users=2)
    assert timed.busy_end_ns == 80 * MS
    assert goodput_of(moments, timed, {"latency": 100.0}, 0).requests_per_s == pytest.approx(4 / 0.080)
