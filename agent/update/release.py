"""The releases on this board: where the running one stands, what came of the last update, and which versions failed here."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from edgemeter.agent.base import durable_file

RELEASES_FOLDER = "releases"


@dataclass(frozen=True, slots=True)
class InstalledRelease:
    """A release: its version, and the folder in which all of them lie."""

    root: Path
    version: str

    @property
    def public_key(self) -> Path:
        """The key by which releases are checked, PEM."""
        return self.root / "release.pub"

    @property
    def lock(self) -> Path:
        """The file that the supervisor keeps locked while it is there."""
        return self.root / "supervisor.lock"


def find_release(prefix: Path) -> InstalledRelease | None:
    """Return the release whose virtual environment is at `prefix`, None for one that was made in another way."""
    path = prefix.resolve()
    return InstalledRelease(path.parent.parent, path.name) if path.parent.name == RELEASES_FOLDER else None


# Read when the agent starts: later the link by which it was started may point to another release.
RUNNING_RELEASE = find_release(Path(sys.prefix))

UPDATE_FOLDER = "update"


class UpdateOutcome(msgspec.Struct, frozen=True, kw_only=True, rename={"before": "from"}):
    """The outcome of an update; without a job where the supervisor rolled back by itself."""

    job: str | None
    attempt: int | None
    version: str | None
    before: str | None
    state: Literal["done", "failed"]
    reason: str
    ended_ns: int


class InterruptedUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """How often the installation of an update was interrupted, by a power cut or a kill; the supervisor resumes it."""

    job: str
    attempt: int
    times: int


class FailedRelease(msgspec.Struct, frozen=True, kw_only=True):
    """A version that failed here, and whether it is not to be tried again."""

    attempts: int
    is_bad: bool
    reason: str
    ended_ns: int


def last_outcome(home: Path) -> UpdateOutcome | None:
    """Return what came of the last update, None where there was none."""
    return durable_file.read_if_any(home / UPDATE_FOLDER / "outcome.json", UpdateOutcome)


def interrupted_update(home: Path) -> InterruptedUpdate | None:
    """Return the update whose installation was interrupted and is resumed, None where there is none."""
    return durable_file.read_if_any(home / UPDATE_FOLDER / "interrupted.json", InterruptedUpdate)


def bad_versions(home: Path) -> dict[str, str]:
    """Return the versions that are not to be tried again, and why."""
    versions = durable_file.read_if_any(home / UPDATE_FOLDER / "bad.json", dict[str, FailedRelease])
    return {version: failed.reason for version, failed in (versions or {}).items() if failed.is_bad}
