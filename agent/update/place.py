"""Where the release that runs stands: `releases/<version>` below the folder that holds install.py, the supervisor and the public key."""

import sys
from dataclasses import dataclass
from pathlib import Path

FOLDER = "releases"


@dataclass(frozen=True, slots=True)
class Release:
    """A release: its version, and the folder in which all of them lie."""

    root: Path
    version: str

    @property
    def public_key(self) -> Path:
        """The key by which bundles are checked, PEM."""
        return self.root / "release.pub"

    @property
    def lock(self) -> Path:
        """The file that the supervisor keeps locked while it is there."""
        return self.root / "supervisor.lock"


def find(prefix: Path) -> Release | None:
    """Return the release whose virtual environment is at `prefix`, None for one that was made in another way."""
    place = prefix.resolve()
    return Release(place.parent.parent, place.name) if place.parent.name == FOLDER else None


# Found out when the agent starts: afterwards the link by which it was started may name another release.
HERE = find(Path(sys.prefix))
