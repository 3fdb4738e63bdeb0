"""The current measurements: which device measures which run, and each job's progress.

They are by the time of receipt.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from edgemeter.agent.base import number_text
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.messages import (
    ACTIVITY_STALE_NS,
    JOB_STATE,
    JobProgress,
    Measuring,
    decode_activity,
    decode_job_progress,
    parse_topic,
)
from edgemeter.agent.ledger.presence import DevicePresence, RetainedMessage
from edgemeter.collector.runs.store import RunStore

# An ended job is listed for a day, and a running one without a report for this long is stale.
JOB_NS = NS_PER_DAY
_JOB_TOPIC = JOB_STATE.partition("{")[0]
# The number of devices of a job in each state.
COUNTS = ("done", "failed", "running", "repeating", "waiting", "cancelled")


@dataclass(frozen=True, slots=True)
class DeviceActivity:
    """The current measurement of a device, as it reported.

    It `is_stale` when the device has not reported for an hour.
    """

    fleet: str
    device: str
    measuring: Measuring
    received_ns: int
    is_stale: bool

    @property
    def text(self) -> str:
        """The measurement and its start in words, by the time of receipt."""
        since = number_text.stamp(self.received_ns)
        report = (
            f"no report since {since} UTC: it may have ended"
            if self.is_stale
            else f"reported {since} UTC"
        )
        return f"{self.measuring.text}, {report}"


@dataclass(frozen=True, slots=True)
class JobActivity:
    """The progress of a job; `is_stale` if it is running and was not reported on for a day."""

    progress: JobProgress
    received_ns: int
    is_stale: bool

    @property
    def counts(self) -> dict[str, int]:
        """The number of its devices in each state, without empty states."""
        return {name: count for name in COUNTS if (count := getattr(self.progress, name))}


@dataclass(frozen=True, slots=True)
class Activities:
    """The current measurements: devices by fleet and name, jobs by name."""

    devices: Sequence[DeviceActivity] = ()
    jobs: Sequence[JobActivity] = ()

    @property
    def key(self) -> str:
        """A key that changes with the content of the page."""
        return (
            hashlib.sha256(repr(self).encode()).hexdigest()[:16]
            if self.devices or self.jobs
            else "nothing"
        )

    def of(self, fleet: str, device: str) -> DeviceActivity | None:
        """Return the current measurement of a device, None if unknown."""
        return next(
            (
                activity
                for activity in self.devices
                if (activity.fleet, activity.device) == (fleet, device)
            ),
            None,
        )


def read_activities(store: RunStore, now_ns: int) -> Activities:
    retained_messages = store.retained()
    return activities_of(retained_messages, store.devices() if retained_messages else (), now_ns)


def activities_of(
    retained: Sequence[RetainedMessage], present: Sequence[DevicePresence], now_ns: int
) -> Activities:
    """Return the current measurements.

    A device that is lost, or whose process was followed by another, measures nothing.
    """
    states = {
        (device_presence.fleet, device_presence.device): device_presence
        for device_presence in present
    }
    devices, jobs = [], []
    for retained_message in retained:
        age_ns = now_ns - retained_message.received_ns
        try:
            if retained_message.topic.startswith(_JOB_TOPIC):
                progress = decode_job_progress(retained_message.payload)
                is_old = age_ns > JOB_NS
                # A stopped or paused job waits for somebody to resume it, a job that devices repeat
                # for nobody.
                if not is_old or progress.state not in {"done", "cancelled"}:
                    jobs.append(
                        JobActivity(
                            progress, retained_message.received_ns, is_old and progress.is_current
                        )
                    )
                continue
            topic, activity = (
                parse_topic(retained_message.topic),
                decode_activity(retained_message.payload),
            )
        except ConfigError:
            # Written by a later version.
            continue
        state = states.get((topic.fleet, topic.device))
        if measuring := activity.current(
            retained_message.received_ns,
            *((state.state, state.session, state.changed_ns) if state else (None, None, None)),
        ):
            devices.append(
                DeviceActivity(
                    topic.fleet,
                    topic.device,
                    measuring,
                    retained_message.received_ns,
                    age_ns > ACTIVITY_STALE_NS,
                )
            )
    return Activities(devices, jobs)
