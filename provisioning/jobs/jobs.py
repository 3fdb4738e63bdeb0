"""Jobs in the registry: one piece of work for some devices. Any room adds jobs here; the desk brings them to the devices.

with registry.transaction() as connection:
    job = jobs.add(connection, NewJob(Doctor(), "doctor", timeout_s=300), [("pi5-01", "lab")], time.time_ns())
"""

import re
import secrets
import sqlite3
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.jobs import contract
from edgemeter.agent.jobs.contract import Golden, Measure, Work
from edgemeter.provisioning.jobs import executions
from edgemeter.provisioning.jobs.executions import Execution, State

if TYPE_CHECKING:
    from edgemeter.provisioning.registry.registry import Registry

RETRIES = 1
RETRY_PAUSE_S = 30.0

SCHEMA = """CREATE TABLE jobs (
    job TEXT PRIMARY KEY,
    title TEXT NOT NULL,
    work BLOB NOT NULL,
    timeout_s REAL NOT NULL,
    retries INTEGER NOT NULL,
    retry_pause_s REAL NOT NULL,
    cool_down_s REAL NOT NULL,
    exclusive TEXT NOT NULL,
    campaign TEXT,
    made_ns INTEGER NOT NULL
);
CREATE INDEX jobs_by_time ON jobs (made_ns);
"""


@dataclass(frozen=True, slots=True)
class NewJob:
    """A piece of work and how it is to be done.

    `timeout_s` counts from when a device takes it; `retries` are for what timed out or was interrupted, `retry_pause_s` after that, each
    time twice as long. Of two measurements on one device `cool_down_s` lie between; of the devices that share one of the tags
    `exclusive` one measures at a time.
    """

    work: Work
    title: str
    timeout_s: float
    retries: int = RETRIES
    retry_pause_s: float = RETRY_PAUSE_S
    cool_down_s: float = 0.0
    exclusive: tuple[str, ...] = ()
    campaign: str | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it is kept."""

    job: str
    title: str
    work: Work
    timeout_s: float
    retries: int
    retry_pause_s: float
    cool_down_s: float
    exclusive: tuple[str, ...]
    campaign: str | None
    made_ns: int

    @property
    def is_measurement(self) -> bool:
        """Whether it measures: quiet hours, power budgets and exclusivity are for those."""
        return isinstance(self.work, Measure | Golden)


def add(
    connection: sqlite3.Connection,
    new: NewJob,
    devices: Iterable[tuple[str, str]],
    now_ns: int,
    *,
    state: State = "queued",
    waves: dict[str, int] | None = None,
) -> str:
    """Keep a job for devices (name, fleet) within the caller's transaction, and return its name.

    Raises:
        ConfigError: the order would be larger than a device takes.
    """
    kind = new.work.__struct_config__.tag
    job = f"{kind}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now_ns // 1_000_000_000))}-{secrets.token_hex(3)}"
    order = contract.Order(job=job, attempt=1, version=1, work=new.work, timeout_s=new.timeout_s)
    if len(contract.encode(order)) > contract.LARGEST_ORDER_BYTES:
        message = f"the order {new.title!r} is larger than {contract.LARGEST_ORDER_BYTES} bytes: name fewer models in one suite"
        raise ConfigError(message)
    connection.execute(
        "INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            job,
            new.title,
            msgspec.json.encode(new.work),
            new.timeout_s,
            new.retries,
            new.retry_pause_s,
            new.cool_down_s,
            msgspec.json.encode(new.exclusive).decode(),
            new.campaign,
            now_ns,
        ),
    )
    waves = waves or {}
    rows = [
        Execution(0, 0, job, device, fleet, state, due_ns=now_ns, campaign=new.campaign, wave=waves.get(device))
        for device, fleet in devices
    ]
    executions.insert(connection, rows)
    return job


def find(registry: "Registry", job: str) -> Job | None:
    """Return the job of that name, None when there is none."""
    rows = registry.query("SELECT * FROM jobs WHERE job = ?", job)
    return _job(rows[0]) if rows else None


def latest(registry: "Registry", count: int = 30) -> list[Job]:
    """Return the newest jobs, newest first."""
    return [_job(row) for row in registry.query("SELECT * FROM jobs ORDER BY made_ns DESC, job LIMIT ?", count)]


def named(registry: "Registry", text: str) -> Job:
    """Return the job of that name, or whose name begins so.

    Raises:
        ConfigError: there is none, or more than one begins so.
    """
    pattern = re.sub(r"[\[\]*?]", "", text) + "*"
    rows = registry.query("SELECT * FROM jobs WHERE job GLOB ? ORDER BY job LIMIT 3", pattern)
    exact = [row for row in rows if row["job"] == text]
    if len(exact or rows) != 1:
        what = "no job" if not rows else "more than one job"
        message = f"{what} is named {text!r}: `edgemeter fleet jobs` lists them"
        raise ConfigError(message)
    return _job((exact or rows)[0])


def cancel(registry: "Registry", job: str, device: str | None, now_ns: int) -> list[Execution]:
    """End what is left of a job, on one device or all, and return what was touched: what was never sent is ended at once."""
    with registry.transaction() as connection:
        touched = [
            cancelled(one, now_ns)
            for one in executions.of_job(registry, job)
            if not one.is_final and one.wish is None and device in {None, one.device}
        ]
        executions.write(connection, touched)
    return touched


def cancelled(execution: Execution, now_ns: int) -> Execution:
    """Return the execution with the wish to end it; one that no device has is ended."""
    if execution.state in executions.IN_FLIGHT:
        return replace(execution, wish="cancel")
    return replace(execution, state="cancelled", ended_ns=now_ns, deadline_ns=None, version=execution.version + 1)


def _job(row: sqlite3.Row) -> Job:
    known = dict(row)
    known["work"] = msgspec.json.decode(known["work"], type=Work)
    known["exclusive"] = tuple(msgspec.json.decode(known["exclusive"], type=list[str]))
    return Job(**known)
