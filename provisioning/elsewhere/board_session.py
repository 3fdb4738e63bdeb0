"""The folder on a board in which is measured, as this machine uses it: `board_program.py` at the other end of one ssh.

While commands run there, their standard error comes here line by line. The program ends with the connection, whatever ends that.
"""

import contextlib
import hashlib
import json
import os
import selectors
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from edgemeter.agent.base.errors import EdgemeterError, TransientError, UnavailableError
from edgemeter.provisioning.apply.ssh import LOST, SshConnection

PROGRAM = Path(__file__).with_name("board_program.py")
# The program comes first on its own standard input; what follows are requests.
BOOT = (
    "import os,sys;n=int(sys.argv[1]);p=[]\nwhile n:\n    p.append(os.read(0,n) or sys.exit(1));n-=len(p[-1])\n"
    "exec(compile(b''.join(p),'edgemeter','exec'))"
)
BEAT_S = 10.0
BEGIN_S, END_S, STOP_S = 60.0, 90.0, 60.0
# So long ssh may take to notice that the connection is gone.
NOTICE_S = 2.0


class BoardSession(contextlib.AbstractContextManager["BoardSession"]):
    """A folder on the board for as long as the block lasts, or longer if it `stays`; `report` gets the lines of what runs there.

    `has_release`: an earlier session left the folder, with this release in it. `interruption`: Ctrl-C or SIGTERM ended a command there.
    """

    def __init__(self, connection: SshConnection, python: str, release: str, report: Callable[[str], None]) -> None:
        self._connection, self._report = connection, report
        self.login = connection.target.login
        self._activity = "connecting"
        self.stays = self.is_left = False
        self.interruption: BaseException | None = None
        self.errors: list[str] = []
        self._last_line = "no message"
        self._unread = {"stdout": b"", "stderr": b""}
        self._is_lost = False
        self._sending, self._stopped = threading.Lock(), threading.Event()
        program = PROGRAM.read_bytes()
        self._process = connection.start([python, "-I", "-B", "-c", BOOT, str(len(program)), release])
        self._selector = selectors.DefaultSelector()
        for name in self._unread:
            pipe = getattr(self._process, name)
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, name)
        self._send(program)
        threading.Thread(target=self._beat, name="edgemeter-alive", daemon=True).start()
        try:
            begun = self._reply(BEGIN_S)
        except BaseException:
            self._close()
            raise
        for text in begun["notes"]:
            report(text)
        self.folder, self.has_release, self.removed = str(begun["folder"]), bool(begun["has_release"]), int(begun["removed"])

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            keeps = self.stays and kind is None
            with contextlib.suppress(EdgemeterError):
                ended = self._ask("ending", END_S, do="end", keeps=keeps)
                self.is_left = bool(ended.get("is_left"))
                for text in ended.get("notes", ()):
                    self._report(text)
        finally:
            self._close()

    def run(self, activity: str, command: list[str], *, shows: bool) -> tuple[int, str]:
        """Return the status of a command there, and the last line of its errors, if it does not show them.

        Ctrl-C and SIGTERM end the command there, whose status is returned; the next command or a second Ctrl-C raises it.

        Raises:
            TransientError: the connection is lost.
        """
        if self.interruption is not None:
            raise self.interruption
        self._activity = activity
        self.errors.clear()
        try:
            self._request(do="run", command=command, shows=shows)
            ended = self._reply()
        except (KeyboardInterrupt, SystemExit) as interruption:
            self.interruption = interruption
            self._request(do="stop")
            ended = self._reply(STOP_S)
        return int(ended["status"]), str(ended["error"])

    @contextlib.contextmanager
    def during(self, activity: str) -> Iterator[None]:
        """Within the block, which uses the same connection, an error that comes of its loss is one that names the activity."""
        self._activity = activity
        try:
            yield
        except EdgemeterError as error:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(NOTICE_S)
                raise self._lost() from error
            raise

    def unpack(self, archive: str, folder: str) -> None:
        """Unpack an archive in the folder."""
        self._ask("unpacking a data set", None, do="unpack", archive=archive, folder=folder)

    def remove(self, name: str) -> None:
        """Remove a folder in the folder."""
        self._ask("installing the release", None, do="remove", name=name)

    def fetch(self, name: str) -> bytes | None:
        """Return a file of the folder, compared with its hash there; None if it does not exist."""
        header = self._ask("fetching the results", None, do="fetch", name=name)
        if not header["exists"]:
            return None
        content = self._content(int(header["size_bytes"]))
        if hashlib.sha256(content).hexdigest() != header["sha256"]:
            raise TransientError(f"{self.login}: {name} arrived corrupted: run it again")
        return content

    def _ask(self, activity: str, timeout_s: float | None, **request: object) -> dict[str, Any]:
        self._activity = activity
        self._request(**request)
        return self._reply(timeout_s)

    def _request(self, **request: object) -> None:
        self._send(json.dumps(request).encode() + b"\n")

    def _send(self, content: bytes) -> None:
        # A lost connection shows where the reply is read.
        with self._sending, contextlib.suppress(OSError, ValueError):
            if self._process.stdin is not None:
                self._process.stdin.write(content)
                self._process.stdin.flush()

    def _beat(self) -> None:
        while not self._stopped.wait(BEAT_S):
            self._send(b"\n")

    def _reply(self, timeout_s: float | None = None) -> dict[str, Any]:
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            line, newline, unread = self._unread["stdout"].partition(b"\n")
            if not newline:
                self._read(until_s)
                continue
            self._unread["stdout"] = unread
            # A login shell may have printed something of its own before.
            if line.startswith(b'{"edgemeter": '):
                reply: dict[str, Any] = json.loads(line)
                if "error" in reply and "status" not in reply:
                    raise UnavailableError(f"{self.login}: {reply['error']}; check ~/.cache/edgemeter there, and the room on its disk")
                return reply

    def _content(self, size_bytes: int) -> bytes:
        while len(self._unread["stdout"]) < size_bytes:
            self._read(None)
        content, self._unread["stdout"] = self._unread["stdout"][:size_bytes], self._unread["stdout"][size_bytes:]
        return content

    def _read(self, until_s: float | None) -> None:
        """Read what has come, report the lines of errors; raise TransientError if the connection is lost, or nothing came in time."""
        if self._is_lost:
            raise self._lost()
        ready = self._selector.select(None if until_s is None else max(0.0, until_s - time.monotonic()))
        if not ready and until_s is not None and time.monotonic() >= until_s:
            raise TransientError(f"{self.login} did not reply while {self._activity}: check the board, and run it again")
        for key, _ in ready:
            block = os.read(key.fd, 1 << 16)
            self._unread[key.data] += block
            if key.data == "stderr":
                self._show(is_last=not block)
            if not block:
                self._selector.unregister(key.fileobj)
                self._is_lost = self._is_lost or key.data == "stdout"
        if self._is_lost:
            raise self._lost()

    def _show(self, *, is_last: bool) -> None:
        *lines, unread = self._unread["stderr"].split(b"\n")
        self._unread["stderr"] = b"" if is_last else unread
        for line in [*lines, unread] if is_last else lines:
            # A terminal shows it: nothing of another machine moves its cursor.
            text = "".join(char for char in line.decode(errors="replace") if char.isprintable()).strip()
            if text.startswith("edgemeter: "):
                self.errors.append(text.removeprefix("edgemeter: "))
            elif text:
                self._last_line = text
                self._report(text)

    def _lost(self) -> EdgemeterError:
        """Return the error for the end of the connection; nobody has to clean up by hand."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        folder = getattr(self, "folder", None)
        if folder is None and self._process.returncode != LOST:
            return UnavailableError(
                f"{self.login}: its Python cannot run our program ({self._last_line}); "
                f"try `ssh {self._connection.target.address} python3 --version`"
            )
        consequence = f"what runs there ends, and {folder} is removed now or by the next connection" if folder else "nothing ran"
        return TransientError(f"{self.login}: the connection was lost while {self._activity}, so {consequence}; run it again")

    def _close(self) -> None:
        self._stopped.set()
        self._selector.close()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            with self._sending, contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        # The folder is removed before ssh ends.
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
