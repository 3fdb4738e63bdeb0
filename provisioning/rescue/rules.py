"""Whether the power of a device may be cut now: one question, answered from what the server last heard.

The run lock of a lost board cannot be asked. A run may be in progress on a device
- while an execution is in flight on it, as the registry has it (the desk for jobs ends it at its time limit), and
- for `longest_run_minutes` after it was last heard to measure, and after each time at which a schedule that it keeps may have begun one
  (`scheduled`): what it measures by itself is in no registry.

But for schedules the same holds for every other device that loses its power with it, or whose power meter the switch is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from edgemeter.provisioning.inventory.wording import age

NS_PER_S = 1_000_000_000
# So many devices lost within so short a time, and such a share of all: the network or the mains, no board.
MANY, MANY_RATIO, MANY_WITHIN_S = 3, 0.2, 600


@dataclass(frozen=True, slots=True)
class Heard:
    """What the server last heard of measuring: jobs in flight by device, and when each was last heard to measure (UTC, ns)."""

    in_flight: Mapping[str, str] = field(default_factory=dict)
    measured_ns: Mapping[str, int] = field(default_factory=dict)


def why_not(device: str, others: tuple[str, ...], heard: Heard, longest_run_s: float, now_ns: int) -> str | None:
    """Return why the power of a device may not be cut now, None when it may; `others` hang on the same switch or measure with it."""
    for one in (device, *others):
        whose = "" if one == device else f"{one}, which shares its switch: "
        if job := heard.in_flight.get(one):
            return f"{whose}job {job} may be running"
        last_ns = heard.measured_ns.get(one)
        if last_ns is not None and now_ns - last_ns < longest_run_s * NS_PER_S:
            return f"{whose}it was heard to measure {age(now_ns - last_ns)} ago, a run may still be in progress"
    return None


def is_widespread(together: int, known: int) -> bool:
    """Return whether so many of the devices that are known, lost at about the same time, are too many to be their own fault."""
    return together >= MANY and together > MANY_RATIO * known
