"""Random pauses between queries, so that these cannot keep step with a clock of a power sensor.

A sensor that looks at the power for a moment, by a clock of its own, sees the same part of each query where queries come in step with it.
After a pause that is evenly distributed over the length of a query the sensor sees any part of the next ones with equal probability:
what it shows between two pauses is then one of many independent draws, whose scatter tells how well their mean is known.

Pauses take about half a percent of the timed part, or less. A pause waits without sleeping: the clocks of the processor and its caches stay
as they are, and the next query is no slower for it.
"""

import random

import numpy as np

from edgemeter.agent.energy.queries import Times
from edgemeter.agent.engine.scenarios import timing

SHARE = 0.005
# More pauses than this tell little more; fewer tell little at all, so that long queries get shorter pauses.
MOST_PAUSES, FEWEST_PAUSES = 100, 8
NEVER_NS = 2**63


class Pauses:
    """The pauses of a timed part that is expected to take `seconds` from now; none where the plan has none.

    `due_ns` is the moment from which on the next pause is due.
    """

    def __init__(self, plan: timing.TimingPlan, seconds: float, clock: timing.Clock) -> None:
        timed_ns = seconds * 1e9
        self._longest_ns = min(plan.expected_ns * plan.calls, 2 * SHARE * timed_ns / FEWEST_PAUSES)
        self._spacing_ns = int(max(self._longest_ns / 2 / SHARE, timed_ns / MOST_PAUSES)) if plan.pauses else NEVER_NS
        self._clock = clock
        self._draw = random.Random(plan.seed)  # noqa: S311 - a published, repeatable order is wanted
        self._moments: list[int] = []
        self.due_ns = clock() + self._spacing_ns

    def wait(self) -> None:
        """Pause, and note when."""
        begin_ns = end_ns = self._clock()
        until_ns = begin_ns + self._draw.random() * self._longest_ns
        while end_ns < until_ns:
            end_ns = self._clock()
        self._moments += (begin_ns, end_ns)
        self.due_ns = end_ns + self._spacing_ns

    def taken(self) -> Times:
        """Return begin and end of each pause, monotonic ns, int64 [n, 2]."""
        return np.array(self._moments, dtype=np.int64).reshape(-1, 2)
