"""Reports the health of the device.

It does so at the start, when something important changes, and once a day.
"""

import contextlib
import logging
import os
import re
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.broker_url import files_of
from edgemeter.agent.base.config import Config
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.file_lock import is_run_locked
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.contract.health import LastStop, decode_health, encode_health
from edgemeter.agent.daemon.handler import Handler, HandlerContext
from edgemeter.agent.delivery.verdict_log import recent_runs, verdicts_changed_ns
from edgemeter.agent.identity.service_signature import read_refused_orders
from edgemeter.agent.machine import clock
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine
from edgemeter.agent.machine.throttling import PI_SYSFS


def certificate_path(settings: Config, home: Path) -> Path:
    """Return the path of the device's certificate.

    It is from the configuration, else where joining a fleet puts it.
    """
    named = files_of(settings.broker).get("certificate") if settings.broker else None
    return named or home / "identity" / "device.crt"


def certificate_end_ns(path: Path, machine: Machine) -> int | None:
    """Return the end of the certificate at `path` (UTC, ns).

    None if it is absent, or there is no tool to read it.
    """
    if not path.is_file():
        return None
    output = machine.output(["openssl", "x509", "-noout", "-enddate", "-in", str(path)]) or ""
    end = re.search(r"^notAfter=(.*)", output, re.MULTILINE)
    try:
        return ssl.cert_time_to_seconds(end[1].strip()) * 1_000_000_000 if end else None
    except ValueError:
        return None


logger = logging.getLogger(__name__)

STOP_MARKER_FILE = "running.json"
LONGEST_LINE = 400


class StopMarkerContent(msgspec.Struct, frozen=True, kw_only=True):
    """The marker of a running agent.

    It has its boot, the number of out-of-memory kills, and the time of writing.
    """

    boot_id: str | None
    oom_kills: int | None
    seen_ns: int
    floor_ns: int = 0
    ended: LastStop | None = None


class StopMarker:
    """The marker below `home`: created when the agent starts, touched regularly, and ended once."""

    def __init__(self, home: Path, machine: Machine = THIS_MACHINE) -> None:
        self._path = home / STOP_MARKER_FILE
        self._machine = machine
        before = _read_marker(self._path)
        self.floor_ns = max(before.floor_ns, before.seen_ns) if before else 0
        self.last_words = last_stop(before, machine)
        self.touch()

    def touch(self) -> None:
        """Mark the agent as running; the latest time that the clock ever showed is stored."""
        self._write(None)

    def end(self, error: BaseException | None, line: str | None = None) -> None:
        """Mark the agent as ended: on request, or by `error`; `line` is its last log line."""
        if error is None or isinstance(error, (SystemExit, KeyboardInterrupt)):
            self._write(LastStop(kind="clean", text=line, at_ns=time.time_ns()))
        else:
            text = f"{type(error).__name__}: {error}"[:LONGEST_LINE]
            self._write(LastStop(kind="crash", text=text, at_ns=time.time_ns()))

    def _write(self, ended: LastStop | None) -> None:
        now_ns = time.time_ns()
        self.floor_ns = max(self.floor_ns, now_ns)
        marker = StopMarkerContent(
            boot_id=clock.boot_id(self._machine),
            oom_kills=oom_kills(self._machine),
            seen_ns=now_ns,
            floor_ns=self.floor_ns,
            ended=ended,
        )
        # It only informs the next start: an agent on a full disk goes on without it.
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with durable_file.replacing(self._path, 0o644) as file:
                file.write(msgspec.json.encode(marker))


def last_stop(before: StopMarkerContent | None, machine: Machine) -> LastStop:
    """Return how the agent that left `before` ended, by the present state of the machine."""
    if before is None:
        return LastStop(kind="first")
    if before.ended is not None:
        return before.ended
    if before.boot_id is None or clock.boot_id(machine) is None:
        return LastStop(
            kind="unknown",
            text="no clean stop, and this machine does not identify its boots",
            at_ns=before.seen_ns,
        )
    if clock.boot_id(machine) != before.boot_id:
        text = "the board went down without a clean stop: probably power, reset or a frozen kernel"
        return LastStop(kind="power-loss", text=text, at_ns=before.seen_ns)
    kills = oom_kills(machine)
    if kills is not None and before.oom_kills is not None and kills > before.oom_kills:
        text = f"the kernel has killed {kills - before.oom_kills} process(es) since, out of memory"
        return LastStop(kind="oom", text=text, at_ns=before.seen_ns)
    return LastStop(
        kind="killed", text="killed in the same boot, without a clean stop", at_ns=before.seen_ns
    )


