"""The search for the highest rate that a server holds (`--rate auto`): doubled until one is not held, then the gap is halved, run by run.

A rate is held where no requests are left in line and nine of ten meet the limits, if there are any. Steps have the same arrivals but for
their scale. The first, of a few queries, shows how long one takes: the search begins at half of what one user after the other would get.
"""

import math
from collections.abc import Generator

import msgspec

from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.contract.load_sweep import limit_of
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.suite import Case

FIRST_PER_S, FIRST_QUERIES = 1.0, 11
# The search ends when the lowest rate that is not held is this much above the highest that is.
RESOLUTION_RATIO = 1.1
MOST_STEPS = 20


def is_open(case: Case) -> bool:
    """Return whether the rate of a case is to be found."""
    return case.scenario == "poisson" and case.rate_per_s is None


def steps(case: Case) -> Generator[Case, RunRecord | EdgemeterError, None]:
    """Yield the cases to be measured, each after the outcome of the one before: one where the rate is stated. A failed run ends them."""
    if not is_open(case):
        yield case
        return
    first = msgspec.structs.replace(case, rate_per_s=FIRST_PER_S, queries=min(case.queries, FIRST_QUERIES), seconds=0.0)
    outcome = yield first
    if not isinstance(outcome, RunRecord):
        return
    held = failing = 0.0
    rate = _rounded(500 / outcome.latency.min_ms)
    for _ in range(MOST_STEPS):
        outcome = yield msgspec.structs.replace(case, rate_per_s=rate)
        if not isinstance(outcome, RunRecord):
            return
        if limit_of(outcome) is None:
            held = rate
        else:
            failing = rate
        if held and failing and failing <= RESOLUTION_RATIO * held:
            return
        rate = _rounded(math.sqrt(held * failing) if held and failing else 2 * held or failing / 2)


def _rounded(rate: float) -> float:
    return float(f"{rate:.3g}")
