"""The place of a ledger, and how it is opened."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.postgres_address import PostgresAddress, is_postgres

if TYPE_CHECKING:
    from edgemeter.agent.base.sqlite_file import Access
    from edgemeter.agent.ledger.ledger import Ledger

LedgerPlace = Path | PostgresAddress


def ledger_place(text: str) -> LedgerPlace:
    """Return the place that `text` names: an address with `://`, else a file.

    Raises:
        ConfigError: it is an address, but not of PostgreSQL.
    """
    if is_postgres(text):
        return PostgresAddress(text)
    if "://" in text:
        raise ConfigError(
            f"{text.partition('://')[0]}:// is not a ledger: give a file, or "
            "postgresql://USER@HOST/DATABASE"
        )
    return Path(text).expanduser()


def shown_place(where: str) -> str:
    """Return the place of runs for display: an address without its password."""
    if not is_postgres(where):
        return where
    try:
        return str(PostgresAddress(where))
    except ConfigError:
        return "the given address"


def open_ledger(address: LedgerPlace, access: "Access" = "write") -> "Ledger":
    """Return the ledger at `address`.

    Access `write` creates an absent file, `read` changes nothing.

    Raises:
        ConfigError: there is no ledger, or one of a newer version.
        UnavailableError: it cannot be opened, its disk is full, or a library is missing.
    """
    if isinstance(address, Path):
        # A command that names a ledger may open none.
        from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger  # noqa: PLC0415

        return SqliteLedger(address, access)
    # Most ledgers are files.
    from edgemeter.collector.ledgers.postgres_ledger import PostgresLedger  # noqa: PLC0415

    return PostgresLedger(address, access)


def ledger_version(address: LedgerPlace) -> str:
    """Return a text that changes with every commit.

    It raises UnavailableError if the server does not answer.
    """
    if not isinstance(address, Path):
        from edgemeter.collector.ledgers.postgres_ledger import PostgresLedger  # noqa: PLC0415

        with PostgresLedger(address, "read") as ledger:
            return ledger.version()
    # Opening a file would change it.
    stamps = []
    for path in (address, address.with_name(f"{address.name}-wal")):
        with contextlib.suppress(OSError):
            stamps.append(f"{path.stat().st_mtime_ns} {path.stat().st_size}")
    return " ".join(stamps)
