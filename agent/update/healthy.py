"""The agent's report that its release works: `update/healthy.json`.

The supervisor waits for it after a switch. A release is healthy if its runtimes import, its outbox
can be read, and it has had a session with the broker. It is reported once in the life of a process,
which then counts as healthy while it lives.
"""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from edgemeter.agent.base import durable_file, sqlite_file
from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.daemon.handler import IDLE_S, Handler, HandlerContext
from edgemeter.agent.delivery import outbox_file
from edgemeter.agent.update.release import RUNNING_RELEASE, UPDATE_FOLDER, InstalledRelease

logger = logging.getLogger(__name__)

ReleaseState: TypeAlias = Literal["waiting", "healthy", "broken"]
REPORT_FILE = "healthy.json"
IMPORTS = (sys.executable, "-m", "edgemeter.agent.update.imports")
POLL_S = 1.0


class HealthyReport(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file: the state, and the process that reports it.

    The process is given by pid and start, to detect whether it lives. `imports_s` is the time that
    the runtimes took to import: the supervisor allows the next release a multiple of it.
    """

    release: str
    pid: int
    started_ticks: int
    state: ReleaseState
    reason: str | None = None
    imports_s: float | None = None


def begin_imports() -> "subprocess.Popen[str]":
    """Start the process that imports the runtimes; its last line is the error."""
    # In a session of its own: Ctrl-C is for the agent, which ends the process.
    return subprocess.Popen(
        IMPORTS,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


class ReleaseHealthHandler(Handler):
    """Checks the release and reports its state; does nothing without a supervisor."""

    topics: Sequence[str] = ()

    def __init__(
        self,
        context: HandlerContext,
        release: InstalledRelease | None = RUNNING_RELEASE,
        begin_imports: Callable[[], "subprocess.Popen[str]"] = begin_imports,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context = context
        self._release = release
        self._begin_imports = begin_imports
        self._clock_s = clock_s
        self._child: subprocess.Popen[str] | None = None
        self._began_s = 0.0
        self._is_importable: bool | None = None
        self._imports_s: float | None = None
        self._problem: str | None = None
        self._reported: tuple[ReleaseState, str | None] | None = None

    def poll(self) -> float:
        if (
            self._release is None
            or (self._reported is not None and self._reported[0] != "waiting")
            or not self._folder.is_dir()
        ):
            return IDLE_S
        state, reason = self._find_out(self._release)
        if (state, reason) != self._reported:
            self._report(self._release, state, reason)
        return POLL_S if state == "waiting" else IDLE_S

    def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.communicate()

    @property
    def _folder(self) -> Path:
        return self._context.home / UPDATE_FOLDER

    def _find_out(self, release: InstalledRelease) -> tuple[ReleaseState, str | None]:
        if self._is_importable is None:
            self._import(release)
        if self._is_importable is None:
            return "waiting", "its runtimes are being imported"
        problem = self._problem or _unreadable(self._context.home / outbox_file.OUTBOX)
        if problem is not None:
            return "broken", problem
        return (
            ("healthy", None)
            if self._context.is_connected()
            else ("waiting", "it has no session with the broker yet")
        )

    def _import(self, release: InstalledRelease) -> None:
        if self._child is None:
            last = durable_file.read_if_any(self._folder / REPORT_FILE, HealthyReport)
            if last is not None and (last.release, last.state) == (release.version, "healthy"):
                # Not at every start of a board that measures.
                self._is_importable, self._imports_s = True, last.imports_s
                return
            self._began_s = self._clock_s()
            self._child = self._begin_imports()
            return
        if self._child.poll() is None:
            return
        lines = (self._child.communicate()[0] or "").strip().splitlines()
        self._is_importable, self._imports_s = (
            self._child.returncode == 0,
            self._clock_s() - self._began_s,
        )
        if not self._is_importable:
            self._problem = (
                lines[-1][:400]
                if lines
                else f"importing its runtimes ended with status {self._child.returncode}"
            )
        self._child = None

    def _report(self, release: InstalledRelease, state: ReleaseState, reason: str | None) -> None:
        # Source: proc(5), field 22 of stat: the start time of this process.
        started_ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        process = {"pid": os.getpid(), "started_ticks": started_ticks}
        report = HealthyReport(
            release=release.version,
            **process,
            state=state,
            reason=reason,
            imports_s=self._imports_s,
        )
        part = self._folder / f".{REPORT_FILE}"
        try:
            part.write_bytes(msgspec.json.encode(report))
            part.replace(self._folder / REPORT_FILE)
        except OSError as error:
            logger.warning(
                "cannot report the state of release %s to the supervisor: %s",
                release.version,
                error.strerror,
            )
            return
        self._reported = (state, reason)
        if state == "broken":
            logger.error("release %s does not work here: %s", release.version, reason)


def _unreadable(path: Path) -> str | None:
    try:
        with sqlite_file.Database(path, outbox_file.FORMAT, "read") as outbox:
            outbox.query("SELECT row FROM records LIMIT 1")
    except EdgemeterError as error:
        return str(error)
    return None
