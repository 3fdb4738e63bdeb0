"""The name of a collector at the broker, which the broker keeps its session for."""

import itertools
import secrets
from contextlib import suppress
from pathlib import Path

from edgemeter.agent.base import config, durable_file
from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.file_lock import DeviceLock
from edgemeter.agent.ledger.ledger import Ledger
from edgemeter.collector.ledgers.place import LedgerPlace


def hold_name(ledger_place: LedgerPlace, ledger: Ledger) -> tuple[str, DeviceLock]:
    """Return a name for a collector of a ledger, and the lock that holds it.

    A file belongs to one collector, which has the file's identity. Of a shared ledger each collector of this machine has a name of its
    own, in $EDGEMETER_HOME/cache.

    Raises:
        UnavailableError: another collector uses the file, or the name cannot be written.
    """
    if isinstance(ledger_place, Path):
        lock = DeviceLock(ledger_place, "collector")
        if not lock.take():
            raise UnavailableError(
                f"another collector uses the ledger {str(ledger_place)!r}: stop it, or give this one its own ledger (--ledger)"
            )
        return ledger.identity(), lock
    folder = config.home() / "cache"
    # Who opens the file says what is wrong with the folder.
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    paths = (folder / f"{ledger_place.name}.collector-{number}" for number in itertools.count(1))
    path, lock = next((path, lock) for path in paths if (lock := DeviceLock(path, "collector")).take())
    try:
        if not path.exists():
            durable_file.write(path, secrets.token_hex(8).encode())
        return path.read_text(encoding="ascii").strip(), lock
    except (OSError, UnicodeDecodeError) as error:
        raise UnavailableError(f"cannot keep the name of this collector in {str(path)!r} ({error}): check the folder") from error
