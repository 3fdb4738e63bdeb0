"""The releases of the agent on this board: the one before this, and those that went wrong."""

from pathlib import Path

FOLDER = "releases"


def read(prefix: Path, home: Path, own: str) -> tuple[str | None, tuple[str, ...]]:  # noqa: ARG001 - until the updater says where
    """Return the other release that is kept here, and the versions that were found to be bad; nothing outside a fleet's installation."""
    folder = prefix.resolve().parent
    if folder.name != FOLDER:
        return None, ()
    try:
        others = sorted((path for path in folder.iterdir() if path.is_dir() and path.name != prefix.resolve().name), key=_changed)
    except OSError:
        return None, ()
    return (others[-1].name if others else None), ()


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
