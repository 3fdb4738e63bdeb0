"""Checks a bundle that was built: its signature, its files, and whether its native packages run on its board's processor."""

import tempfile
from pathlib import Path

from edgemeter.provisioning.bundle import boards, manifest, smoke
from edgemeter.provisioning.bundle.manifest import Verified
from edgemeter.provisioning.bundle.smoke import Checked


def check(path: Path, public_key: Path, board: str | None, root: Path | None) -> tuple[Verified, Checked]:
    """Return the verified bundle, and what could be imported as on `board`, by default the one that it was built for.

    Raises:
        ConfigError: it is not signed by the key, differs from its manifest, the board is unknown or the root cannot be read.
    """
    verified = manifest.read(path, public_key)
    found = verified.manifest
    core = boards.board(board or found.board).core
    with tempfile.TemporaryDirectory(prefix="edgemeter-bundle-") as made:
        verified.unpack(Path(made))
        return verified, smoke.check(Path(made) / "wheels", found.arch, found.python, core, root)
