"""Facts about `edgemeter.agent.engine.scenarios.poisson`.

The users of a server wait for nobody here.
"""

import numpy as np

from edgemeter.agent.engine.scenarios import poisson
from edgemeter.agent.engine.scenarios.timing import TimedQueries
from tests.fixtures.rows import table_row

MS = 1_000_000


def timed(arrivals_ms, latency_ms, unserved=0):
    """Return queries that started when they arrived."""
    arrivals, latency = np.array(arrivals_ms) * MS, np.array(latency_ms) * MS
    return TimedQueries(
        arrivals, latency, 0, int((arrivals + latency).max()), arrivals, unserved, overlap=True
    )


def test_the_most_in_flight_are_counted():
    """A query that ends when another starts is not in flight with it."""
    assert poisson.in_flight_max(timed([0, 10, 20], [10, 10, 10])) == 1
    assert poisson.in_flight_max(timed([0, 5, 9, 30], [10, 10, 10, 1])) == 3


def served(rate_ratio, places, queries=400):
    """Return the queries of a server of `places` that takes 100 ms each.

    They come at `rate_ratio` of the rate that it can serve.
    """
    draw = np.random.default_rng(queries)
    arrivals = np.cumsum(draw.exponential(100 / places / rate_ratio, queries))
    free, ends = [0.0] * places, []
    for arrival in arrivals:
        free.sort()
        free[0] = max(free[0], arrival) + 100
        ends.append(free[0])
    return timed(np.rint(arrivals).astype(int), np.rint(ends - arrivals).astype(int))


def test_a_rate_above_what_a_server_can_leaves_a_backlog():
    """The backlog is found however many queries the server takes at once, which is unknown.

    At 80% of the capacity there is none, although queries overlap all the time.
    """
    for places in [1, 16]:
        with table_row(places):
            assert poisson.keeps_up(served(0.8, places))
            assert poisson.keeps_up(served(1.3, places)) is False
            assert poisson.keeps_up(served(0.8, places, queries=64)) is not False


def answered(rate_per_s, seconds, service_s, places=10_000, seed=1):
    """Return queries at this rate of a server of so many places.

    Its answers take the times that `service_s` draws.
    """
    draw = np.random.default_rng(seed)
    arrivals = np.cumsum(draw.exponential(1 / rate_per_s, round(rate_per_s * seconds)))
    service = service_s(draw, arrivals)
    free, ends = np.zeros(places), []
    for arrival, length in zip(arrivals, service, strict=True):
        server = int(free.argmin())
        free[server] = max(free[server], arrival) + length
        ends.append(free[server])
    return timed(
        np.rint(arrivals * 1e3).astype(int), np.rint((np.array(ends) - arrivals) * 1e3).astype(int)
    )


def any_length(draw, arrivals):
    """Return answers of 0.1 to 10.3 s, each as likely."""
    return draw.uniform(0.1, 10.3, arrivals.size)


def filling(_, arrivals):
    """Return answers of 1.3 s alone, which take 2.6 s once a batch is full, in 2 s."""
    return 1.3 * (1 + np.minimum(arrivals / 2, 1))


def test_answers_of_any_length_are_no_backlog():
    """A server with room for the rate has no backlog, and one with 8 places has.

    The rate is 2/s for a minute with room for all, 2/s with 16 places, and 3/s with 8.
    """
    for seed in range(2):
        with table_row(seed):
            assert poisson.keeps_up(answered(2.0, 60.0, any_length, seed=seed))
            assert (
                poisson.keeps_up(answered(2.0, 120.0, any_length, places=16, seed=seed))
                is not False
            )
            assert poisson.keeps_up(answered(3.0, 120.0, any_length, places=8, seed=seed)) is False


def test_a_schedule_as_short_as_a_few_answers_shows_nothing():
    """64 queries at 20/s arrive before the first few are answered.

    Ten times the capacity of a server is seen all the same.
    """
    assert poisson.keeps_up(answered(20.0, 3.2, filling)) is None
    assert poisson.keeps_up(answered(2.0, 8.0, any_length)) is None
    assert poisson.keeps_up(served(10.0, 2, queries=64)) is False
