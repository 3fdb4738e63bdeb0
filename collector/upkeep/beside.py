"""The files beside a ledger: those made from it, which may go at any time, and the one that people wrote."""

from pathlib import Path

# The digest of `compare`, the page's index, the index of trends.
DERIVED = (".digest", ".index", ".trend")
# Annotations and what became of alerts: nothing else has them.
WATCH = ".watch"
SQLITE = ("", "-wal", "-shm")


def derived(ledger: Path) -> list[Path]:
    """Return the files that are there and were made from the ledger."""
    return _there(ledger, DERIVED)


def watch(ledger: Path) -> Path:
    """Return where the annotations of a ledger lie."""
    return ledger.with_name(f"{ledger.name}{WATCH}")


def _there(ledger: Path, suffixes: tuple[str, ...]) -> list[Path]:
    every = [ledger.with_name(f"{ledger.name}{suffix}{part}") for suffix in suffixes for part in SQLITE]
    return [path for path in every if path.exists()]
