"""This machine's own runs, of which each is stored in its ledger when it ends.

So no measurement is lost with the terminal.

The ledger is the one in $EDGEMETER_HOME, which `report`, `trend` and `compare` read by default; a
collector on this machine uses the same file. A run that is also delivered has the numbers of the
outbox here too, so that a collector's ledger has it once.
"""

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from edgemeter.agent.base import config, number_text
from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.ledger.ledger import default_path
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger

_SESSION_BITS = 53
# The least that fits a short run with its samples.
_LEAST_FREE_BYTES = 256 << 10
_ID_LETTERS = 8
_NAMED = 2


class OwnRuns:
    """Stores runs in the ledger at `path`, in at most `limit_bytes`.

    No failure ends a measurement: `finish` tries again to store a run, and `error` is the reason if
    it cannot.
    """

    def __init__(self, path: Path, limit_bytes: int) -> None:
        self.path = path
        self.error: EdgemeterError | None = None
        self._limit_bytes = limit_bytes
        self._session = secrets.randbits(_SESSION_BITS) or 1
        self._seq = 0
        self._waiting: list[RunRecord] = []
        self._saved: list[str] = []

    def check(self) -> None:
        """Create the ledger if needed, and check that it can be written and has space.

        Raises:
            EdgemeterError: it cannot be written or has no space.
        """
        SqliteLedger(self.path).close()
        if shutil.disk_usage(self.path.parent).free < _LEAST_FREE_BYTES:
            raise UnavailableError(
                f"the disk of {str(self.path.parent)!r} is full: free some space, or set another "
                "EDGEMETER_HOME"
            )
        for path in (self.path, self.path.parent):
            if not os.access(path, os.W_OK):
                raise UnavailableError(
                    f"cannot write to {str(path)!r}: set EDGEMETER_HOME to a folder that "
                    "can be written"
                )

    def keep(self, record: RunRecord) -> RunRecord:
        """Return the record with its numbers in the ledger, stored if possible."""
        if record.session is None or record.seq is None:
            self._seq += 1
            record = msgspec.structs.replace(record, session=self._session, seq=self._seq)
        self._waiting.append(record)
        if self.error is None:
            self._store_waiting()
        return record

    def finish(self) -> str | None:
        """Store the remaining runs; return the stored ones in words, None if there are none."""
        if self._waiting:
            self.error = None
            self._store_waiting()
        if self._waiting and self.error is not None:
            self.error = UnavailableError(
                f"not saved: {number_text.count(len(self._waiting), 'run')}: {self.error}"
            )
        if not self._saved:
            return None
        named = [name[:_ID_LETTERS] for name in self._saved]
        remaining = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        return (
            f"saved as {', '.join(named[:_NAMED])}{remaining} in {self.path}; "
            "see `edgemeter report`"
        )

    def _store_waiting(self) -> None:
        try:
            with SqliteLedger(self.path) as ledger:
                while self._waiting:
                    ledger.keep_own(self._waiting[0], self._limit_bytes)
                    self._saved.append(self._waiting.pop(0).id)
        except EdgemeterError as error:
            self.error = error


@contextmanager
def saving(
    settings: config.Config, report: Callable[[str], None], *, is_wanted: bool = True
) -> Iterator[Callable[[RunRecord], RunRecord]]:
    """Yield a function that stores a run in the ledger in $EDGEMETER_HOME.

    It returns the run numbered. Nothing is stored unless `is_wanted`.

    The stored runs are reported at the end, however the block ends: measure and print within it.

    Raises:
        ConfigError: at the beginning, the ledger cannot be written.
        EdgemeterError: at the end, a run could not be stored.
    """
    if not is_wanted:
        yield lambda record: record
        return
    own_runs = open_own_runs(settings)
    try:
        yield own_runs.keep
    finally:
        if saved := own_runs.finish():
            report(saved)
    if own_runs.error is not None:
        raise own_runs.error


def open_own_runs(settings: config.Config) -> OwnRuns:
    """Return the store of this machine's runs in $EDGEMETER_HOME.

    Raises:
        ConfigError: it cannot be written.
    """
    own_runs = OwnRuns(default_path(), settings.ledger_limit_mb << 20)
    try:
        own_runs.check()
    except EdgemeterError as error:
        raise ConfigError(
            f"the results cannot be saved: {error}; or store none (--no-save, in Python save=False)"
        ) from error
    return own_runs
