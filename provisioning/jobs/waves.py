"""Waves: the devices in each, when the next one begins, when a job stops, and manual changes."""

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Literal, TypeAlias

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.statements import Statements
from edgemeter.agent.contract.orders import FINAL
from edgemeter.provisioning.jobs.scheduler import drop
from edgemeter.provisioning.registry import jobs
from edgemeter.provisioning.registry.jobs import (
    FAILURES,
    ON_DEVICE,
    ExecutionState,
    Job,
    select_executions,
    write_executions,
)
from edgemeter.provisioning.registry.registry import Registry

JobChange: TypeAlias = Literal["pause", "resume", "cancel"]
# By (wave, state).
Counts: TypeAlias = Mapping[tuple[int, str], int]
_EPSILON = 1e-9


def by_state(counts: Counts) -> Counter[str]:
    """Return how many executions are in each state, whatever their wave."""
    states: Counter[str] = Counter()
    for (_, state), count in counts.items():
        states[state] += count
    return states


def in_waves(kinds: Mapping[str, Hashable], ends: Sequence[str]) -> dict[str, int]:
    """Return the wave of each device, from 0.

    One of each kind (board type, release) comes in turn, so that every kind is tried early. `ends`
    are the numbers (`2`) or shares (`10%`) of devices that have begun with each wave; the last wave
    has all others.
    """
    by_kind = defaultdict(list)
    for device, kind in kinds.items():
        by_kind[kind].append(device)
    ordered = [
        device for row in zip_longest(*by_kind.values()) for device in row if device is not None
    ]
    total = len(ordered)
    counts = (
        math.ceil(float(end[:-1]) * total / 100) if end.endswith("%") else int(end) for end in ends
    )
    bounds = sorted({min(count, total) for count in counts} - {0})
    return {device: bisect_right(bounds, index) for index, device in enumerate(ordered)}


def next_step(job: Job, counts: Counts, judged: Counts, now_ns: int) -> Job | None:
    """Return a job after its next step, None without a change; while it runs, its wave may start.

    `counts` are all of its executions, `judged` those whose failure counts.
    """
    if all(state in FINAL for _, state in counts):
        is_cancelled = all(state == "cancelled" for _, state in counts)
        return replace(
            job,
            state="cancelled" if is_cancelled or job.state == "cancelled" else "done",
            ended_ns=now_ns,
        )
    if job.state != "running":
        return None
    for wave in range(job.wave + 1):
        failed_count = sum(judged.get((wave, state), 0) for state in FAILURES)
        done_count = counts.get((wave, "done"), 0) + counts.get((wave, "repeating"), 0)
        # Cancelled executions do not count, nor failures before it was resumed.
        open_count = sum(
            count
            for (of, state), count in counts.items()
            if of == wave and state not in {*FINAL, "repeating"}
        )
        total = done_count + open_count + failed_count
        may_fail = job.max_failed_ratio * total + _EPSILON
        if failed_count > may_fail:
            why = (
                f"wave {wave + 1} of {job.waves}: {failed_count} of {total} failed, at most "
                f"{job.max_failed_ratio:.0%} may"
            )
            return replace(job, state="stopped", reason=why)
    return (
        replace(job, wave=job.wave + 1)
        if job.wave + 1 < job.waves and failed_count + open_count <= may_fail
        else None
    )


def advance(registry: Registry, name: str, now_ns: int) -> Job | None:
    """Advance a job, and return it if that changed it."""
    with registry.transaction() as statements:
        # It may have been paused since.
        job = jobs.find(registry, name)
        counts, judged = (
            jobs.count_states(registry, name),
            jobs.count_states(registry, name, job.judged_from),
        )
        after = next_step(job, counts, judged, now_ns)
        if after is not None:
            jobs.write_progress(statements, after)
        if (after or job).state == "running":
            _move(registry, statements, after or job, "held", "queued")
        else:
            # Executions in flight that are to be retried wait too.
            _move(registry, statements, after or job, "queued", "held")
    return after


def _move(
    registry: Registry,
    statements: Statements,
    job: Job,
    before: ExecutionState,
    after: ExecutionState,
) -> int:
    """Hold or queue the executions of the waves that may start; return how many.

    It is done within the caller's transaction.
    """
    executions = select_executions(
        registry, "WHERE job = ? AND wave <= ? AND state = ? ORDER BY id", job.job, job.wave, before
    )
    write_executions(statements, [replace(execution, state=after) for execution in executions])
    return len(executions)


def change_job(
    registry: Registry, name: str, change: JobChange, device: str | None, now_ns: int
) -> str:
    """Pause, resume or cancel a job manually, cancel also on one device only; return what was done.

    Raises ConfigError if it is over.
    """
    with registry.transaction() as statements:
        job = jobs.find(registry, name)
        if change == "cancel":
            return _cancel(registry, statements, job, device, now_ns)
        if job.state in {"done", "cancelled"}:
            raise ConfigError(f"job {job.job!r} is over ({job.state}): order another")
        if change == "pause":
            jobs.write_progress(statements, replace(job, state="paused", reason="paused by hand"))
            return (
                f"paused; {_move(registry, statements, job, 'queued', 'held')} executions held, "
                "those in flight continue"
            )
        if job.state == "running":
            return "already running"
        resumed = replace(job, state="running", reason=None, judged_from=jobs.last_serial(registry))
        jobs.write_progress(statements, resumed)
        count = _move(registry, statements, resumed, "held", "queued")
        return f"resumed with wave {job.wave + 1} of {job.waves}, {count} executions queued"


def _cancel(
    registry: Registry, statements: Statements, job: Job, device: str | None, now_ns: int
) -> str:
    """Cancel the open executions of a job, on one device or all: those never sent end at once."""
    cancelled = [
        replace(execution, requested="cancel")
        if execution.state in ON_DEVICE
        else drop(execution, None, now_ns)
        for execution in jobs.executions_of_job(registry, job.job)
        if device in {None, execution.device}
        and not execution.is_final
        and execution.requested is None
    ]
    write_executions(statements, cancelled)
    if device is None and job.ended_ns is None:
        jobs.write_progress(statements, replace(job, state="cancelled", reason=None))
    in_flight = sum(not execution.is_final for execution in cancelled)
    return (
        f"cancelled; {len(cancelled) - in_flight} executions not started, "
        f"{in_flight} being cancelled"
    )
