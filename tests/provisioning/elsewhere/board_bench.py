"""A board behind a real sshd, with files of its owner in its home folder.

Its state can be read as others see it.
"""

import contextlib
import os
import subprocess
import time
from pathlib import Path

from edgemeter.provisioning.apply.board import Board
from tests.fixtures.ssh_server import sshd

IS_ROOT = os.geteuid() == 0


def listing(folder):
    """Return every path below a folder, with what a file holds."""
    return {
        path.relative_to(folder): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def until(is_so, patience_s=60.0):
    end_s = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < end_s, "it never came so far"
        time.sleep(0.05)


class BoardBench:
    """A board with files of its owner in its home."""

    def __init__(self, folder):
        self.server = sshd(folder, has_own_lock=IS_ROOT)
        self.home = self.server.home
        (self.home / ".profile").write_text("# mine\n")
        (self.home / "photographs").mkdir()
        self.before = listing(self.home)
        self.target = self.server.target()

    def close(self):
        self.server.server.kill()

    @property
    def cache(self):
        """The folder of the board in which releases stay."""
        return self.home / ".cache/edgemeter"

    def has_only_the_release(self):
        """Return whether only a release was added to the home, and no measurement runs there."""
        with contextlib.suppress(FileNotFoundError):
            # While a folder is being removed it is not as before.
            present = {
                path: content
                for path, content in listing(self.home).items()
                if not path.is_relative_to(".cache")
            }
            is_clean = (
                not list(self.cache.glob("run-*")) and not (self.cache / "release.tar").exists()
            )
            return present == self.before and is_clean and not self.processes()
        return False

    def processes(self):
        """Return the processes there that use the release, by their command lines."""
        lines = {}
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (
                    (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
                if words.startswith(str(self.cache)):
                    lines[int(path.name)] = words
        return lines

    @contextlib.contextmanager
    def run_lock_held(self):
        """Yield a function that ends another measurement, which is in progress on the board.

        It holds the run lock of the board, where the board has one of its own.
        """
        if not IS_ROOT:
            yield lambda: None
            return
        script = "exec 9>/run/lock/edgemeter-run.lock; flock 9; echo locked; cat"
        with (
            Board(self.target, self.server.options()) as board,
            board.start(["sh", "-c", script], subprocess.PIPE) as process,
        ):
            assert process.stdout is not None
            assert process.stdin is not None
            assert process.stdout.readline() == b"locked\n"
            yield process.stdin.close

    def lose_connections(self):
        parents = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        served = [
            pid for pid, parent in parents.items() if parent == self.server.server.process.pid
        ]
        for pid in served:
            os.kill(pid, 9)
        return served
