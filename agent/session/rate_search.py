"""The search for the highest rate that a server holds (`--rate auto`): doubled until one is not held, then the gap is halved, run by run.

A rate is held where no requests are left in line and nine of ten meet the limits, if there are any. Steps have the same arrivals but for
their scale. Before them one user asks for a few answers, which shows how long one takes: the search begins at half of that rate, and no
step is shorter than ten of its answers, since in a shorter one no line shows.
"""

import math
from collections.abc import Sequence

from msgspec.structs import replace

from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.contract.load_sweep import limit_of
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.suite import Case, seeks_rate

FIRST_QUERIES = 11
# The search ends when the lowest rate that is not held is this much above the highest that is.
RESOLUTION_RATIO = 1.1
MOST_STEPS = 20
STEP_ANSWERS = 10


def next_step(case: Case, outcomes: Sequence[RunRecord | EdgemeterError]) -> Case | None:
    """Return what to measure after these outcomes of a case; None at the end: after one run where the rate is stated, or a failed one."""
    if not seeks_rate(case):
        return None if outcomes else case
    if not outcomes:
        return replace(case, scenario="single_stream", queries=min(case.queries, FIRST_QUERIES), seconds=0.0)
    records = [outcome for outcome in outcomes if isinstance(outcome, RunRecord)]
    if len(records) < len(outcomes) or len(outcomes) > MOST_STEPS:
        return None
    first, *followers = records
    held_rate, failing = 0.0, math.inf
    for run in followers:
        rate = run.load.target_per_s or 0.0 if run.load else 0.0
        held_rate, failing = (max(held_rate, rate), failing) if limit_of(run) is None else (held_rate, min(failing, rate))
    if failing <= RESOLUTION_RATIO * held_rate:
        return None
    if not followers:
        rate = 500 / first.latency.min_ms
    elif failing < math.inf:
        rate = math.sqrt(held_rate * failing) if held_rate else failing / 2
    else:
        rate = 2 * held_rate
    return replace(case, rate_per_s=float(f"{rate:.3g}"), seconds=max(case.seconds, STEP_ANSWERS * first.latency.mean_ms / 1e3))
