"""The agent's word that its release works, which the supervisor waits for after a switch: `update/healthy.json`.

Healthy is a release whose runtimes import, whose outbox can be read, and that has had a session with the broker. It is said once in the
life of a process; who has said it stays healthy while it lives.
"""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from edgemeter.agent.delivery import outbox_file, sqlite_file
from edgemeter.agent.delivery.attendant import IDLE_S, Post
from edgemeter.agent.delivery.mqtt_session import Message
from edgemeter.agent.errors import EdgemeterError
from edgemeter.agent.update import place, told
from edgemeter.agent.update.place import Release

logger = logging.getLogger(__name__)

State: TypeAlias = Literal["waiting", "healthy", "broken"]
WORD = "healthy.json"
OUTBOX = "outbox.sqlite"
IMPORTS = (sys.executable, "-m", "edgemeter.agent.update.imports")
LOOK_S = 1.0
IMPORT_PATIENCE_S = 280.0


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says: who says it (number and start of its process, by which it can be seen to live), and how it is."""

    release: str
    pid: int
    started_ticks: int
    state: State
    reason: str | None = None


class Healthy:
    """The attendant that finds out how the release is, and says so; it does nothing in an agent that nobody supervises."""

    topics: Sequence[str] = ()

    def __init__(
        self,
        post: Post,
        release: Release | None = place.HERE,
        imports: Sequence[str] = IMPORTS,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._post = post
        self._release = release
        self._imports = imports
        self._clock_s = clock_s
        self._child: subprocess.Popen[str] | None = None
        self._began_s = 0.0
        self._is_importable: bool | None = None
        self._trouble: str | None = None
        self._said: tuple[State, str | None] | None = None

    def connected(self) -> None:
        """Nothing: `look` is called too."""

    def received(self, message: Message) -> None:
        """Nothing: it hears no topics."""

    def look(self) -> float:
        """Go on finding out, and say what is new."""
        if self._release is None or (self._said is not None and self._said[0] != "waiting") or not self._folder.is_dir():
            return IDLE_S
        state, reason = self._find_out(self._release)
        if (state, reason) != self._said:
            self._say(self._release, state, reason)
        return LOOK_S if state == "waiting" else IDLE_S

    def close(self) -> None:
        """End the process that imports."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.communicate()

    @property
    def _folder(self) -> Path:
        return self._post.home / told.FOLDER

    def _find_out(self, release: Release) -> tuple[State, str | None]:
        if self._is_importable is None:
            self._import(release)
        if self._is_importable is None:
            return "waiting", "its runtimes are being imported"
        trouble = self._trouble or _unreadable(self._post.home / OUTBOX)
        if trouble is not None:
            return "broken", trouble
        return ("healthy", None) if self._post.is_connected() else ("waiting", "it has no session with the broker yet")

    def _import(self, release: Release) -> None:
        """Start the process that imports, or look how it ended."""
        if self._child is None:
            last = _last_word(self._folder / WORD)
            if last is not None and (last.release, last.state) == (release.version, "healthy"):
                # Not at every start of a board that measures.
                self._is_importable = True
                return
            self._began_s = self._clock_s()
            self._child = subprocess.Popen(
                [*self._imports], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            return
        if self._child.poll() is None:
            if self._clock_s() - self._began_s > IMPORT_PATIENCE_S:
                self.close()
                self._is_importable, self._trouble = False, f"importing its runtimes took more than {IMPORT_PATIENCE_S:.0f} s"
            return
        lines = (self._child.communicate()[0] or "").strip().splitlines()
        self._is_importable = self._child.returncode == 0
        if not self._is_importable:
            self._trouble = lines[-1][:400] if lines else f"importing its runtimes ended with status {self._child.returncode}"
        self._child = None

    def _say(self, release: Release, state: State, reason: str | None) -> None:
        word = Word(release=release.version, pid=os.getpid(), started_ticks=_started_ticks(), state=state, reason=reason)
        part = self._folder / f".{WORD}"
        try:
            part.write_bytes(msgspec.json.encode(word))
            part.replace(self._folder / WORD)
        except OSError as error:
            logger.warning("cannot tell the supervisor how release %s is: %s", release.version, error.strerror)
            return
        self._said = (state, reason)
        if state == "broken":
            logger.error("release %s does not work here: %s", release.version, reason)


def _last_word(path: Path) -> Word | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Word)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _unreadable(path: Path) -> str | None:
    try:
        with closing(sqlite_file.connect(path, outbox_file.FORMAT, "read")) as connection, sqlite_file.mapped(path, outbox_file.FORMAT):
            connection.execute("SELECT row FROM records LIMIT 1").fetchall()
    except EdgemeterError as error:
        return str(error)
    return None


def _started_ticks() -> int:
    """Return when this process was started. Source: proc(5), field 22 of stat."""
    return int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
