"""The handler that moves jobs from wave to wave, and reports their progress.

The reports are for the collector and its page.
"""

import logging
from collections.abc import Sequence

from edgemeter.agent.base.nanoseconds import NS_PER_DAY, NS_PER_S
from edgemeter.agent.base.number_text import on_one_line
from edgemeter.agent.contract.messages import (
    JOB_STATE,
    ExecutionProgress,
    JobProgress,
    encode_message,
)
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.jobs.waves import advance, by_state
from edgemeter.provisioning.registry.jobs import (
    FAILURES,
    IN_FLIGHT,
    Job,
    count_states,
    last_serial,
    select_executions,
    select_jobs,
)
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve.handler import FleetHandler, FleetPublish

logger = logging.getLogger(__name__)

POLL_NS = NS_PER_S
# The progress of jobs is retained for the collector and its page, at most one message of each in
# this time.
REPORT_NS = 5 * NS_PER_S
# The progress of an ended job stays this long; then its topic is cleared.
KEPT_NS = NS_PER_DAY
# The newest jobs are reported; the topics of as many older ones are cleared, which the service may
# have left before a restart.
MOST_JOBS = 50
# A message with this many is far below a collector's limit.
MOST_EXECUTIONS, LONGEST_NOTE = 50, 120
_CHANGED = "SELECT DISTINCT job FROM executions WHERE serial > ?"
_NOTED = (
    f"WHERE job = ? AND state IN {(*sorted(IN_FLIGHT), *FAILURES)} ORDER BY ended_ns IS NOT "
    "NULL, device LIMIT ?"
)


class JobProgressHandler(FleetHandler):
    """Handles only jobs that changed since the last poll.

    `serve/handler.py` documents how it is called.
    """

    topics: Sequence[str] = ()

    def __init__(
        self,
        folder: FleetFolder,  # noqa: ARG002 - a handler's signature
        registry: Registry,
        publish: FleetPublish,
    ) -> None:
        self._registry = registry
        self._publish = publish
        self._serial = 0
        self._step_ns = 0
        self._report_ns = 0
        # Every open job at its last step, and every job as last published.
        self._seen: dict[str, Job] = {}
        self._published: dict[str, tuple[Job, bytes]] = {}
        self._changed: set[str] = set()

    def poll(self, now_ns: int) -> None:
        """Advance every changed job; report the progress."""
        if now_ns >= self._step_ns:
            self._step_ns = now_ns + POLL_NS
            self._advance(now_ns)
        if now_ns >= self._report_ns:
            self._report_ns = now_ns + REPORT_NS
            self._report(now_ns)

    def _advance(self, now_ns: int) -> None:
        serial = last_serial(self._registry)
        changed = (
            {row["job"] for row in self._registry.query(_CHANGED, self._serial)}
            if serial > self._serial
            else set()
        )
        unfinished = select_jobs(self._registry, "WHERE ended_ns IS NULL ORDER BY made_ns")
        for job in unfinished:
            if job.job not in changed and self._seen.get(job.job) == job:
                continue
            after = advance(self._registry, job.job, now_ns)
            if after is not None and after.state == "stopped":
                logger.warning("job %s: stopped: %s", job.job, after.reason)
            elif after is not None:
                logger.info(
                    "job %s: %s, wave %d of %d", job.job, after.state, after.wave + 1, after.waves
                )
        self._seen = {job.job: job for job in unfinished}
        self._serial = serial
        self._changed |= changed

    def _report(self, now_ns: int) -> None:
        """Publish changes, and clear the topics of old jobs.

        Old jobs ended a day ago or are followed by many others.
        """
        published_now: dict[str, tuple[Job, bytes]] = {}
        for index, job in enumerate(
            select_jobs(self._registry, "ORDER BY made_ns DESC, job LIMIT ?", 2 * MOST_JOBS)
        ):
            is_past = index >= MOST_JOBS or (
                job.ended_ns is not None and now_ns - job.ended_ns > KEPT_NS
            )
            before, payload = self._published.get(job.job, (None, None))
            if is_past or before != job or job.job in self._changed:
                published, payload = (
                    payload,
                    b"" if is_past else encode_message(job_progress(self._registry, job)),
                )
                # Also jobs that ended while the service was away: their message may still exist.
                if payload != published:
                    self._publish(JOB_STATE.format(job=job.job), payload, lasting="retained")
            published_now[job.job] = (job, payload or b"")
        self._published = published_now
        self._changed.clear()


def job_progress(registry: Registry, job: Job) -> JobProgress:
    states = by_state(count_states(registry, job.job))
    return JobProgress(
        job=job.job,
        title=on_one_line(job.title)[:LONGEST_NOTE],
        state=job.state,
        reason=job.reason,
        wave=job.wave + 1,
        waves=job.waves,
        done=states["done"],
        failed=sum(states[failure] for failure in FAILURES),
        cancelled=states["cancelled"],
        running=sum(states[busy] for busy in IN_FLIGHT),
        repeating=states["repeating"],
        waiting=states["held"] + states["queued"],
        executions=tuple(
            ExecutionProgress(
                fleet=execution.fleet,
                device=execution.device,
                state=execution.state,
                done_ratio=execution.done_ratio,
                note=on_one_line(execution.doing or execution.reason or "")[:LONGEST_NOTE] or None,
            )
            for execution in select_executions(registry, _NOTED, job.job, MOST_EXECUTIONS)
        ),
    )
