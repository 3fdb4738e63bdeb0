"""The registry's file: one SQLite database that every fleet command and the service share."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgemeter.agent.delivery import sqlite_file
from edgemeter.agent.delivery.sqlite_file import Access, Format
from edgemeter.provisioning.campaigns import campaigns
from edgemeter.provisioning.health import golden, position, presence, standing
from edgemeter.provisioning.identity import certificates, claims, expulsions, requests
from edgemeter.provisioning.jobs import executions, jobs
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.rescue import attempts, measuring
from edgemeter.provisioning.update import releases

_ROOMS = (
    devices,
    jobs,
    executions,
    campaigns,
    claims,
    certificates,
    requests,
    expulsions,
    presence,
    standing,
    golden,
    position,
    attempts,
    measuring,
    releases,
)
# Each concept's tables stand beside the code that reads and writes them; a room adds its SCHEMA here.
_FORMAT = Format(
    what="fleet registry",
    application_id=0x45464C54,
    version=1,
    schema="".join(room.SCHEMA for room in _ROOMS),
    elsewhere="run `edgemeter fleet init`, or name the fleet's folder with --folder",
)


class Registry:
    """The registry at `path`; usable from any thread, one at a time. `close` once or more."""

    def __init__(self, path: Path, access: Access = "write") -> None:
        self.path = path
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = sqlite_file.connect(path, _FORMAT, access)
        self._connection.row_factory = sqlite3.Row

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Hold the write lock for the block; what it wrote is on the disk after it, or nothing when it raises.

        Raises:
            ConfigError: the file is damaged or none of ours.
            TransientError: another process holds it.
            UnavailableError: the disk is full.
        """
        with self._lock, sqlite_file.mapped(self.path, _FORMAT), sqlite_file.transaction(self._open):
            yield self._open

    def query(self, statement: str, *values: Any) -> list[sqlite3.Row]:
        """Return the rows of a SELECT.

        Raises:
            ConfigError: as `transaction`.
            TransientError: as `transaction`.
        """
        with self._lock, sqlite_file.mapped(self.path, _FORMAT):
            return self._open.execute(statement, values).fetchall()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    @property
    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            message = "the registry was closed"
            raise ValueError(message)
        return self._connection
