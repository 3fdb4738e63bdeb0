"""The releases of the agent on this board: the one before this, and those that went wrong."""

from pathlib import Path

from edgemeter.agent.update import told

FOLDER = "releases"


def read(prefix: Path, home: Path) -> tuple[str | None, tuple[str, ...]]:
    """Return the other release that is kept here, and the versions that did not work on this board."""
    bad = tuple(sorted(told.bad_versions(home)))
    return _other(prefix), bad


def _other(prefix: Path) -> str | None:
    folder = prefix.resolve().parent
    if folder.name != FOLDER:
        return None
    try:
        others = sorted((path for path in folder.iterdir() if path.is_dir() and path.name != prefix.resolve().name), key=_changed)
    except OSError:
        return None
    return others[-1].name if others else None


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
