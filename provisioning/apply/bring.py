"""Brings the agent to a board: a release as one file, and its installer.

The installer builds the environment there. `fleet apply` installs a signed release of the fleet
permanently; `run --on ssh://` one that is given, or built from the local installation.
"""

import hashlib
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from edgemeter.agent.base import config
from edgemeter.agent.base.durable_file import make_folder, sha256_of
from edgemeter.agent.base.errors import UnavailableError, os_error_as
from edgemeter.provisioning.apply.board import MB, Board
from edgemeter.provisioning.apply.facts import BoardFacts, Interpreter
from edgemeter.provisioning.release import install, release_file, wheels
from edgemeter.provisioning.release.boards import (
    OLDEST_GLIBC,
    ReleaseTarget,
    board_of_model,
    numbers,
)
from edgemeter.provisioning.release.release_file import ReleaseFile

INSTALLER = Path(install.__file__)
# In the home folder there: the file being copied, from which an interrupted copy continues.
STAGED = ".cache/edgemeter/release.tar"
# The number of releases built for boards that are kept here, most recently used first.
CACHED = 4


def is_installed(release: ReleaseFile, facts: BoardFacts) -> bool:
    return (
        facts.releases.get(release.manifest.version) == hashlib.sha256(release.document).hexdigest()
    )


def choose_release(
    releases: Sequence[ReleaseFile], facts: BoardFacts, address: str
) -> tuple[ReleaseFile, Interpreter]:
    """Return the first release that fits, and the interpreter for it.

    Raises:
        UnavailableError: no release fits; the message has the remedy.
    """
    pythons = facts.usable_pythons(address)
    for release in releases:
        if release.manifest.arch == facts.arch and (facts.glibc or (0, 0)) >= numbers(
            release.manifest.glibc
        ):
            for python in pythons:
                if python.version == release.manifest.python:
                    return release, python
    target = _target(facts, pythons[0])
    descriptions = [
        f"{of.version} for {of.board} ({of.arch}, Python {of.python}, glibc >= {of.glibc})"
        for of in (release.manifest for release in releases)
    ]
    raise UnavailableError(
        f"no given release fits {facts.words} (given: {'; '.join(descriptions)}); build one with "
        f"`edgemeter fleet release build` for {target.arch}, Python {target.python_text}, glibc "
        f"<= {target.glibc_text}"
    )


def made_release(
    facts: BoardFacts, python: Interpreter, extras: tuple[str, ...], report: Callable[[str], None]
) -> ReleaseFile:
    """Return a release of the local installation, built for the board now or by an earlier call.

    Raises:
        ConfigError: the board has no wheels for these extras.
        UnavailableError: no release can be built or stored here.
    """
    target, cache = _target(facts, python), config.home() / "elsewhere"
    keeping = os_error_as(
        UnavailableError,
        f"cannot keep releases in {str(cache)!r}",
        "set EDGEMETER_HOME to a folder that can be written",
    )
    with tempfile.TemporaryDirectory(prefix="edgemeter-wheel-") as scratch, keeping:
        wheel = wheels.make_own_wheel(Path(scratch))
        identity = json.dumps([sha256_of(wheel), extras, target.markers(), target.glibc_text])
        path = cache / f"{hashlib.sha256(identity.encode()).hexdigest()[:16]}.tar"
        make_folder(cache)
        if path.exists():
            path.touch()
        else:
            release_file.build_release(target, extras, path, report, wheel=wheel)
        for older in sorted(
            cache.glob("*.tar"), key=lambda file: file.stat().st_mtime, reverse=True
        )[CACHED:]:
            older.unlink(missing_ok=True)
        return release_file.read_release(path, None)


def _target(facts: BoardFacts, python: Interpreter) -> ReleaseTarget:
    board = board_of_model(facts.model or "") or facts.arch
    return ReleaseTarget(board, facts.arch, numbers(python.version), facts.glibc or OLDEST_GLIBC)


def copy_release(board: Board, release: ReleaseFile, report: Callable[[str], None]) -> int:
    """Copy the missing part of a release, if it fits, and return its size in bytes.

    The installer checks its own space.
    """
    path = f"{board.facts.home}/{STAGED}"
    copied_bytes = board.copied_bytes(release.path, path)
    missing_bytes = release.path.stat().st_size - copied_bytes
    check_room(board.facts, missing_bytes)
    if missing_bytes:
        report(f"copying {release.manifest.version}, {missing_bytes / MB:.1f} MB")
        board.copy(release.path, path, copied_bytes)
    return missing_bytes


def check_room(facts: BoardFacts, needed_bytes: int) -> None:
    """Raise UnavailableError if this does not fit below the home folder."""
    if needed_bytes > facts.free_bytes:
        raise UnavailableError(
            f"not enough room in {facts.home}: {needed_bytes / MB:.0f} MB are needed, "
            f"{facts.free_bytes / MB:.0f} MB are free: "
            "remove something there (`sudo apt-get clean`, `journalctl --vacuum-size=50M`), or "
            "use a larger card"
        )


def install_command(facts: BoardFacts, python: Interpreter) -> list[str]:
    """Return the command that installs the copied release.

    It reads the installer from its standard input.
    """
    return [python.path, "-", "--release", f"{facts.home}/{STAGED}", "--root", facts.root]
