"""Runs on a board as long as the connection to it does: has a folder of its own, runs commands in it, and removes it at the end.

It is sent over the connection and run by the board's Python (3.10 or later) with the standard library only. Standard input brings
requests, a line of JSON each; an empty line is a sign of life. When it ends, or brings nothing for SILENCE_S, the command that runs is
ended (SIGINT, then SIGKILL) and the folder is removed. A folder of a process that was killed is locked by none: the next one removes it,
after the release in it has put back a board that it left changed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from pathlib import Path
from typing import IO, Any, NoReturn

SILENCE_S, INTERRUPT_S = 45.0, 20.0
PUT_BACK_S = 40.0
PREFIX, ATTEMPTS = "on-", 10
# In a folder that stays: the hash of the release that is installed in it.
MARK = "release.sha256"
OUTPUT, ERRORS = "output", "errors"
# What the board was set to before a command there changed it (agent/operating), and what puts it back.
RESTORE_RECORD = Path("/var/lib/edgemeter-restore.json")
_PUT_BACK = """
from edgemeter.agent.base import config
from edgemeter.agent.operating.changed_board import restore_leftover
print(restore_leftover(config.home()) or "the board was put back as it was before a run that was cut off")
"""
# Of the board's own: the run lock, which all that measure there share.
KEPT_VARIABLES = {"EDGEMETER_RUN_LOCK"}
DROPPED_VARIABLES = ("EDGEMETER_", "PIP_", "PYTHON", "XDG_")


class Lifeline:
    """The requests on standard input; `is_cut` is true once the connection is lost."""

    def __init__(self) -> None:
        self.is_cut = False
        self._unread = b""
        self._heard_s = time.monotonic()

    def request(self, wake: int | None = None) -> dict[str, Any] | None:
        """Return the next request; None once the connection is lost, or the descriptor `wake` can be read."""
        while not self.is_cut:
            line, newline, unread = self._unread.partition(b"\n")
            if newline:
                self._unread = unread
                if line.strip():
                    return dict(json.loads(line))
                continue
            remaining_s = self._heard_s + SILENCE_S - time.monotonic()
            ready = select.select([0, *([] if wake is None else [wake])], [], [], max(0.0, remaining_s))[0]
            if 0 in ready:
                block = os.read(0, 1 << 16)
                self._unread, self._heard_s, self.is_cut = self._unread + block, time.monotonic(), not block
            elif ready:
                return None
            else:
                self.is_cut = True
        return None


class BoardFolder:
    """The folder of this connection, below ~/.cache/edgemeter, and what is done in it; locked as long as this process or a command runs."""

    def __init__(self, home: Path, release: str) -> None:
        """Take a folder in which `release` (its hash) was left, else a new one; remove those that nobody uses and that were not left.

        `notes` are what else became of them, for people.
        """
        above = home / ".cache" / "edgemeter"
        self._above = above
        above.mkdir(parents=True, exist_ok=True)
        self.has_release, self.removed, self.notes, self._output = False, 0, list[str](), b""
        for path in sorted(above.glob(PREFIX + "*")):
            lock = _locked(path)
            if lock is None:
                continue
            mark = path / MARK
            self.notes += _put_back(path)
            if mark.is_file() and not self.has_release and mark.read_text().strip() == release:
                # Whatever ends this process now, the folder was not left on purpose.
                mark.unlink()
                self.path, self._lock, self.has_release = path, lock, True
                continue
            if not mark.is_file():
                _remove(path)
                self.removed += 1
            os.close(lock)
        if not self.has_release:
            self.path, self._lock = _new_folder(above)
        for name in ("home", "tmp"):
            _remove(self.path / name)
            (self.path / name).mkdir()

    def run(self, command: list[str], lifeline: Lifeline, *, shows: bool) -> dict[str, Any]:
        """Return the status of a command and the last line of its errors, which go to the connection if it `shows` them.

        Whatever is requested meanwhile interrupts it.
        """
        with _output_file(self.path) as output, (self.path / ERRORS).open("wb") as errors:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=None if shows else errors, cwd=self.path,
                env=_environment(self.path), start_new_session=True, pass_fds=(self._lock,),
            )  # fmt: skip
            ended, end = os.pipe()
            threading.Thread(target=_close_after, args=(process, end), daemon=True).start()
            while process.poll() is None:
                if lifeline.request(ended) is not None or lifeline.is_cut:
                    _end(process)
            os.close(ended)
            output.seek(0)
            self._output = output.read()
        lines = (self.path / ERRORS).read_text(errors="replace").strip().splitlines()
        return {"status": process.returncode, "error": lines[-1] if lines else ""}

    def fetch(self, name: str) -> bytes | None:
        """Return a file of the folder, or what the last command printed; None if it does not exist."""
        if name == OUTPUT:
            return self._output
        path = self.path / name
        return path.read_bytes() if path.is_file() else None

    def unpack(self, archive: str, folder: str) -> dict[str, Any]:
        """Take all files out of an archive."""
        _remove(self.path / folder)
        with zipfile.ZipFile(self.path / archive) as opened:
            opened.extractall(self.path / folder)
        return {}

    def remove(self, name: str) -> dict[str, Any]:
        """Remove a folder."""
        _remove(self.path / name)
        return {}

    def leave(self, release: str) -> None:
        """Let the folder stay, with the release that is installed in it; results, what was written beside them and earlier releases go."""
        self.notes += _put_back(self.path)
        for name in ("home", "tmp", "data", "release"):
            _remove(self.path / name)
        (self.path / MARK).write_text(release + "\n")
        for path in self._above.glob(PREFIX + "*"):
            if path != self.path and (lock := _locked(path)) is not None:
                _remove(path)
                os.close(lock)

    def end(self) -> None:
        """Remove the folder, once the board is put back, and those above it that are empty now."""
        self.notes += _put_back(self.path)
        _remove(self.path)
        for path in (self._above, self._above.parent):
            with contextlib.suppress(OSError):
                path.rmdir()


def _environment(folder: Path) -> dict[str, str]:
    inherited = {name: text for name, text in os.environ.items() if name in KEPT_VARIABLES or not name.startswith(DROPPED_VARIABLES)}
    home = str(folder / "home")
    return {**inherited, "HOME": home, "EDGEMETER_HOME": home, "TMPDIR": str(folder / "tmp"), "PYTHONUNBUFFERED": "1"}


def _output_file(folder: Path) -> IO[bytes]:
    """Return a file in memory, where results fit once the disk is full; on the disk where this Python offers none."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create(OUTPUT), "w+b")
    return tempfile.TemporaryFile(dir=folder)


