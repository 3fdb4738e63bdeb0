"""Facts about the wait before a client tries a server again."""

import random

from edgemeter.agent.base.backoff import LONGEST_BACKOFF_S, SHORTEST_BACKOFF_S, backoff_s


def test_no_wait_is_longer_than_a_minute_or_none_at_all():
    """Every wait stays between the shortest and the longest, even after 2,000 failures."""
    luck = random.Random(7)  # noqa: S311 - a repeatable simulation
    waits = [backoff_s(failures, luck.uniform) for failures in range(2000)]
    # Agents that lost one broker do not come back at one moment.
    assert len(set(waits[-100:])) == 100
    assert SHORTEST_BACKOFF_S <= min(waits) <= max(waits) <= LONGEST_BACKOFF_S
