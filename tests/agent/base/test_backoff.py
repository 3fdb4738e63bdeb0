"""Facts about a thousand agents that lose their broker at the same moment."""

import heapq
import random

import pytest

from edgemeter.agent.base import mqtt_session

AGENTS = 1000
# What a small broker takes of TLS connections; who comes in a second beyond that fails and tries again.
TAKES_PER_S = 100


def come_back(wait_s, down_s=0.0, takes_per_s=TAKES_PER_S):
    """Return when each agent was in, and how many tries each second saw, after the broker broke at 0 and was back after `down_s`."""
    tries = [(wait_s(0), agent, 0) for agent in range(AGENTS)]
    heapq.heapify(tries)
    seen, taken, done_s = {}, {}, []
    while tries:
        now_s, agent, failures = heapq.heappop(tries)
        second = int(now_s)
        if now_s >= down_s:
            seen[second] = seen.get(second, 0) + 1
            if taken.get(second, 0) < takes_per_s:
                taken[second] = taken.get(second, 0) + 1
                done_s.append(now_s)
                continue
        heapq.heappush(tries, (now_s + wait_s(failures + 1), agent, failures + 1))
    return done_s, seen


@pytest.fixture
def drawn():
    """Return the waits of agents whose luck is always the same."""
    luck = random.Random(7)  # noqa: S311 - a repeatable simulation
    return lambda failures: mqtt_session.backoff_s(failures, luck.uniform)


def test_a_thousand_agents_are_back_soon_and_do_not_stampede(drawn):
    """A broker that takes 100 a second has all of them within a minute, and no second sees a third of them."""
    done_s, seen = come_back(drawn)
    assert len(done_s) == AGENTS
    assert max(done_s) < 60
    assert max(seen.values()) < 0.33 * AGENTS


def test_after_a_power_cut_of_ten_minutes_they_come_spread_over_a_minute(drawn):
    """The longer nobody answered, the wider they are spread: what a broker sees is near what it takes."""
    done_s, seen = come_back(drawn, down_s=600.0)
    assert max(done_s) < 600 + 2 * mqtt_session.LONGEST_BACKOFF_S
    assert max(seen.values()) < 60
    assert sum(seen.values()) < 1.1 * AGENTS


def test_a_wait_that_is_only_shaken_would_stampede():
    """What the simulation is for: 5 s, 10 s, 20 s ... each +-25% hits the same broker with far more at once."""
    luck = random.Random(7)  # noqa: S311 - as above
    _, seen = come_back(lambda failures: min(60.0, 0.65 * 2.0**failures) * luck.uniform(0.75, 1.25))
    assert max(seen.values()) > 0.9 * AGENTS


def test_no_wait_is_longer_than_a_minute_or_none_at_all(drawn):
    """Every wait lies between the shortest and the longest, after 2,000 failures in a row too."""
    waits = [drawn(failures) for failures in range(2000)]
    assert mqtt_session.SHORTEST_BACKOFF_S <= min(waits) <= max(waits) <= mqtt_session.LONGEST_BACKOFF_S
