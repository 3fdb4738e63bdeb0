"""The PostgreSQL server of a chaos run: meant to run, on disks of its own, with a proxy before it."""

import contextlib
import signal
import threading
import time
from pathlib import Path

import psutil

from tests.chaos.commit_proxy import CommitProxy
from tests.chaos.disk import Disk
from tests.fixtures.postgresql import OWNER, Postgresql
from tests.fixtures.servers import LOOPBACK

DATABASE = "edgemeter"
LOOK_S = 0.2
WAL_MB = 2048
# Segments of 1 MB that are not reused, so that a full disk is met at once.
SETTINGS = {
    "wal_recycle": "off",
    "min_wal_size": "2MB",
    "max_wal_size": "256MB",
    "tcp_keepalives_idle": "5",
    "client_connection_check_interval": "2s",
}


class Database:
    """A server with a disk for data, another for WAL, and a proxy before it; started again whenever it ends."""

    def __init__(self, folder: Path, data_mb: int) -> None:
        folder.mkdir(mode=0o755)
        self.data_disk, self.wal_disk = Disk(folder / "disk", data_mb), Disk(folder / "wal", WAL_MB)
        self.server = Postgresql(self.data_disk.folder, **SETTINGS)
        self.server.own(self.wal_disk.folder)
        self.proxy = CommitProxy(self.server.port)
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def address(self) -> str:
        """The address of the database through the proxy."""
        return f"postgresql://{OWNER}@{LOOPBACK}:{self.proxy.port}/{DATABASE}"

    def start(self) -> None:
        """Create the database and keep its server running from now on."""
        self.proxy.start()
        self.server.create(f"--waldir={self.wal_disk.folder / 'wal'}", "--wal-segsize=1")
        self.server.start()
        self.server.sql(f"CREATE DATABASE {DATABASE}")
        self._thread.start()

    def kill(self, down_s: float = 0.0) -> None:
        """End it and its back-ends at once and keep it down so long."""
        with self._lock:
            self.server.kill()
            time.sleep(down_s)

    def pid(self) -> int | None:
        """Return the id of its first process, the parent of the back-ends; None while it is down."""
        return self.server.process.pid if self.server.process is not None else None

    def strike_backend(self, number: signal.Signals, turn: int) -> None:
        """Send a signal to a back-end: SIGTERM ends its connection, SIGKILL makes the server recover."""
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            backends = self.server.backends()
            if backends:
                psutil.Process(backends[turn % len(backends)]).send_signal(number)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self.server.kill()
        self.proxy.stop()
        for disk in (self.data_disk, self.wal_disk):
            disk.remove()

    def _watch(self) -> None:
        while not self._stopping.wait(LOOK_S):
            with self._lock:
                if self.server.process is None or self.server.process.poll() is not None:
                    # Back-ends that are left hold its shared memory, which the next one refuses: then it is tried again.
                    (self.server.data / "postmaster.pid").unlink(missing_ok=True)
                    self.server.start(wait=False)
