"""Two PostgreSQL servers of a chaos run, each meant to run.

They are the primary, and the standby without which it commits nothing.
"""

import contextlib
import shutil
import signal
import threading
import time
from pathlib import Path

import psutil

from tests.fixtures.postgresql import OWNER, Postgresql
from tests.fixtures.servers import LOOPBACK
from tools.chaos.commit_proxy import CommitProxy
from tools.chaos.disk import Disk
from tools.chaos.freezing import frozen

DATABASE = "edgemeter"
NAMES = ("node_a", "node_b")
LOOK_S = 0.2
UP_WITHIN_S = 120.0
WAL_MB = 2048
# Segments of 1 MB that are not reused, so that a full disk is met at once. A standby that was away
# for a while still finds what it missed.
SETTINGS = {
    "wal_recycle": "off",
    "min_wal_size": "2MB",
    "max_wal_size": "256MB",
    "wal_keep_size": "512MB",
    "wal_receiver_timeout": "10s",
    "wal_sender_timeout": "10s",
    "tcp_keepalives_idle": "5",
    "client_connection_check_interval": "2s",
}


class Node:
    """One server with a disk for data, another for WAL, and a proxy before it.

    It is started again whenever it ends while `is_wanted`.
    """

    def __init__(
        self, folder: Path, name: str, data_mb: int, *, is_synchronous: bool = True
    ) -> None:
        self.name = name
        self.starts = 0
        self.is_wanted = False
        folder.mkdir(mode=0o755)
        self.data_disk, self.wal_disk = Disk(folder / "disk", data_mb), Disk(folder / "wal", WAL_MB)
        standbys = f"ANY 1 ({', '.join(NAMES)})" if is_synchronous else ""
        self.server = Postgresql(
            self.data_disk.folder, cluster_name=name, synchronous_standby_names=standbys, **SETTINGS
        )
        self.server.own(self.wal_disk.folder)
        self.proxy = CommitProxy(self.server.port)
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def wal(self) -> str:
        return str(self.wal_disk.folder / "wal")

    def create(self) -> None:
        self.server.create(f"--waldir={self.wal}", "--wal-segsize=1")
        self.start()
        self.server.await_up()
        # No standby is there yet, and CREATE DATABASE would wait for one.
        alone = ["-c", "SET synchronous_commit = local", "-c", f"CREATE DATABASE {DATABASE}"]
        self.server.run("psql", "-X", "-q", "-d", self.server.address(), *alone)

    def follow(self, primary: "Node") -> None:
        """Become the standby of `primary`, anew from its copy."""
        for folder in (self.server.data, Path(self.wal)):
            shutil.rmtree(folder, ignore_errors=True)
        source = f"host={LOOPBACK} port={primary.server.port} user={OWNER}"
        copy = [
            "-D",
            str(self.server.data),
            "-R",
            "-X",
            "stream",
            "-c",
            "fast",
            "--no-sync",
            f"--waldir={self.wal}",
        ]
        self.server.run("pg_basebackup", "-d", source, *copy)
        self.start()

    def start(self) -> None:
        """Start it, and keep it running from now on."""
        with self._lock:
            self.is_wanted = True
            self._start()
        if not self._thread.is_alive():
            self._thread.start()

    def kill(self, down_s: float = 0.0) -> None:
        """End it and its back-ends at once and keep it down so long."""
        with self._lock:
            self.server.kill()
            time.sleep(down_s)

    def end(self) -> None:
        with self._lock:
            self.is_wanted = False
            self.server.kill()

    def pid(self) -> int | None:
        """Return the id of its first process, the parent of the back-ends.

        It is None before the first start.
        """
        return self.server.process.pid if self.server.process is not None else None

    def strike_backend(self, number: signal.Signals, turn: int) -> None:
        """Send a signal to a back-end.

        SIGTERM ends its connection, SIGKILL makes the server recover.
        """
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            backends = self.server.backends()
            if backends:
                psutil.Process(backends[turn % len(backends)]).send_signal(number)

    def stop(self) -> None:
        """End everything and give the disks back."""
        self._stopping.set()
        self.end()
        if self._thread.is_alive():
            self._thread.join()
        for disk in (self.data_disk, self.wal_disk):
            disk.remove()

    def _start(self) -> None:
        (self.server.data / "postmaster.pid").unlink(missing_ok=True)
        self.server.start(wait=False)
        self.starts += 1

    def _watch(self) -> None:
        while not self._stopping.wait(LOOK_S):
            with self._lock:
                if self.is_wanted and (
                    self.server.process is None or self.server.process.poll() is not None
                ):
                    # Back-ends that are left hold its shared memory, which the next one refuses:
                    # then it is tried again.
                    self._start()