def oom_kills(machine: Machine) -> int | None:
    """Return the number of processes that the kernel killed since boot, out of memory.

    None if it does not count (before 4.13).
    """
    count = re.search(r"^oom_kill (\d+)$", machine.text("proc/vmstat") or "", re.MULTILINE)
    return int(count[1]) if count else None


def _read_marker(path: Path) -> StopMarkerContent | None:
    try:
        return decode_json(path.read_bytes(), StopMarkerContent)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        logger.info("cannot tell how the agent ended last: %s is damaged (%s)", path, error)
        return StopMarkerContent(boot_id=None, oom_kills=None, seen_ns=0)


POLL_S = 60.0
COLLECTING_POLL_S = 1.0
DAILY_S = 86_400.0

# A value that changes back and forth is not worth a message each time.
AT_MOST_EVERY_S = 600.0
REFUSED_EVERY_S = 60.0

# A board that just started, or a slow one, may need longer than this: the next try comes after a
# pause with twice the time, and so on.
COLLECT_TIMEOUT_S, LONGEST_COLLECT_TIMEOUT_S = 120.0, 1920.0
PAUSE_S = 60.0
TOUCH_S = 3600.0

# Shares of free disk space; crossing one triggers a message.
DISK_STEPS = (0.02, 0.05, 0.1, 0.2)


class ImportantState(NamedTuple):
    """The facts that are checked once a minute without a child process.

    A change is reported at once. `disk_step` is the level of free disk space, `certificate_ns` when
    the certificate was written, `throttle_flags` are those of a Raspberry Pi.
    """

    is_synchronised: bool | None
    disk_step: int | None
    certificate_ns: int | None
    throttle_flags: tuple[str | None, ...]


def begin_collecting(order: str) -> "subprocess.Popen[bytes]":
    """Start the collecting process; its output is the message."""
    command = [sys.executable, "-m", "edgemeter.agent.health.collect", order]
    # In a session of its own: Ctrl-C is for the agent, which ends the process.
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
    )


