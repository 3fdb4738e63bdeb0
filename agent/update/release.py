"""The releases on this board.

They are the running one, that of the last update with its outcome, and the versions that failed
here.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from edgemeter.agent.base import durable_file

RELEASES_FOLDER = "releases"


@dataclass(frozen=True, slots=True)
class InstalledRelease:
    """A release: its version, and the folder of all releases."""

    root: Path
    version: str

    @property
    def lock(self) -> Path:
        """The file that the supervisor keeps locked while it runs."""
        return self.root / "supervisor.lock"

    @property
    def journal(self) -> Path:
        """The file with the supervisor's state."""
        return self.root / "supervisor" / "journal.json"


def find_release(prefix: Path) -> InstalledRelease | None:
    """Return the release whose virtual environment is at `prefix`.

    It is None for another kind of installation.
    """
    path = prefix.resolve()
    return (
        InstalledRelease(path.parent.parent, path.name)
        if path.parent.name == RELEASES_FOLDER
        else None
    )


# Read when the agent starts: later, the link may point to another release.
RUNNING_RELEASE = find_release(Path(sys.prefix))

UPDATE_FOLDER = "update"


class UpdateOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of an update; without a job if the supervisor rolled back by itself."""

    job: str | None
    attempt: int | None
    state: Literal["done", "failed"]
    reason: str


class FailedRelease(msgspec.Struct, frozen=True, kw_only=True):
    """A version that failed here, and whether it must not be tried again."""

    is_bad: bool
    reason: str


class RunningUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """An update in progress.

    `interrupted` is how often a power cut or a kill interrupted its installation.
    """

    order: dict[str, str | None]
    interrupted: int = 0


class SupervisorJournal(msgspec.Struct, frozen=True, kw_only=True):
    """The journal of the supervisor.

    It has the update in progress, the outcome of the last one, and the versions that failed here.
    """

    update: RunningUpdate | None = None
    outcome: UpdateOutcome | None = None
    bad: dict[str, FailedRelease] = {}

    @property
    def bad_versions(self) -> dict[str, str]:
        """Return the versions that must not be tried again, with reasons."""
        return {version: failed.reason for version, failed in self.bad.items() if failed.is_bad}


def read_journal(release: InstalledRelease | None = RUNNING_RELEASE) -> SupervisorJournal:
    """Return the journal of that release's supervisor; empty if there is none."""
    journal = (
        durable_file.read_if_any(release.journal, SupervisorJournal)
        if release is not None
        else None
    )
    return journal or SupervisorJournal()