class Pair:
    """A primary and its standby.

    `failover` makes the standby the primary and the other one its standby.
    """

    def __init__(self, folder: Path, data_mb: int, *, is_synchronous: bool = True) -> None:
        self.primary, self.standby = (
            Node(folder / name, name, data_mb, is_synchronous=is_synchronous) for name in NAMES
        )
        self.nodes = (self.primary, self.standby)
        self.failovers = 0
        self._lock = threading.Lock()

    @property
    def address(self) -> str:
        """The address of whichever is the primary, through the proxies."""
        hosts = ",".join(f"{LOOPBACK}:{node.proxy.port}" for node in self.nodes)
        return f"postgresql://{OWNER}@{hosts}/{DATABASE}?target_session_attrs=read-write"

    def start(self) -> None:
        for node in self.nodes:
            node.proxy.start()
        self.primary.create()
        self.standby.follow(self.primary)
        self.standby.server.await_up()

    def failover(self) -> bool:
        """Lose the primary; return whether the standby took over.

        It does so only if it follows and so has every commit.
        """
        with self._lock:
            if not self._is_followed():
                return False
            old, new = self.primary, self.standby
            old.end()
            old.proxy.cut()
            _promote(new)
            self._replace(old, new)
            return True

    def hang(self, frozen_s: float, awake_s: float) -> bool:
        """Let the primary stop without ending, and the standby take over; return whether it did.

        The connections of the old one stay open. It goes on after `frozen_s`, takes connections as
        a primary that nobody follows, and is ended after `awake_s`.
        """
        with self._lock:
            if not self._is_followed():
                return False
            old, new = self.primary, self.standby
            with frozen(old.pid()):
                _promote(new)
                time.sleep(frozen_s)
            time.sleep(awake_s)
            old.end()
            old.proxy.cut()
            self._replace(old, new)
            return True

    def lose_commits(self) -> None:
        """Lose the primary for good while its standby was down.

        The standby takes over with what it had before, in spite of that.
        """
        self.primary.end()
        self.primary.proxy.cut()
        self.standby.start()
        self.standby.server.await_up()
        self.standby.server.promote()
        self.primary, self.standby = self.standby, self.primary
        self.failovers += 1

    def settle(self) -> None:
        """Return when the primary takes connections and its standby follows.

        Raises:
            TimeoutError: it does not within UP_WITHIN_S.
        """
        deadline = time.monotonic() + UP_WITHIN_S
        while not self._is_followed():
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"no standby follows {self.primary.name}: "
                    f"{(self.standby.server.folder / 'log').read_text()[-2000:]}"
                )
            time.sleep(0.5)

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()
            node.proxy.stop()

    def _replace(self, old: Node, new: Node) -> None:
        self.primary, self.standby = new, old
        self.failovers += 1
        self._rebuild()

    def _rebuild(self) -> None:
        deadline = time.monotonic() + UP_WITHIN_S
        while True:
            try:
                self.standby.follow(self.primary)
            except RuntimeError:
                # Another fault struck the new primary meanwhile.
                if time.monotonic() > deadline:
                    raise
                time.sleep(1)
            else:
                return

    def _is_followed(self) -> bool:
        # A copy that is being made streams, too, under another name.
        query = (
            "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND "
            "application_name LIKE 'node%'"
        )
        try:
            return self.primary.server.sql(query) == "1"
        except RuntimeError:
            return False


def _promote(node: Node) -> None:
    """Make a standby the primary, again and again.

    Another fault may kill it meanwhile, which ends its promotion.
    """
    deadline = time.monotonic() + UP_WITHIN_S
    while True:
        try:
            node.server.await_up()
            if node.server.sql("SELECT pg_is_in_recovery()") == "t":
                node.server.promote()
        except RuntimeError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
        else:
            return