class HealthHandler(Handler):
    """Reports health; `is_busy` returns whether a run is in progress."""

    topics = ()

    def __init__(
        self,
        context: HandlerContext,
        is_busy: Callable[[], bool] | None = None,
        now_s: Callable[[], float] = time.monotonic,
        begin_collecting: Callable[[str], "subprocess.Popen[bytes]"] = begin_collecting,
    ) -> None:
        self._context = context
        self._is_busy = is_busy or partial(is_run_locked, context.home)
        self._now_s = now_s
        self._begin_collecting = begin_collecting
        self._marker = StopMarker(context.home)
        self._touched_s = now_s()
        self._child: subprocess.Popen[bytes] | None = None
        self._child_s = 0.0
        # Failures in a row.
        self._failures = 0
        self._reported: bytes | None = None
        self._reported_s: float | None = None
        self._known: ImportantState | None = None
        self._runs_ns: int | None = None
        self._runs_s = 0.0
        self._refused = read_refused_orders(context.home)
        self._refused_s = float("-inf")

    def connected(self) -> None:
        """Repeat the last report: a broker that lost its state has lost that too."""
        if self._reported is not None:
            self._publish(self._reported)

    def poll(self) -> float:
        """Collect when it is due; publish the result."""
        now_s = self._now_s()
        if now_s - self._touched_s >= TOUCH_S:
            self._touched_s = now_s
            self._marker.touch()
        if self._child is not None:
            return self._finish(self._child, now_s)
        if self._is_due(now_s) and not self._is_busy():
            self._begin(now_s)
            return COLLECTING_POLL_S
        self._report_runs(now_s)
        self._report_refused(now_s)
        return POLL_S

    def close(self) -> None:
        """End the child, and store how the agent ends."""
        if self._child is not None:
            self._end_child(self._child)
        lines = self._context.log()
        self._marker.end(sys.exc_info()[1], lines[-1] if lines else None)

    def _is_due(self, now_s: float) -> bool:
        state = self._inspect()
        if self._reported_s is None:
            self._known = state
            return True
        passed_s = now_s - self._reported_s
        if self._failures:
            return passed_s >= self._pause_s()
        if state != self._known and passed_s >= AT_MOST_EVERY_S:
            self._known = state
            return True
        return passed_s >= DAILY_S

    def _inspect(self) -> ImportantState:
        step = certificate_ns = None
        with contextlib.suppress(OSError):
            disk = os.statvfs(self._context.home)
            free_ratio = disk.f_bavail / max(1, disk.f_blocks)
            step = sum(free_ratio >= limit_ratio for limit_ratio in DISK_STEPS)
        # A renewed certificate triggers a message.
        with contextlib.suppress(OSError):
            certificate_ns = (
                certificate_path(self._context.settings, self._context.home).stat().st_mtime_ns
            )
        flags = tuple(THIS_MACHINE.line(path) for path in THIS_MACHINE.find(PI_SYSFS))
        return ImportantState(clock.synchronised(), step, certificate_ns, flags)

    def _report_runs(self, now_s: float) -> None:
        """Report the verdicts of the last runs, which needs no child process."""
        runs_ns = verdicts_changed_ns(self._context.home)
        if (
            self._reported is None
            or runs_ns == self._runs_ns
            or now_s - self._runs_s < AT_MOST_EVERY_S
        ):
            return
        self._runs_ns, self._runs_s = runs_ns, now_s
        self._publish(
            encode_health(
                msgspec.structs.replace(
                    decode_health(self._reported), runs=recent_runs(self._context.home)
                )
            )
        )

    def _report_refused(self, now_s: float) -> None:
        """Report newly refused orders: a person has to look at them today."""
        refused = read_refused_orders(self._context.home)
        if (
            self._reported is None
            or refused is None
            or refused == self._refused
            or now_s - self._refused_s < REFUSED_EVERY_S
        ):
            return
        self._refused, self._refused_s = refused, now_s
        self._publish(
            encode_health(
                msgspec.structs.replace(decode_health(self._reported), refused_orders=refused)
            )
        )

    def _begin(self, now_s: float) -> None:
        context = self._context
        order = msgspec.json.encode(
            {
                "device": context.device,
                "fleet": context.fleet,
                "session": context.session,
                "config": str(context.config) if context.config else None,
                "floor_ns": self._marker.floor_ns,
                "last_words": self._marker.last_words,
            }
        )
        self._reported_s = now_s
        self._runs_ns, self._runs_s = verdicts_changed_ns(context.home), now_s
        try:
            self._child = self._begin_collecting(order.decode())
            self._child_s = now_s
        except OSError as error:
            self._failed(f"cannot collect the health of this device ({error})", now_s)

    def _finish(self, child: subprocess.Popen[bytes], now_s: float) -> float:
        if child.poll() is None:
            timeout_s = min(LONGEST_COLLECT_TIMEOUT_S, COLLECT_TIMEOUT_S * 2.0**self._failures)
            if now_s - self._child_s < timeout_s:
                return COLLECTING_POLL_S
            self._end_child(child)
            self._failed(
                f"collecting the health of this device took more than {timeout_s:.0f} s", now_s
            )
            return POLL_S
        # Its output fits into the pipe buffer.
        payload, _ = child.communicate()
        self._child = None
        try:
            decode_health(payload)
        except ConfigError as error:
            self._failed(
                f"cannot collect the health of this device (status {child.returncode}): {error}",
                now_s,
            )
            return POLL_S
        self._failures = 0
        self._publish(payload)
        return POLL_S

    def _failed(self, why: str, now_s: float) -> None:
        self._failures += 1
        # The pause begins now.
        self._reported_s = now_s
        logger.warning("%s; next try in %.0f s", why, self._pause_s())

    def _pause_s(self) -> float:
        return min(DAILY_S, PAUSE_S * 2.0 ** (self._failures - 1))

    def _publish(self, payload: bytes) -> None:
        self._reported = payload
        self._context.publish(self._context.topic("health"), payload, lasting="retained")

    def _end_child(self, child: subprocess.Popen[bytes]) -> None:
        self._child = None
        child.kill()
        child.communicate()
