"""Content on the device, in files named by their sha256 in `content/`.

They are complete and verified, or `.part` during the download over HTTPS.

A child process downloads one at a time, so that the daemon stays small; a part survives a restart.
"""

import contextlib
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import msgspec

from edgemeter.agent.base.broker_url import files_of
from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.contract.orders import Content
from edgemeter.agent.daemon.handler import HandlerContext

logger = logging.getLogger(__name__)

CONTENT_FOLDER = "content"
PART = ".part"
DATA = ".data"

# Twice the size: the files made from it (an installed release, results) need room too.
FREE_RATIO = 2

# The exit status of the child; after any other, a later attempt may succeed.
HERE, REFUSED = 0, 3
CHILD_POLL_S = 0.2
FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 120.0


class DeviceContent:
    """The contents below `home`, of at most about `limit_bytes` besides those in use."""

    def __init__(self, home: Path, limit_bytes: int) -> None:
        self.folder = home / CONTENT_FOLDER
        self._limit_bytes = limit_bytes

    def path(self, content: Content) -> Path:
        """Return the path of the complete content."""
        return self.folder / content.sha256

    def part(self, content: Content) -> Path:
        """Return the path during the download."""
        return self.folder / f"{content.sha256}{PART}"

    def is_here(self, content: Content) -> bool:
        """Return whether it is complete.

        It gets its final name only after its hash was verified.
        """
        try:
            return self.path(content).stat().st_size == content.size_bytes
        except OSError:
            return self._unpacked(content).is_dir()

    def used(self, content: Content) -> None:
        for path in (self.path(content), self._unpacked(content)):
            with contextlib.suppress(OSError):
                os.utime(path)

    def arrived_bytes(self, content: Content) -> int:
        try:
            return self.part(content).stat().st_size
        except OSError:
            return 0

    def make_room(self, content: Content, in_use: Collection[str]) -> None:
        """Remove the least recently used until `content` fits.

        Raises:
            UnavailableError: the disk has not twice its size free, or the folder cannot be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            sizes = {
                path: _size_bytes(path)
                for path in sorted(self.folder.iterdir(), key=lambda path: path.lstat().st_mtime_ns)
            }
            kept_bytes = sum(sizes.values())
            here_bytes = self.arrived_bytes(content)
            needed_bytes = FREE_RATIO * content.size_bytes - here_bytes
            for path, size_bytes in sizes.items():
                if (
                    self._free_bytes() >= needed_bytes
                    and kept_bytes + content.size_bytes - here_bytes <= self._limit_bytes
                ):
                    break
                if path.name.partition(".")[0] not in {*in_use, content.sha256}:
                    kept_bytes -= size_bytes
                    _remove(path)
            if (free_bytes := self._free_bytes()) < needed_bytes:
                raise UnavailableError(
                    f"no space: {content.name!r} needs {needed_bytes / 1e6:.1f} MB "
                    "free (twice its size), "
                    f"only {free_bytes / 1e6:.1f} MB are"
                )
            self.part(content).touch(mode=0o600)
        except OSError as error:
            raise UnavailableError(
                f"cannot keep content in {str(self.folder)!r} ({error.strerror}): check that the "
                "folder may be written"
            ) from error

    def _unpacked(self, content: Content) -> Path:
        return self.folder / f"{content.sha256}{DATA}"

    def _free_bytes(self) -> int:
        return shutil.disk_usage(self.folder).free


def _size_bytes(path: Path) -> int:
    if not path.is_dir():
        return path.lstat().st_size
    return sum(below.lstat().st_size for below in path.rglob("*") if not below.is_dir())


def _remove(path: Path) -> None:
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    if path.suffix == DATA:
        # Half of it must not look like the whole.
        part = path.with_name(f"{path.name}{PART}")
        shutil.rmtree(part, ignore_errors=True)
        path = path.rename(part)
    shutil.rmtree(path)


class FetchTask(msgspec.Struct, frozen=True, kw_only=True):
    """A content to download from `url`, and the files to write.

    `tls` are CA, certificate and key.
    """

    content: Content
    part: str
    final: str
    url: str
    tls: tuple[str | None, str | None, str | None] = (None, None, None)


BeginFetch = Callable[[FetchTask], "subprocess.Popen[str]"]


def begin_fetch(task: FetchTask) -> "subprocess.Popen[str]":
    """Start the download.

    The exit status is the outcome, and the output the reason for a failure.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "edgemeter.agent.jobs.fetch", msgspec.json.encode(task).decode()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONSAFEPATH": "1"},
    )


class ContentFetcher:
    """Downloads one content at a time; called from one thread."""

    def __init__(
        self,
        context: HandlerContext,
        store: DeviceContent,
        clock_s: Callable[[], float] = time.monotonic,
        begin_fetch: BeginFetch = begin_fetch,
    ) -> None:
        self._context = context
        self._store = store
        self._clock_s = clock_s
        self._begin_fetch = begin_fetch
        self._content: Content | None = None
        self._child: subprocess.Popen[str] | None = None
        self._due_s = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._failure = ""

    def fetch(self, contents: Iterable[Content], in_use: Collection[str]) -> float | None:
        """Continue the download.

        Returns None when all of `contents` are complete, else the seconds to the next poll.

        Raises:
            UnavailableError: there is no space or no address, or the server refuses, or sends
                another file.
        """
        missing = next((content for content in contents if not self._store.is_here(content)), None)
        if missing is None:
            self.stop()
            return None
        if self._content != missing:
            self.stop()
            self._store.make_room(missing, in_use)
            self._content, self._due_s, self._pause_s, self._failure = (
                missing,
                self._clock_s(),
                FIRST_PAUSE_S,
                "",
            )
        if self._child is not None:
            return self._follow(self._child)
        if (wait_s := self._due_s - self._clock_s()) > 0:
            return wait_s
        self._child = self._begin_fetch(self._task(missing))
        return CHILD_POLL_S

    def progress(self) -> str | None:
        content = self._content
        if content is None:
            return None
        return (
            f"fetching {content.name}, {self._store.arrived_bytes(content) / 1e6:.1f} of "
            f"{content.size_bytes / 1e6:.1f} MB{self._failure}"
        )

    def stop(self) -> None:
        """Stop; the part stays."""
        self._content = None
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.communicate()

    def _task(self, content: Content) -> FetchTask:
        settings = self._context.settings
        if settings.content_url is None:
            raise UnavailableError(
                f"cannot fetch {content.name!r}: set content_url in the configuration, or join "
                "the fleet again"
            )
        files = (
            {name: str(path) for name, path in files_of(settings.broker).items()}
            if settings.broker
            else {}
        )
        return FetchTask(
            content=content,
            part=str(self._store.part(content)),
            final=str(self._store.path(content)),
            url=f"{settings.content_url.rstrip('/')}/{content.sha256}",
            tls=(files.get("ca"), files.get("certificate"), files.get("key")),
        )

    def _follow(self, child: "subprocess.Popen[str]") -> float:
        status = child.poll()
        if status is None:
            return CHILD_POLL_S
        reason_text, _ = child.communicate()
        self._child = None
        if status in (HERE, REFUSED):
            self._content = None
        if status == HERE:
            return 0.0
        if status == REFUSED:
            raise UnavailableError(reason_text)
        logger.warning(
            "%s: trying again in %.0f s",
            reason_text or f"fetching ended with status {status}",
            self._pause_s,
        )
        self._failure = f" ({reason_text})"
        self._due_s, self._pause_s = (
            self._clock_s() + self._pause_s,
            min(LONGEST_PAUSE_S, 2 * self._pause_s),
        )
        return self._due_s - self._clock_s()
