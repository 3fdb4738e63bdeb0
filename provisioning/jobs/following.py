"""Follows a job in the registry until it has ended: a live table on a terminal, else a line for every change."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

from rich.console import Console
from rich.live import Live

from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.jobs import executions, shown
from edgemeter.provisioning.jobs.executions import Execution
from edgemeter.provisioning.jobs.waiting import Waiting
from edgemeter.provisioning.registry.registry import Registry

LOOK_S = 0.5
# Nothing of a job was sent in this time: somebody wonders why.
STILL_S = 15.0
MOST_ROWS = 30
WAITING = frozenset({"queued", "held"})
STILL = "nothing was sent yet: is `edgemeter fleet serve` running, and are the devices online?"


@dataclass(slots=True)
class _Seen:
    held: dict[str, Execution] = field(default_factory=dict)
    serial: int = 0


def follow(
    folder: FleetFolder, registry: Registry, job: str, console: Console, sleep: Callable[[float], None] = time.sleep
) -> list[Execution]:
    """Return the executions of a job, by device, when all have ended; show on `console` how they come along."""
    seen, began_s, has_wondered = _Seen(), time.monotonic(), False
    show = _LiveTable(folder, registry, console) if console.is_terminal else _Lines(console)
    with show:
        while True:
            changed = executions.since(registry, seen.serial, job=job)
            for one in changed:
                seen.serial = one.serial
                show.changed(seen.held.get(one.device), one)
                seen.held[one.device] = one
            show.look(seen.held)
            if seen.held and all(one.is_final for one in seen.held.values()):
                return [seen.held[device] for device in sorted(seen.held)]
            if not has_wondered and time.monotonic() - began_s > STILL_S and not any(one.attempt for one in seen.held.values()):
                has_wondered = True
                console.print(STILL, markup=False, highlight=False)
            sleep(LOOK_S)


class _Lines:
    """A line for every state that an execution comes to."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None

    def changed(self, before: Execution | None, now: Execution) -> None:
        """Say it, unless only its progress changed."""
        if before is None or (before.state, before.attempt, before.wish) != (now.state, now.attempt, now.wish):
            note = shown.note(now, lambda _: None)
            line = f"{now.device}: {shown.state(now)}{f': {note}' if note else ''}"
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def look(self, held: dict[str, Execution]) -> None:
        """Do nothing: lines come with changes."""


class _LiveTable:
    """A table that is drawn anew; of many devices those that are busy or went wrong."""

    def __init__(self, folder: FleetFolder, registry: Registry, console: Console) -> None:
        self._folder = folder
        self._registry = registry
        self._live = Live(console=console, transient=True, auto_refresh=False)
        self._why: dict[int, str | None] = {}
        self._due_s = 0.0

    def __enter__(self) -> None:
        self._live.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()

    def changed(self, before: Execution | None, now: Execution) -> None:
        """Do nothing: the table shows all."""

    def look(self, held: dict[str, Execution]) -> None:
        """Draw it."""
        now_ns = time.time_ns()
        if time.monotonic() > self._due_s:
            began_s = time.monotonic()
            waiting = Waiting(self._folder, self._registry)
            self._why = {one.id: waiting.why(one, now_ns) for one in held.values()}
            # Of ten thousand devices it takes a second: that is asked seldom.
            self._due_s = time.monotonic() + max(4 * LOOK_S, 10 * (time.monotonic() - began_s))
        rows = sorted(held.values(), key=lambda one: (one.state in {"done", "queued", "held"}, one.device))
        drawn = shown.table(rows[:MOST_ROWS], lambda one: self._why.get(one.id) if one.state in WAITING else None, now_ns)
        drawn.caption = shown.summary(held.values())
        self._live.update(drawn, refresh=True)