def _put_back(folder: Path) -> list[str]:
    """Let the release in the folder put the board back, if that was left changed, and return what it said."""
    python = next(folder.glob("root/releases/*/bin/python"), None)
    if python is None or not RESTORE_RECORD.exists():
        return []
    try:
        ended = subprocess.run(
            [str(python), "-I", "-c", _PUT_BACK], env=_environment(folder), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=PUT_BACK_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return [f"the board's settings are changed, and cannot be put back: {error}"]
    return ((ended.stdout.strip() or ended.stderr.strip()).splitlines() or ["no message"])[-1:]


def _locked(path: Path) -> int | None:
    """Return the locked descriptor of a folder, None if another process has locked or removed it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.stat().st_ino == os.fstat(descriptor).st_ino:
            return descriptor
    os.close(descriptor)
    return None


def _new_folder(above: Path) -> tuple[Path, int]:
    for _attempt in range(ATTEMPTS):
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=above))
        # Another connection that begins may have removed it before it was locked.
        if (lock := _locked(path)) is not None:
            return path, lock
        _remove(path)
    raise OSError(0, "no folder can be locked", str(above))


def _remove(path: Path) -> None:
    # A copy in progress may add a file once more.
    for _attempt in range(ATTEMPTS):
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return
        time.sleep(0.1)


def _close_after(process: subprocess.Popen[bytes], descriptor: int) -> None:
    process.wait()
    os.close(descriptor)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command and all in its group."""
    for number in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(INTERRUPT_S)


def _reply(content: bytes = b"", **values: object) -> None:
    # Where the connection is lost, standard input ends too.
    with contextlib.suppress(OSError):
        sys.stdout.buffer.write(json.dumps({"edgemeter": 1, **values}).encode() + b"\n" + content)
        sys.stdout.buffer.flush()


def _terminate(*_: object) -> NoReturn:
    raise SystemExit(1)


def _serve(folder: BoardFolder, lifeline: Lifeline) -> bool:
    """Answer requests until the connection ends; return whether the folder is to stay."""
    while (request := lifeline.request()) is not None:
        match request.pop("do"):
            case "run":
                _reply(**folder.run(request["command"], lifeline, shows=request["shows"]))
            case "unpack":
                _reply(**folder.unpack(request["archive"], request["folder"]))
            case "remove":
                _reply(**folder.remove(request["name"]))
            case "fetch":
                fetched = folder.fetch(request["name"])
                content = fetched or b""
                _reply(content, size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest(), exists=fetched is not None)
            case "end":
                return bool(request["keeps"])
    return False


def main(home: Path, release: str) -> None:
    """Serve one connection; `release` is the hash of the release that is used."""
    # Handlers, since what is ignored stays ignored in the commands.
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGTERM, _terminate)
    os.umask(0o077)
    folder, stays = None, False
    try:
        folder = BoardFolder(home, release)
        _reply(folder=str(folder.path), has_release=folder.has_release, removed=folder.removed, notes=folder.notes)
        folder.notes = []
        stays = _serve(folder, Lifeline())
        if stays:
            folder.leave(release)
    except (OSError, zipfile.BadZipFile) as error:
        stays = False
        reason = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.filename else str(error)
        _reply(error=" ".join(reason.split()))
    finally:
        if folder is not None and not stays:
            folder.end()
    _reply(is_left=stays, notes=folder.notes if folder is not None else [])


if __name__ == "__main__":
    main(Path.home(), sys.argv[-1])
