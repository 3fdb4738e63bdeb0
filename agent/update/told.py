"""What the supervisor has told of updates, in the folder `update`: what came of the last one, and which versions failed here."""

from pathlib import Path
from typing import Literal, TypeVar

import msgspec

FOLDER = "update"
_Told = TypeVar("_Told")


class Outcome(msgspec.Struct, frozen=True, kw_only=True, rename={"before": "from"}):
    """What came of an update; without a job where the supervisor went back by itself."""

    job: str | None
    attempt: int | None
    version: str | None
    before: str | None
    state: Literal["done", "failed"]
    reason: str
    ended_ns: int


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """A version that failed here, and whether it is not to be tried again."""

    attempts: int
    is_bad: bool
    reason: str
    ended_ns: int


def outcome(home: Path) -> Outcome | None:
    """Return what came of the last update, None where there was none."""
    return _read(home / FOLDER / "outcome.json", Outcome)


def bad_versions(home: Path) -> dict[str, str]:
    """Return the versions that are not to be tried again, and why."""
    found = _read(home / FOLDER / "bad.json", dict[str, Failed])
    return {version: failed.reason for version, failed in (found or {}).items() if failed.is_bad}


def _read(path: Path, kind: type[_Told]) -> _Told | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # Not there yet, or written by a supervisor of another time.
        return None
