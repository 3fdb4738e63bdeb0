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

from edgemeter.agent.delivery.attendant import Post
from edgemeter.agent.errors import TransientError, UnavailableError
from edgemeter.agent.jobs import contract, fetch_task
from edgemeter.agent.jobs.contract import Chunk, Content, Want
from edgemeter.agent.jobs.kept_content import KeptContent, WrongContentError

logger = logging.getLogger(__name__)

PIECE_BYTES = 128 << 10
OUTSTANDING = 4
# Some want or piece was lost (they are sent once): ask again for all that is missing.
SILENCE_S = 10.0
LONGEST_SILENCE_S = 120.0
CHILD_LOOK_S = 0.2
TRIES = 2
# A server that was just told of a content may not have it at once.
ABSENT_TRIES = 3


class Fetching:
    """Fetches one content at a time; called from one thread."""

    def __init__(self, post: Post, kept: KeptContent, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._post = post
        self._kept = kept
        self._clock_s = clock_s
        self._wanted: Content | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._is_tried_by_http = False
        self._asked_to = 0
        self._heard_s = 0.0
        self._silence_s = SILENCE_S
        self._wrong = 0
        self._absent = 0
        self._failure: str | None = None

    def bring(self, contents: Iterable[Content], in_use: Collection[str]) -> float | None:
        """Go on fetching; return None when all of `contents` are here, else after how long to look again.

        Raises:
            UnavailableError: there is no space, or the server has no such content.
            WrongContentError: what the server sent has another hash, twice.
        """
        missing = next((one for one in contents if not self._kept.is_here(one)), None)
        if missing is None:
            self.stop()
            return None
        if self._wanted != missing:
            self.stop()
            self._kept.make_room(missing, in_use)
            self._wanted = missing
            self._is_tried_by_http = self._post.settings.content_url is None
            self._wrong = self._absent = 0
        return self._go_on(missing)

    def received(self, payload: bytes) -> None:
        """Take one piece, if it is the next of what is fetched.

        Raises:
            ConfigError: it is no piece of content.
        """
        chunk, piece = contract.split_chunk(payload)
        wanted = self._wanted
        if wanted is None or chunk.sha256 != wanted.sha256 or self._child is not None:
            return
        if chunk.size_bytes != wanted.size_bytes:
            self._refuse(wanted, chunk)
        elif (
            piece
            and chunk.offset == self._size(wanted)
            and chunk.offset + len(piece) <= wanted.size_bytes
            and chunk.offset < self._asked_to
        ):
            with self._kept.part(wanted).open("ab") as file:
                file.write(piece)
            self._heard_s = self._clock_s()
            self._silence_s = SILENCE_S

    def told(self) -> str | None:
        """Return in words how far it is, None while nothing is fetched."""
        wanted = self._wanted
        if wanted is None:
            return None
        came = 0
        # A part is not there yet, or is whole by now.
        with suppress(OSError):
            came = self._kept.part(wanted).stat().st_size
        return f"fetches {wanted.name}, {came / 1e6:.1f} of {wanted.size_bytes / 1e6:.1f} MB"

    def connected(self) -> None:
        """Ask again: what was asked for over the last connection is lost."""
        self._asked_to = 0

    def stop(self) -> None:
        """Fetch nothing; what came so far stays."""
        self._wanted = None
        self._asked_to = 0
        self._failure = None
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()

    def _refuse(self, wanted: Content, chunk: Chunk) -> None:
        if chunk.size_bytes is not None:
            self._failure = f"the server's {wanted.name!r} has {chunk.size_bytes} bytes, the order says {wanted.size_bytes}"
            return
        self._absent += 1
        if self._absent >= ABSENT_TRIES:
            self._failure = f"the server has no content {wanted.sha256[:12]} ({wanted.name!r})"

    def _go_on(self, wanted: Content) -> float:
        if self._failure is not None:
            failure = self._failure
            self.stop()
            raise UnavailableError(failure)
        if self._child is not None:
            return self._follow(self._child, wanted)
        if not self._is_tried_by_http or self._size(wanted) >= wanted.size_bytes:
            self._is_tried_by_http = True
            self._start_child(wanted)
            return CHILD_LOOK_S
        return self._ask(wanted)

    def _ask(self, wanted: Content) -> float:
        size, now_s = self._size(wanted), self._clock_s()
        if self._asked_to == 0 or now_s - self._heard_s > self._silence_s:
            if self._asked_to:
                self._silence_s = min(LONGEST_SILENCE_S, 2 * self._silence_s)
            self._asked_to = size
            self._heard_s = now_s
        while self._asked_to < min(wanted.size_bytes, size + OUTSTANDING * PIECE_BYTES):
            length = min(PIECE_BYTES, wanted.size_bytes - self._asked_to)
            want = Want(sha256=wanted.sha256, offset=self._asked_to, length=length)
            if not self._post.publish(self._post.topic("want"), contract.encode(want), qos=0):
                # Nobody to ask: when the connection is back, all of it again.
                self._asked_to = 0
                break
            self._asked_to += length
        return min(self._silence_s, SILENCE_S)

    def _start_child(self, wanted: Content) -> None:
        settings = self._post.settings
        task = fetch_task.Task(
            content=wanted,
            part=str(self._kept.part(wanted)),
            final=str(self._kept.path(wanted)),
            url=settings.content_url,
            tls=(settings.broker_ca_file, settings.broker_certificate_file, settings.broker_key_file),
        )
        command = [sys.executable, "-m", "edgemeter.agent.jobs.fetch"]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, "PYTHONSAFEPATH": "1"})
        if self._child.stdin is not None:
            try:
                self._child.stdin.write(msgspec.json.encode(task))
                self._child.stdin.close()
            except BrokenPipeError:
                return

    def _follow(self, child: subprocess.Popen[bytes], wanted: Content) -> float:
        status = child.poll()
        if status is None:
            return CHILD_LOOK_S
        self._child = None
        if status == fetch_task.HERE:
            self._wanted = None
            return 0.0
        if status == fetch_task.INCOMPLETE:
            self._asked_to = 0
            return 0.0
        if status != fetch_task.WRONG_HASH:
            message = f"cannot bring {wanted.name!r} to its end (status {status}): see the agent's log"
            self.stop()
            raise TransientError(message)
        self._wrong += 1
        if self._wrong >= TRIES:
            message = f"what the server sent for {wanted.name!r} has not the hash {wanted.sha256[:12]}, {TRIES} times"
            self.stop()
            raise WrongContentError(message)
        self._kept.part(wanted).touch(mode=0o600)
        self._asked_to = 0
        return 0.0

    def _size(self, wanted: Content) -> int:
        try:
            return self._kept.part(wanted).stat().st_size
        except OSError as error:
            self.stop()
            message = f"the part of {wanted.name!r} that was here is gone ({error.strerror}): fetching begins again"
            raise TransientError(message) from error
