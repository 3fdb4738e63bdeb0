"""Jobs and their executions in the registry.

A job is work on devices in waves, and an execution is a job on one device. Any part of the server
adds jobs here, in a transaction; the job handler delivers them to the devices. Every change of an
execution gives its row a new `serial`, the highest of all: a follower asks for the rows above the
last one it saw.
"""

import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.nanoseconds import NS_PER_S
from edgemeter.agent.base.statements import Statements
from edgemeter.agent.contract.orders import (
    FINAL,
    LARGEST_ORDER_BYTES,
    JobState,
    Order,
    Work,
    encode_order,
)
from edgemeter.provisioning.registry.registry import Registry

# held: its wave has not begun; queued: waits for its device; sent: the device has not answered; the
# device reports the others.
ExecutionState: TypeAlias = Literal["held", "queued", "sent"] | JobState
IN_FLIGHT = frozenset({"sent", "accepted", "running"})
# Its device has it, or is about to: cancelling it takes a request.
ON_DEVICE = IN_FLIGHT | {"repeating"}
FAILURES = ("failed", "rejected", "timed_out")


@dataclass(frozen=True, slots=True)
class Execution:
    """One job on one device.

    `attempt` is 0 until it is sent for the first time; `version` counts the changes that the server
    accepted.

    `work` is the index of its work in the job; of those with the same `exclusive`, one at a time is
    in flight. `due_ns` is the earliest start, `deadline_ns` when the server gives it up; `reason`
    is why it is in its state.
    """

    id: int
    serial: int
    job: str
    device: str
    fleet: str
    wave: int
    work: int
    exclusive: str | None
    state: ExecutionState
    version: int = 1
    attempt: int = 0
    requested: Literal["cancel"] | None = None
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

    @property
    def is_final(self) -> bool:
        return self.state in FINAL

    @property
    def is_settled(self) -> bool:
        """Whether it has ended, or its device repeats it by itself from now on."""
        return self.is_final or self.state == "repeating"


class Target(NamedTuple):
    """A device of a new job, with its own values; see `Execution`."""

    device: str
    fleet: str
    wave: int = 0
    work: int = 0
    exclusive: str | None = None


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to add, with one work, or one for each kind of device.

    `timeout_s` counts from when a device accepts it; `retries` apply after a timeout, and three
    times as many after an interruption. A wave follows if at most `max_failed_ratio` (0..1) of the
    previous one has failed or not ended; if more have failed, the job stops.
    """

    works: tuple[Work, ...]
    title: str
    timeout_s: float
    retries: int = 1
    max_failed_ratio: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(NewJob):
    """A job in the registry; `reason` is why it is in its state.

    Waves up to `wave` of `waves` (from 0) may start. It is paused by hand, and stopped after too
    many failures. Failures up to the serial `judged_from` no longer count: it was resumed.
    """

    job: str
    made_ns: int
    state: Literal["running", "paused", "stopped", "done", "cancelled"]
    reason: str | None
    wave: int
    waves: int
    judged_from: int
    ended_ns: int | None


_LAST_SERIAL = "SELECT COALESCE(MAX(serial), 0) FROM executions"
_OF_EXECUTION = tuple(field.name for field in fields(Execution))
_CHANGING = ("serial", *_OF_EXECUTION[_OF_EXECUTION.index("state") :])
# The names are our own.
_PUT = f"""INSERT INTO executions ({", ".join(_OF_EXECUTION)}) \
VALUES ({", ".join("?" * len(_OF_EXECUTION))})
ON CONFLICT (id) DO UPDATE \
SET {", ".join(f"{name} = excluded.{name}" for name in _CHANGING)}"""  # noqa: S608
_INSERT_JOB = """INSERT INTO jobs (job, works, title, timeout_s, retries, max_failed_ratio, \
made_ns, state, wave, waves, judged_from)
VALUES (?, ?, ?, ?, ?, ?, ?, 'running', 0, ?, 0)"""


def select_executions(registry: Registry, condition: str, *values: Any) -> list[Execution]:
    """Return the executions of `SELECT * FROM executions` with this condition and order."""
    # The text is our own.
    rows = registry.query(f"SELECT * FROM executions {condition}", *values)  # noqa: S608
    return [
        Execution(**dict(row) | {"runs": tuple(msgspec.json.decode(row["runs"]))}) for row in rows
    ]


def last_serial(registry: Registry) -> int:
    """Return the serial of the latest change, 0 if there is none."""
    return int(registry.query(_LAST_SERIAL)[0][0])


def write_executions(statements: Statements, changed: Iterable[Execution]) -> None:
    """Write new or changed executions, within the caller's transaction; each gets a new serial."""
    serial = int(statements.execute(_LAST_SERIAL).fetchone()[0])
    rows = []
    for index, execution in enumerate(changed, start=1):
        written = replace(execution, serial=serial + index)
        values = (
            msgspec.json.encode(written.runs).decode() if name == "runs" else getattr(written, name)
            for name in _OF_EXECUTION
        )
        rows.append(tuple(values))
    statements.executemany(_PUT, rows)


