"""Which contents somebody names: jobs that have not ended on every device, schedules, and releases."""

from typing import TYPE_CHECKING

import msgspec

from edgemeter.agent.jobs.contract import Content, Measure, Schedule, Update, Work

if TYPE_CHECKING:
    from edgemeter.provisioning.registry.registry import Registry

# A schedule's content is fetched whenever the device needs it again, however long ago it was ordered.
_WORKS = """SELECT work FROM jobs WHERE job GLOB 'schedule-*'
OR EXISTS (SELECT 1 FROM executions WHERE executions.job = jobs.job AND ended_ns IS NULL)"""


def read(registry: "Registry") -> set[str]:
    """Return the hashes of all that is named."""
    named = {row["sha256"] for row in registry.query("SELECT sha256 FROM releases")}
    for row in registry.query(_WORKS):
        named.update(one.sha256 for one in contents_of(msgspec.json.decode(row["work"], type=Work)))
    return named


def contents_of(work: Work) -> tuple[Content, ...]:
    """Return the contents that a piece of work names."""
    if isinstance(work, Schedule):
        work = work.work
    if isinstance(work, Measure):
        return work.contents
    return (work.bundle,) if isinstance(work, Update) else ()
