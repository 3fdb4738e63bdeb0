"""What an execution becomes: pure functions of what it was, of what happened, and of the server's clock.

held -> queued -> sent -> accepted -> running -> done | failed | rejected | timed_out | cancelled
           ^--------- once more, where it timed out or was interrupted and a retry is left
"""

from dataclasses import replace

from edgemeter.agent.jobs.contract import Report
from edgemeter.provisioning.jobs.executions import FINAL, IN_FLIGHT, Execution
from edgemeter.provisioning.jobs.jobs import Job

NS_PER_S = 1_000_000_000
# The device ends what takes too long by its own clock; the server waits this much longer for that word.
GRACE_S = 60.0
INTERRUPTED = "interrupted"
_RANK = {"sent": 0, "accepted": 1, "running": 2}
_LAST_RANK = 3


def started(execution: Execution, job: Job, now_ns: int) -> Execution:
    """Return the execution as it is sent: the next attempt, given up when the device has not answered in the job's time."""
    return replace(
        execution,
        state="sent",
        attempt=execution.attempt + 1,
        version=execution.version + 1,
        sent_ns=now_ns,
        accepted_ns=None,
        running_ns=None,
        deadline_ns=now_ns + _ns(job.timeout_s + GRACE_S),
        done_ratio=None,
        doing=None,
    )


def reported(execution: Execution, job: Job, report: Report, now_ns: int) -> Execution | None:
    """Return what the device's report makes of the execution; None for one that is stale and changes nothing.

    Of one attempt a report counts when it expects the version held here, or tells of a later part than is held: an acknowledgement that
    was lost must not cost what was measured.
    """
    if execution.is_final or report.attempt != execution.attempt:
        return None
    if execution.state not in IN_FLIGHT:
        # Given up and not sent again yet: what was measured after all is not measured twice.
        return _ended(execution, report, now_ns) if report.state == "done" and execution.attempt else None
    rank = _RANK.get(report.state, _LAST_RANK)
    expects = report.expected_version >= execution.version
    if rank < _RANK[execution.state] or (rank == _RANK[execution.state] and not expects):
        return None
    version = max(execution.version, report.expected_version) + 1
    if report.state in FINAL:
        return _final(replace(execution, version=version - 1), job, report, now_ns)
    is_new = execution.accepted_ns is None
    return replace(
        execution,
        state=report.state,
        version=version,
        reason=report.reason,
        accepted_ns=now_ns if is_new else execution.accepted_ns,
        running_ns=now_ns if report.state == "running" and execution.running_ns is None else execution.running_ns,
        deadline_ns=now_ns + _ns(job.timeout_s + GRACE_S) if is_new else execution.deadline_ns,
        done_ratio=execution.done_ratio if report.done_ratio is None else report.done_ratio,
    )


def overdue(execution: Execution, job: Job, now_ns: int) -> Execution:
    """Return what becomes of an execution whose time is over."""
    waited = f"{job.timeout_s:g} s"
    where = f"no answer to the order in {waited}" if execution.state == "sent" else f"no end in {waited}, last heard as {execution.state}"
    if execution.wish == "cancel":
        return replace(_closed(execution, now_ns), state="cancelled", reason=f"cancelled; {where}")
    return _again_or(execution, job, now_ns, replace(_closed(execution, now_ns), state="timed_out", reason=where))


def dropped(execution: Execution, reason: str, now_ns: int) -> Execution:
    """Return the execution ended by the server, without a word of its device."""
    return replace(_closed(execution, now_ns), state="cancelled", reason=reason)


def may_retry(state: str, reason: str | None) -> bool:
    """Return whether what ended so is worth a second try: it timed out or was interrupted, rather than being wrong."""
    return state == "timed_out" or (state == "failed" and (reason or "").startswith(INTERRUPTED))


def _final(execution: Execution, job: Job, report: Report, now_ns: int) -> Execution:
    ended = _ended(execution, report, now_ns)
    if execution.wish == "cancel":
        # A device that knows of no such job, or lost it half way, is what was wished for.
        return ended if report.state == "done" else replace(ended, state="cancelled")
    if may_retry(report.state, report.reason):
        return _again_or(execution, job, now_ns, ended)
    return ended


def _ended(execution: Execution, report: Report, now_ns: int) -> Execution:
    return replace(
        _closed(execution, now_ns),
        state=report.state,
        reason=report.reason,
        done_ratio=1.0 if report.state == "done" else execution.done_ratio,
        runs=report.runs,
        figures=dict(report.figures),
        text=report.text,
    )


def _closed(execution: Execution, now_ns: int) -> Execution:
    return replace(execution, version=execution.version + 1, ended_ns=now_ns, deadline_ns=None, doing=None)


def _again_or(execution: Execution, job: Job, now_ns: int, ended: Execution) -> Execution:
    if execution.attempt > job.retries:
        return ended
    pause_s = job.retry_pause_s * 2.0 ** (execution.attempt - 1)
    reason = f"attempt {execution.attempt} {ended.state.replace('_', ' ')}: {ended.reason or 'no reason given'}"
    return replace(
        execution, state="queued", version=ended.version, reason=reason, due_ns=now_ns + _ns(pause_s), deadline_ns=None, doing=None
    )


def _ns(seconds: float) -> int:
    return int(seconds * NS_PER_S)
