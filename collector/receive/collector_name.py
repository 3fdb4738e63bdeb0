"""The name of a collector at the broker, which the broker keeps its session for."""

import itertools
import secrets
from pathlib import Path

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.file_lock import DeviceLock, FileLock
from edgemeter.agent.ledger.ledger import Ledger
from edgemeter.collector.ledgers.place import LedgerPlace, path_beside


class CollectorName:
    """The name `id` of a collector of the ledger at `ledger_place` at the broker, held from now until `release`, once or more.

    A file belongs to one collector, which has the file's identity. Of a shared ledger each collector of this machine has a name of its
    own, in $EDGEMETER_HOME/cache.

    Raises:
        UnavailableError: another collector uses the file, or the name cannot be written.
    """

    def __init__(self, ledger_place: LedgerPlace, ledger: Ledger) -> None:
        self._lock: FileLock
        if isinstance(ledger_place, Path):
            self._lock = DeviceLock(ledger_place, "collector")
            self.id = ledger.identity()
            if not self._lock.take():
                raise UnavailableError(
                    f"another collector uses the ledger {str(ledger_place)!r}: stop it, or give this one its own ledger (--ledger)"
                )
            return
        for number in itertools.count(1):
            path = path_beside(ledger_place, f".collector-{number}")
            self._lock = DeviceLock(path, "collector")
            if self._lock.take():
                self.id = _kept_name(path)
                return

    def release(self) -> None:
        """Let another collector have the name; may be called twice."""
        self._lock.release()


def _kept_name(path: Path) -> str:
    try:
        if path.exists():
            return path.read_text(encoding="ascii").strip()
        name = secrets.token_hex(8)
        durable_file.write(path, name.encode())
    except (OSError, UnicodeDecodeError) as error:
        raise UnavailableError(f"cannot keep the name of this collector in {str(path)!r} ({error}): check the folder") from error
    return name
