"""Sends reports until the server has acknowledged them: at once, then at growing intervals, and again with every connection."""

import time
from collections.abc import Callable

from edgemeter.agent.delivery.attendant import IDLE_S, Post
from edgemeter.agent.jobs.journal import Journal

FIRST_PAUSE_S = 10.0
LONGEST_PAUSE_S = 600.0


class Reporting:
    """The reports of `journal` on their way; called from one thread."""

    def __init__(self, post: Post, journal: Journal, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._post = post
        self._journal = journal
        self._clock_s = clock_s
        # By place and what the report says: when it is sent again, and the pause after that.
        self._again: dict[tuple[int, int], tuple[float, float]] = {}

    def connected(self) -> None:
        """Send all of them again: what was on the way may be lost."""
        self._again.clear()

    def send(self) -> float:
        """Send what is due; return after how long to look again."""
        if not self._post.is_connected() or not self._journal.has_due():
            return IDLE_S
        now_s = self._clock_s()
        again: dict[tuple[int, int], tuple[float, float]] = {}
        for due in self._journal.due(self._post.session):
            key = (due.place, hash(due.report))
            at_s, pause_s = self._again.get(key, (now_s, FIRST_PAUSE_S))
            if at_s <= now_s and self._post.publish(self._post.topic("job"), due.report):
                at_s, pause_s = now_s + pause_s, min(LONGEST_PAUSE_S, 2 * pause_s)
            again[key] = (at_s, pause_s)
        self._again = again
        return max(0.5, min((at_s for at_s, _ in again.values()), default=now_s + IDLE_S) - now_s)
