"""Facts about `edgemeter.agent.engine.scenarios.goodput`: requests that met all limits, worked out by hand."""

import numpy as np
import pytest

from edgemeter.agent.engine.scenarios.generation_statistics import TokenMoments
from edgemeter.agent.engine.scenarios.goodput import goodput_of
from edgemeter.agent.engine.scenarios.scenario import throughput_per_s
from edgemeter.agent.engine.scenarios.timing import TimedQueries
from tests.fixtures.record_factory import make_generation

MS = 1_000_000


def four(users=None):
    """Return four requests of 3 tokens: TTFT 10, 20, 30, 40 ms, TPOT 5, 5, 15, 5 ms; they arrive 100 ms apart, or come of two users."""
    first, latency = np.array([10, 20, 30, 40]) * MS, np.array([20, 30, 60, 50]) * MS
    token_ns = np.concatenate([[a, (a + b) // 2, b] for a, b in zip(first, latency, strict=True)])
    starts = np.array([0, 0, 20, 30] if users else [0, 100, 200, 300]) * MS
    timed = TimedQueries(starts, latency, {}, 0, int((starts + latency).max()), None if users else starts, overlap=True, users=users)
    return TokenMoments(first, latency, np.array([3, 3, 3, 3]), token_ns), timed


def goodput(queries, limits_ms, scenario="poisson", **changes):
    """Return the goodput of moments and their queries."""
    moments, timed = queries
    rate = throughput_per_s(scenario, timed, timed.latency_ns.size)
    return goodput_of(make_generation(**changes), moments, timed, limits_ms, rate)


def test_a_request_is_good_if_it_meets_every_limit():
    """The third breaks TPOT, the fourth TTFT; a request at the limit meets it."""
    figures = goodput(four(), {"ttft": 30.0, "tpot": 10.0})
    assert (figures.good, figures.good_ratio, figures.missed) == (2, 0.5, {"ttft": 1, "tpot": 1})
    assert figures.requests_per_s == pytest.approx(2 / 0.350)
    assert goodput(four(), {"latency": 50.0}).good == 3
    assert goodput(four(), {}) is None


def test_who_had_no_answer_is_never_good():
    """Two failed ones halve a share that was 4 of 4, almost; the rate of good ones stays."""
    figures = goodput(four(), {"ttft": 100.0}, failed_queries=2)
    assert (figures.good, figures.good_ratio) == (4, pytest.approx(4 / 6))
    assert figures.requests_per_s == pytest.approx(4 / 0.350)


def test_a_metric_that_a_request_lacks_is_not_met():
    """A single token has no time per further token."""
    single = TokenMoments(np.array([MS]), np.array([MS]), np.array([1]), np.array([MS]))
    timed = TimedQueries(np.array([0]), np.array([MS]), {}, 0, MS)
    assert goodput((single, timed), {"tpot": 1000.0}).good == 0


def test_one_after_the_other_it_is_the_good_part_of_the_throughput():
    """Four queries of 1 s with 0.15 s between them, in which a cache is emptied: one a second, and all of them are good."""
    starts, latency = np.arange(4) * 1150 * MS, np.full(4, 1000 * MS)
    timed = TimedQueries(starts, latency, {}, 0, int(starts[-1] + latency[-1]))
    moments = TokenMoments(latency, latency, np.ones(4, int), latency)
    assert throughput_per_s("single_stream", timed, 4) == pytest.approx(1.0)
    assert goodput((moments, timed), {"latency": 1000.0}, "single_stream").requests_per_s == pytest.approx(1.0)


def test_of_users_a_request_that_the_tail_cuts_counts_by_its_share():
    """Two users; the tail begins at 80 ms: all but nothing of the third, none of the fourth is cut where both end there."""
    moments, timed = four(users=2)
    assert timed.busy_end_ns == 80 * MS
    assert goodput((moments, timed), {"latency": 100.0}, "concurrent").requests_per_s == pytest.approx(4 / 0.080)