def executions_of_job(registry: Registry, job: str) -> list[Execution]:
    return select_executions(registry, "WHERE job = ? ORDER BY device", job)


def find_execution(registry: Registry, job: str, device: str) -> Execution | None:
    return next(
        iter(select_executions(registry, "WHERE job = ? AND device = ?", job, device)), None
    )


def count_states(registry: Registry, job: str, since: int = 0) -> dict[tuple[int, str], int]:
    """Return the number of executions of a job by (wave, state).

    Those that changed after the serial `since` are counted.
    """
    statement = (
        "SELECT wave, state, COUNT(*) AS n FROM executions WHERE job = ? AND serial > ? "
        "GROUP BY wave, state"
    )
    return {(row["wave"], row["state"]): row["n"] for row in registry.query(statement, job, since)}


def add(statements: Statements, new: NewJob, targets: Sequence[Target], now_ns: int) -> str:
    """Add a job in a transaction, its first wave queued; return its name.

    Raises ConfigError if an order is too large for a device.
    """
    job = (
        f"{new.works[0].__struct_config__.tag}-"
        f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now_ns // NS_PER_S))}-"
        f"{secrets.token_hex(3)}"
    )
    for work in new.works:
        if (
            len(
                encode_order(
                    Order(job=job, attempt=1, version=1, work=work, timeout_s=new.timeout_s)
                )
            )
            > LARGEST_ORDER_BYTES
        ):
            raise ConfigError(
                f"the order {new.title!r} is larger than {LARGEST_ORDER_BYTES} bytes: name fewer "
                "models in one suite"
            )
    last_id = int(statements.execute("SELECT COALESCE(MAX(id), 0) FROM executions").fetchone()[0])
    executions = [
        Execution(number, 0, job, *target, "held" if target.wave else "queued", due_ns=now_ns)
        for number, target in enumerate(targets, start=last_id + 1)
    ]
    waves = max((target.wave for target in targets), default=0) + 1
    works = msgspec.json.encode(new.works)
    statements.execute(
        _INSERT_JOB,
        (job, works, new.title, new.timeout_s, new.retries, new.max_failed_ratio, now_ns, waves),
    )
    write_executions(statements, executions)
    return job


def order_again(registry: Registry, statements: Statements, device: str, now_ns: int) -> None:
    """Queue a device's present and repeated orders again, in a transaction.

    The device joined again, and its journal was lost with its card.
    """
    condition = (
        f"WHERE device = ? AND requested IS NULL AND state IN {tuple(ON_DEVICE)} ORDER BY id"
    )
    orders_again = [
        replace(
            execution,
            state="queued",
            reason="its device joined again",
            due_ns=now_ns,
            deadline_ns=None,
            doing=None,
            done_ratio=None,
        )
        for execution in select_executions(registry, condition, device)
    ]
    write_executions(statements, orders_again)


def select_jobs(registry: Registry, condition: str, *values: Any) -> list[Job]:
    """Return the jobs of `SELECT * FROM jobs` with this condition and order."""
    rows = registry.query(f"SELECT * FROM jobs {condition}", *values)  # noqa: S608 - our own text
    return [
        Job(**dict(row) | {"works": msgspec.json.decode(row["works"], type=tuple[Work, ...])})
        for row in rows
    ]


def find(registry: Registry, text: str) -> Job:
    """Return the job of that name, or the one whose name begins with it.

    Raises:
        ConfigError: there is none, or more than one.
    """
    candidates = select_jobs(
        registry, "WHERE substr(job, 1, ?) = ? ORDER BY job LIMIT 2", len(text), text
    )
    if not candidates or (len(candidates) > 1 and candidates[0].job != text):
        count_text = "no job" if not candidates else "more than one job"
        raise ConfigError(f"{count_text} is named {text!r}: `edgemeter fleet jobs` lists them")
    return candidates[0]


def write_progress(statements: Statements, job: Job) -> None:
    statements.execute(
        "UPDATE jobs SET state = ?, reason = ?, wave = ?, judged_from = ?, ended_ns = "
        "? WHERE job = ?",
        (job.state, job.reason, job.wave, job.judged_from, job.ended_ns, job.job),
    )
