"""What a folder holds, to be compared before and after a rehearsal."""

from pathlib import Path


def read(folder: Path) -> dict[str, bytes | None]:
    """Return every file below `folder` with its bytes, and every folder with None; without SQLite's `-shm`, the readers' own marks."""
    paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if not path.name.endswith("-shm")}
    return {name: path.read_bytes() if path.is_file() else None for name, path in paths.items()}
