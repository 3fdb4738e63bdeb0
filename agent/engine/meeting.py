"""Runs that are timed at the same time, as the process of each sees it: when all begin, and for how long."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from edgemeter.agent.engine import job
from edgemeter.agent.engine.scenarios.timing import TimingPlan
from edgemeter.agent.engine.stopwatch import SPIN_NS, no_collection


def agreed(plan: TimingPlan, seconds: Callable[[TimingPlan], float], meet: job.Meet | None) -> tuple[TimingPlan, int | None]:
    """Return the plan for the common window, whose length alone ends it, and when that begins, monotonic ns; a run alone has its own."""
    if meet is None:
        return plan, None
    window = meet(job.Encounter(seconds=plan.seconds, queries_s=seconds(replace(plan, seconds=0.0))))
    return replace(plan, queries=1, seconds=window.length_ns / 1e9, pass_queries=1), window.start_ns


@contextmanager
def begun_at(begin_ns: int | None) -> Iterator[None]:
    """Wait for the beginning with everything collected that a scenario would collect first; None: there is nothing to wait for."""
    if begin_ns is None:
        yield
        return
    with no_collection():
        time.sleep(max(0.0, (begin_ns - SPIN_NS - time.monotonic_ns()) / 1e9))
        while time.monotonic_ns() < begin_ns:
            pass
        yield
