"""Says how the device stands: at the start, when something important changes, and once a day.

It collects in a child process, and never beside a run: what that costs would be measured.
"""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import msgspec

from edgemeter.agent.delivery.attendant import Post
from edgemeter.agent.delivery.mqtt_session import Message
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.health import certificate, contract, verdict_log
from edgemeter.agent.health.stop_marker import StopMarker
from edgemeter.agent.jobs import run_lock
from edgemeter.agent.machine import clock
from edgemeter.agent.machine.machine import THIS_MACHINE
from edgemeter.agent.machine.throttling import PI_SYSFS

logger = logging.getLogger(__name__)

LOOK_S = 60.0
COLLECTING_LOOK_S = 1.0
DAILY_S = 86_400.0
# What changes back and forth is not worth a message each time.
AT_MOST_EVERY_S = 600.0
# A board that just started, or a slow one, may need longer than this: the next try comes after a pause and has twice as long, and so on.
PATIENCE_S, LONGEST_PATIENCE_S = 120.0, 1920.0
PAUSE_S = 60.0
TOUCH_S = 3600.0
# Shares of the disk that are free; crossing one is worth a message.
DISK_STEPS = (0.02, 0.05, 0.1, 0.2)


@dataclass(frozen=True, slots=True)
class Important:
    """What is looked at once a minute, without a child: a change of it is said at once."""

    is_synchronised: bool | None
    disk_step: int | None
    certificate_ns: int | None
    throttle_flags: tuple[str | None, ...]


class HealthAttendant:
    """The attendant; `is_busy` says whether a run is being measured."""

    topics = ()

    def __init__(self, post: Post, is_busy: Callable[[], bool] | None = None, now_s: Callable[[], float] = time.monotonic) -> None:
        self._post = post
        self._is_busy = is_busy or partial(run_lock.is_held, post.home)
        self._now_s = now_s
        self._marker = StopMarker(post.home)
        self._touched_s = now_s()
        self._child: subprocess.Popen[bytes] | None = None
        self._child_s = 0.0
        # Tries in a row that came to nothing.
        self._failures = 0
        self._said: bytes | None = None
        self._said_s: float | None = None
        self._known: Important | None = None
        self._runs_ns: int | None = None
        self._runs_s = 0.0

    def connected(self) -> None:
        """Say again what was said last: a broker that lost its memory has lost that too."""
        if self._said is not None:
            self._publish(self._said)

    def received(self, message: Message) -> None:
        """Take nothing: it hears no topic."""

    def look(self) -> float:
        """Collect when it is due; publish when that is done."""
        now_s = self._now_s()
        if now_s - self._touched_s >= TOUCH_S:
            self._touched_s = now_s
            self._marker.touch()
        if self._child is not None:
            return self._finish(self._child, now_s)
        if self._is_due(now_s) and not self._is_busy():
            self._begin(now_s)
            return COLLECTING_LOOK_S
        self._tell_runs(now_s)
        return LOOK_S

    def close(self) -> None:
        """End the child, and note how the agent ends."""
        if self._child is not None:
            self._end_child(self._child)
        lines = self._post.log()
        self._marker.end(sys.exc_info()[1], lines[-1] if lines else None)

    def _is_due(self, now_s: float) -> bool:
        seen = self._look_around()
        if self._said_s is None:
            self._known = seen
            return True
        passed_s = now_s - self._said_s
        if self._failures:
            return passed_s >= self._pause_s()
        if seen != self._known and passed_s >= AT_MOST_EVERY_S:
            self._known = seen
            return True
        return passed_s >= DAILY_S

    def _look_around(self) -> Important:
        try:
            disk = os.statvfs(self._post.home)
            free_ratio = disk.f_bavail / max(1, disk.f_blocks)
            step = sum(free_ratio >= one for one in DISK_STEPS)
        except OSError:
            step = None
        flags = tuple(THIS_MACHINE.line(path) for path in THIS_MACHINE.find(PI_SYSFS))
        return Important(clock.synchronised(), step, self._certificate_ns(), flags)

    def _certificate_ns(self) -> int | None:
        """Return when the device's certificate was written: a renewed one is worth a message."""
        try:
            return certificate.place(self._post.settings, self._post.home).stat().st_mtime_ns
        except OSError:
            return None

    def _tell_runs(self, now_s: float) -> None:
        """Say what became of the last runs: that needs no child."""
        runs_ns = verdict_log.changed_ns(self._post.home)
        if self._said is None or runs_ns == self._runs_ns or now_s - self._runs_s < AT_MOST_EVERY_S:
            return
        self._runs_ns, self._runs_s = runs_ns, now_s
        told = contract.decode(self._said)
        self._said = contract.encode(msgspec.structs.replace(told, runs=verdict_log.read(self._post.home)))
        self._publish(self._said)

    def _begin(self, now_s: float) -> None:
        post = self._post
        order = msgspec.json.encode(
            {
                "device": post.device,
                "fleet": post.fleet,
                "session": post.session,
                "config": str(post.config) if post.config else None,
                "floor_ns": self._marker.floor_ns,
                "last_words": self._marker.last_words,
            }
        )
        command = [sys.executable, "-m", "edgemeter.agent.health.collect", order.decode()]
        self._said_s = now_s
        self._runs_ns, self._runs_s = verdict_log.changed_ns(post.home), now_s
        try:
            self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
            self._child_s = now_s
        except OSError as error:
            self._failed(f"cannot find out how this device stands ({error})", now_s)

    def _finish(self, child: subprocess.Popen[bytes], now_s: float) -> float:
        if child.poll() is None:
            patience_s = min(LONGEST_PATIENCE_S, PATIENCE_S * 2.0**self._failures)
            if now_s - self._child_s < patience_s:
                return COLLECTING_LOOK_S
            self._end_child(child)
            self._failed(f"finding out how this device stands took more than {patience_s:.0f} s", now_s)
            return LOOK_S
        # What it says fits into a pipe that nobody reads meanwhile.
        said, _ = child.communicate()
        self._child = None
        try:
            contract.decode(said)
        except ConfigError as error:
            self._failed(f"cannot find out how this device stands (status {child.returncode}): {error}", now_s)
            return LOOK_S
        self._failures = 0
        self._said = said
        self._publish(said)
        return LOOK_S

    def _failed(self, why: str, now_s: float) -> None:
        self._failures += 1
        # The pause begins now.
        self._said_s = now_s
        logger.warning("%s; tried again in %.0f s", why, self._pause_s())

    def _pause_s(self) -> float:
        return min(DAILY_S, PAUSE_S * 2.0 ** (self._failures - 1))

    def _publish(self, said: bytes) -> None:
        self._post.publish(self._post.topic("health"), said, lasting="retained")

    def _end_child(self, child: subprocess.Popen[bytes]) -> None:
        self._child = None
        child.kill()
        child.communicate()
