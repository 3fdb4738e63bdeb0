"""Fetches content that orders name: over HTTPS in a child process where the configuration says so, else piece by piece over MQTT.

Pieces are asked for a few at a time and taken in order only; what came survives a restart. The hash is checked in a child process.
"""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

import msgspec

from edgemeter.agent.base.broker_url import files_of
from edgemeter.agent.base.errors import EdgemeterError, TransientError, UnavailableError
from edgemeter.agent.contract.orders import Chunk, Content, Want, encode_order, split_chunk
from edgemeter.agent.daemon.handler import HandlerContext
from edgemeter.agent.jobs.content import HERE, INCOMPLETE, WRONG_HASH, DeviceContent, FetchTask

logger = logging.getLogger(__name__)

PIECE_BYTES = 128 << 10
OUTSTANDING = 4
# A request or a chunk was lost (they are sent once): request again all that is missing.
TIMEOUT_S = 10.0
LONGEST_TIMEOUT_S = 120.0
CHILD_POLL_S = 0.2
TRIES = 2
# A server that has just learned of a content may not have it at once.
ABSENT_TRIES = 3


BeginFetch = Callable[[FetchTask], "subprocess.Popen[bytes]"]


def begin_fetch(task: FetchTask) -> "subprocess.Popen[bytes]":
    """Return the process that brings the content to its end; its status says what came of it."""
    command = [sys.executable, "-m", "edgemeter.agent.jobs.fetch"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, "PYTHONSAFEPATH": "1"})
    if child.stdin is not None:
        with suppress(BrokenPipeError):
            child.stdin.write(msgspec.json.encode(task))
            child.stdin.close()
    return child


class ContentFetcher:
    """Fetches one content at a time; called from one thread."""

    def __init__(
        self,
        context: HandlerContext,
        store: DeviceContent,
        clock_s: Callable[[], float] = time.monotonic,
        begin_fetch: BeginFetch = begin_fetch,
    ) -> None:
        self._context = context
        self._kept = store
        self._clock_s = clock_s
        self._begin_fetch = begin_fetch
        self._wanted: Content | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._is_tried_by_http = False
        self._requested_to = 0
        self._received_s = 0.0
        self._timeout_s = TIMEOUT_S
        self._wrong = 0
        self._absent = 0
        self._failure: str | None = None

    def fetch(self, contents: Iterable[Content], in_use: Collection[str]) -> float | None:
        """Continue fetching; return None when all of `contents` are here, else the seconds to the next poll.

        Raises:
            UnavailableError: there is no space, or the server has no such content.
            EdgemeterError: the hash of what the server sent is wrong, twice.
        """
        missing = next((content for content in contents if not self._kept.is_here(content)), None)
        if missing is None:
            self.stop()
            return None
        if self._wanted != missing:
            self.stop()
            self._kept.make_room(missing, in_use)
            self._wanted = missing
            self._is_tried_by_http = self._context.settings.content_url is None
            self._wrong = self._absent = 0
        return self._go_on(missing)

    def received(self, payload: bytes) -> None:
        """Keep one chunk, if it is the next one; raises ConfigError if it is not a chunk of content."""
        chunk, data = split_chunk(payload)
        content = self._wanted
        if content is None or chunk.sha256 != content.sha256 or self._child is not None:
            return
        if chunk.size_bytes != content.size_bytes:
            self._refuse(content, chunk)
        elif (
            data
            and chunk.offset == self._size(content)
            and chunk.offset + len(data) <= content.size_bytes
            and chunk.offset < self._requested_to
        ):
            with self._kept.part(content).open("ab") as file:
                file.write(data)
            self._received_s = self._clock_s()
            self._timeout_s = TIMEOUT_S

    def progress(self) -> str | None:
        """Return the progress as text, None while nothing is fetched."""
        content = self._wanted
        if content is None:
            return None
        came = 0
        # A part is not there yet, or is whole by now.
        with suppress(OSError):
            came = self._kept.part(content).stat().st_size
        return f"fetching {content.name}, {came / 1e6:.1f} of {content.size_bytes / 1e6:.1f} MB"

    def connected(self) -> None:
        """Request again: what was requested over the last connection is lost."""
        self._requested_to = 0

    def stop(self) -> None:
        """Stop; what was fetched so far stays."""
        self._wanted = None
        self._requested_to = 0
        self._failure = None
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()

    def _refuse(self, content: Content, chunk: Chunk) -> None:
        if chunk.size_bytes is not None:
            self._failure = f"the server's {content.name!r} has {chunk.size_bytes} bytes instead of {content.size_bytes}"
            return
        self._absent += 1
        if self._absent >= ABSENT_TRIES:
            self._failure = f"the server has no content {content.sha256[:12]} ({content.name!r})"

    def _go_on(self, content: Content) -> float:
        if self._failure is not None:
            failure = self._failure
            self.stop()
            raise UnavailableError(failure)
        if self._child is not None:
            return self._follow(self._child, content)
        if not self._is_tried_by_http or self._size(content) >= content.size_bytes:
            self._is_tried_by_http = True
            self._start_child(content)
            return CHILD_POLL_S
        return self._request(content)

    def _request(self, content: Content) -> float:
        size, now_s = self._size(content), self._clock_s()
        if self._requested_to == 0 or now_s - self._received_s > self._timeout_s:
            if self._requested_to:
                self._timeout_s = min(LONGEST_TIMEOUT_S, 2 * self._timeout_s)
            self._requested_to = size
            self._received_s = now_s
        while self._requested_to < min(content.size_bytes, size + OUTSTANDING * PIECE_BYTES):
            length = min(PIECE_BYTES, content.size_bytes - self._requested_to)
            want = Want(sha256=content.sha256, offset=self._requested_to, length=length)
            if not self._context.publish(self._context.topic("want"), encode_order(want), qos=0):
                # No connection: when it is back, all of it again.
                self._requested_to = 0
                break
            self._requested_to += length
        return min(self._timeout_s, TIMEOUT_S)

    def _start_child(self, content: Content) -> None:
        settings = self._context.settings
        files = {name: str(path) for name, path in files_of(settings.broker).items()} if settings.broker else {}
        task = FetchTask(
            content=content,
            part=str(self._kept.part(content)),
            final=str(self._kept.path(content)),
            url=settings.content_url,
            tls=(files.get("ca"), files.get("certificate"), files.get("key")),
        )
        self._child = self._begin_fetch(task)

    def _follow(self, child: subprocess.Popen[bytes], content: Content) -> float:
        status = child.poll()
        if status is None:
            return CHILD_POLL_S
        self._child = None
        if status == HERE:
            self._wanted = None
            return 0.0
        if status == INCOMPLETE:
            self._requested_to = 0
            return 0.0
        if status != WRONG_HASH:
            self.stop()
            raise TransientError(f"cannot bring {content.name!r} to its end (status {status}): see the agent's log")
        self._wrong += 1
        if self._wrong >= TRIES:
            self.stop()
            raise EdgemeterError(f"what the server sent for {content.name!r} has not the hash {content.sha256[:12]}, {TRIES} times")
        self._kept.part(content).touch(mode=0o600)
        self._requested_to = 0
        return 0.0

    def _size(self, content: Content) -> int:
        try:
            return self._kept.part(content).stat().st_size
        except OSError as error:
            self.stop()
            raise TransientError(f"the part of {content.name!r} that was here is gone ({error.strerror}): fetching begins again") from error
