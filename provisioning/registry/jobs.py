"""Jobs and their executions in the registry: a job is one piece of work for some devices, an execution is one job on one device.

Any part of the server adds jobs here; the job handler brings them to the devices:

    with registry.transaction() as statements:
        job = jobs.add(statements, NewJob(Doctor(), "doctor", timeout_s=300), [("pi5-01", "lab")], time.time_ns())

Every change of an execution gives its row a new `serial`, the highest of all: a follower asks for the rows above the last one it saw.
"""

import secrets
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.nanoseconds import NS_PER_S
from edgemeter.agent.base.statements import Statements
from edgemeter.agent.contract.orders import FINAL, LARGEST_ORDER_BYTES, JobState, Measure, Order, Work, encode_order
from edgemeter.provisioning.registry.registry import Registry, columns, encoded, insert_rows

# held: a campaign has not released it yet; queued: waits for its device; sent: the device has not answered; the rest the device reports.
ExecutionState: TypeAlias = Literal["held", "queued", "sent"] | JobState
IN_FLIGHT = frozenset({"sent", "accepted", "running"})
# Its device has it, or is about to: to cancel it takes a request.
ON_DEVICE = IN_FLIGHT | {"repeating"}
FAILURES = ("failed", "rejected", "timed_out")
# What executions belong to: columns of theirs.
Owner: TypeAlias = Literal["job", "campaign"]


@dataclass(frozen=True, slots=True)
class Execution:
    """One job on one device. `attempt` is 0 until it is sent for the first time; `version` counts the changes that the server accepted.

    `due_ns` is the earliest start, `deadline_ns` when the server gives it up; `requested` is `cancel` where it is to be cancelled; `wave`
    is the group of its campaign. `reason` is why it is in its state.
    """

    id: int
    serial: int
    job: str
    device: str
    fleet: str
    state: ExecutionState
    version: int = 1
    attempt: int = 0
    requested: Literal["cancel"] | None = field(default=None, metadata={"column": "wish"})
    reason: str | None = None
    due_ns: int = 0
    sent_ns: int | None = None
    accepted_ns: int | None = None
    running_ns: int | None = None
    ended_ns: int | None = None
    deadline_ns: int | None = None
    done_ratio: float | None = None
    doing: str | None = None
    runs: tuple[str, ...] = ()
    text: str | None = None
    campaign: str | None = None
    wave: int | None = None

    @property
    def is_final(self) -> bool:
        """Whether it has ended."""
        return self.state in FINAL

    @property
    def is_settled(self) -> bool:
        """Whether it has ended, or its device repeats it by itself from now on."""
        return self.is_final or self.state == "repeating"


_LAST_SERIAL = "SELECT COALESCE(MAX(serial), 0) FROM executions"
_CHANGING = [(name, column) for name, column, _ in columns(Execution) if name not in {"id", "job", "device", "fleet", "campaign", "wave"}]
_UPDATE = f"UPDATE executions SET {', '.join(f'{column} = ?' for _, column in _CHANGING)} WHERE id = ?"  # noqa: S608 - our own names


def last_serial(registry: Registry) -> int:
    """Return the serial of the latest change, 0 where nothing was ever written."""
    return int(registry.query(_LAST_SERIAL)[0][0])


def update_executions(statements: Statements, changed: Collection[Execution]) -> None:
    """Write changed executions, within the caller's transaction; each gets a new serial."""
    serial = int(statements.execute(_LAST_SERIAL).fetchone()[0])
    rows = [
        (serial + index, *(encoded(getattr(execution, name)) for name, _ in _CHANGING[1:]), execution.id)
        for index, execution in enumerate(changed, start=1)
    ]
    statements.executemany(_UPDATE, rows)


def executions_since(registry: Registry, serial: int, owner: Owner | None = None, name: str | None = None) -> list[Execution]:
    """Return the executions changed after that serial, in the order of the changes; of one job or campaign only if it is named."""
    picked, values = ("", ()) if owner is None else (f"{owner} = ? AND ", (name,))
    return registry.rows(Execution, f"SELECT * FROM executions WHERE {picked}serial > ? ORDER BY serial", *values, serial)  # noqa: S608 - our own


def unfinished_executions(registry: Registry) -> list[Execution]:
    """Return every execution that is not final, oldest first."""
    return registry.rows(Execution, "SELECT * FROM executions WHERE ended_ns IS NULL ORDER BY id")


def executions_of_job(registry: Registry, job: str) -> list[Execution]:
    """Return the executions of a job, by device."""
    return registry.rows(Execution, "SELECT * FROM executions WHERE job = ? ORDER BY device", job)


def count_states(registry: Registry, job: str) -> dict[str, int]:
    """Return the number of executions of a job, by state."""
    statement = "SELECT state, COUNT(*) AS n FROM executions WHERE job = ? GROUP BY state"
    return {row["state"]: row["n"] for row in registry.query(statement, job)}


def busy_or_failed(registry: Registry, owner: Owner, name: str, count: int) -> list[Execution]:
    """Return the first executions of a job or a campaign that are in flight, then of those that failed, by device."""
    states = ", ".join(f"'{state}'" for state in sorted((*IN_FLIGHT, *FAILURES)))
    picked = f"SELECT * FROM executions WHERE {owner} = ? AND state IN ({states})"  # noqa: S608 - our own words
    return registry.rows(Execution, f"{picked} ORDER BY ended_ns IS NOT NULL, device LIMIT ?", name, count)


def executions_of_device(registry: Registry, device: str, latest: int = 50) -> list[Execution]:
    """Return the last executions of a device, the newest first."""
    return registry.rows(Execution, "SELECT * FROM executions WHERE device = ? ORDER BY id DESC LIMIT ?", device, latest)


def executions_of_campaign(registry: Registry, campaign: str) -> list[Execution]:
    """Return the executions of a campaign, in the order in which they were made."""
    return registry.rows(Execution, "SELECT * FROM executions WHERE campaign = ? ORDER BY id", campaign)


def find_execution(registry: Registry, job: str, device: str) -> Execution | None:
    """Return the execution of a job on a device, None when there is none."""
    return registry.row(Execution, "SELECT * FROM executions WHERE job = ? AND device = ?", job, device)


@dataclass(frozen=True, slots=True)
class NewJob:
    """A piece of work and how it is to be done.

    `timeout_s` counts from when a device accepts it; `retries` are for what timed out or was interrupted, `retry_pause_s` after that,
    doubled each time. Of the devices that share one of the tags `exclusive`, one measures at a time.
    """

    work: Work
    title: str
    timeout_s: float
    retries: int = 1
    retry_pause_s: float = 30.0
    exclusive: tuple[str, ...] = ()
    campaign: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(NewJob):
    """A job in the registry, with its name."""

    job: str
    made_ns: int

    @property
    def is_measurement(self) -> bool:
        """Whether it measures now: exclusivity applies to measurements only."""
        return isinstance(self.work, Measure) and not self.work.repeats


def new_name(kind: str, now_ns: int) -> str:
    """Return a new name for a job or a campaign: its kind, the time (UTC), and digits that make it unique."""
    return f"{kind}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now_ns // NS_PER_S))}-{secrets.token_hex(3)}"


def add(
    statements: Statements,
    new: NewJob,
    devices: Iterable[tuple[str, str]],
    now_ns: int,
    *,
    state: ExecutionState = "queued",
    waves: Mapping[str, int] | None = None,
) -> str:
    """Add a job for devices (name, fleet) in a transaction; return its name. Raises ConfigError if its order is too large for a device."""
    job = new_name(str(new.work.__struct_config__.tag), now_ns)
    order = Order(job=job, attempt=1, version=1, work=new.work, timeout_s=new.timeout_s)
    if len(encode_order(order)) > LARGEST_ORDER_BYTES:
        raise ConfigError(f"the order {new.title!r} is larger than {LARGEST_ORDER_BYTES} bytes: name fewer models in one suite")
    insert_rows(statements, "jobs", [new], job=job, made_ns=now_ns)
    serial = int(statements.execute(_LAST_SERIAL).fetchone()[0])
    highest_id = int(statements.execute("SELECT COALESCE(MAX(id), 0) FROM executions").fetchone()[0])
    wave_of = (waves or {}).get
    rows = [
        Execution(highest_id + n, serial + n, job, device, fleet, state, due_ns=now_ns, campaign=new.campaign, wave=wave_of(device))
        for n, (device, fleet) in enumerate(devices, start=1)
    ]
    insert_rows(statements, "executions", rows)
    return job


def find(registry: Registry, job: str) -> Job | None:
    """Return the job of that name, None when there is none."""
    return registry.row(Job, "SELECT * FROM jobs WHERE job = ?", job)


def latest_ordered(registry: Registry, count: int) -> list[Job]:
    """Return the newest jobs that are no part of a campaign, newest first."""
    return registry.rows(Job, "SELECT * FROM jobs WHERE campaign IS NULL ORDER BY made_ns DESC, job LIMIT ?", count)


def latest(registry: Registry, count: int = 30) -> list[Job]:
    """Return the newest jobs, newest first."""
    return registry.rows(Job, "SELECT * FROM jobs ORDER BY made_ns DESC, job LIMIT ?", count)


def find_by_prefix(registry: Registry, text: str) -> Job:
    """Return the job of that name, or whose name begins with it; raises ConfigError if there is none, or more than one."""
    candidates = registry.rows(Job, "SELECT * FROM jobs WHERE substr(job, 1, ?) = ? ORDER BY job LIMIT 3", len(text), text)
    exact = [candidate for candidate in candidates if candidate.job == text]
    if len(exact or candidates) != 1:
        count_text = "no job" if not candidates else "more than one job"
        raise ConfigError(f"{count_text} is named {text!r}: `edgemeter fleet jobs` lists them")
    return (exact or candidates)[0]


def cancel(registry: Registry, job: str, device: str | None, now_ns: int) -> list[Execution]:
    """Cancel the open executions of a job, on one device or all, and return them: those never sent end at once."""
    with registry.transaction() as statements:
        executions = cancelled([execution for execution in executions_of_job(registry, job) if device in {None, execution.device}], now_ns)
        update_executions(statements, executions)
    return executions


def cancelled(executions: Iterable[Execution], now_ns: int) -> list[Execution]:
    """Return the open ones of these executions, cancelled: a device that has one is requested to cancel it."""
    return [
        replace(execution, requested="cancel")
        if execution.state in ON_DEVICE
        else replace(execution, state="cancelled", ended_ns=now_ns, deadline_ns=None, version=execution.version + 1)
        for execution in executions
        if not execution.is_final and execution.requested is None
    ]
