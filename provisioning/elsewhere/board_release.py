"""The release that is installed on a board for one measurement: a given one, the fleet's, or one that is made here and kept for later."""

import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path

from edgemeter.agent.base import config
from edgemeter.agent.base.durable_file import make_folder
from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError, os_error_as
from edgemeter.agent.contract.case_settings import Settings, is_video
from edgemeter.agent.contract.model_formats import runtime_for
from edgemeter.agent.session.checks import EXTRAS
from edgemeter.provisioning.apply.board import ExaminedBoard, Interpreter
from edgemeter.provisioning.apply.offer import OLDEST_PYTHON, Offer, choose_offer
from edgemeter.provisioning.content.store import ContentStore
from edgemeter.provisioning.inventory.fleet_file import open_registry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.release import build, install, manifest, wheels
from edgemeter.provisioning.release.boards import OLDEST_GLIBC, ReleaseTarget, board_of_model, numbers
from edgemeter.provisioning.release.manifest import VerifiedRelease
from edgemeter.provisioning.update.releases import read_releases

# How many releases stay here, those that were used last.
CACHED = 4
_FOLDER = "elsewhere"


def interpreter_of(board: ExaminedBoard, login: str) -> Interpreter:
    """Return the interpreter to measure with, this one's version if the board has it; raises UnavailableError if nothing of ours runs."""
    subject = f"{login} is {board.words}"
    if board.arch not in {"aarch64", "x86_64"}:
        raise UnavailableError(f"{subject}, but runtimes exist for 64-bit systems only: install one")
    if board.glibc is None or board.glibc < OLDEST_GLIBC:
        raise UnavailableError(f"{subject}, but wheels need glibc {'.'.join(map(str, OLDEST_GLIBC))} or newer: install a newer system")
    usable = [python for python in board.pythons if numbers(python.version) >= OLDEST_PYTHON]
    if not usable:
        raise UnavailableError(
            f"{subject} and has no Python >= 3.10 with the module venv: install one there (on Debian `sudo apt install python3-venv`), "
            "or put the agent there with `edgemeter fleet apply --python-tar`"
        )
    return next((python for python in usable if numbers(python.version) == sys.version_info[:2]), usable[0])


def extras_of(cases: Iterable[Settings], models: Path) -> tuple[str, ...]:
    """Return the extras that bring what these cases need: their runtimes, and a reader of videos; `models` holds the models."""
    offered = set(metadata.metadata("edgemeter").get_all("Provides-Extra") or ())
    extras = set()
    for case in cases:
        path = models / str(case.model)
        runtimes = [case.runtime] if isinstance(case.runtime, str) else case.runtime or [runtime_for(path)]
        extras |= {EXTRAS.get(runtime, runtime) for runtime in runtimes}
        extras |= {"video"} if is_video(case.data or "") else set()
    return tuple(sorted(extras & offered))


def release_for(
    board: ExaminedBoard, python: Interpreter, extras: tuple[str, ...], release_file: Path | None, folder: FleetFolder, scratch: Path,
    report: Callable[[str], None],
) -> tuple[Offer, Interpreter]:  # fmt: skip
    """Return the release to install, unpacked below `scratch`, and its interpreter.

    Raises:
        ConfigError: the given release is none, or the board has no wheels for these extras.
        UnavailableError: the given release does not fit, or no release can be made here.
    """
    if release_file is not None:
        offered = _unpacked(manifest.unsigned_release(release_file), scratch)
        return choose_offer([offered], board)
    for release in _of_fleet(folder, board, report):
        offered = _unpacked(release, Path(tempfile.mkdtemp(dir=scratch)))
        target = _target(board, Interpreter(offered.manifest.python, ""))
        try:
            wheels.check_wheels(extras, target, offered.folder / "wheels")
        except ConfigError:
            # It lacks a runtime.
            continue
        report(f"using the fleet's release {offered.manifest.version}")
        return choose_offer([offered], board)
    return _unpacked(manifest.unsigned_release(_built(_target(board, python), extras, scratch, report)), scratch), python


def _unpacked(release: VerifiedRelease, scratch: Path) -> Offer:
    folder = scratch / "release"
    with os_error_as(UnavailableError, f"cannot unpack the release {str(release.path)!r}", "make room in the temporary folder"):
        folder.mkdir()
    release.unpack(folder)
    return Offer(folder, release.manifest, hashlib.sha256(release.document).hexdigest())


def _of_fleet(folder: FleetFolder, board: ExaminedBoard, report: Callable[[str], None]) -> list[VerifiedRelease]:
    """Return the fleet's releases of this version of edgemeter that fit the board, the latest first; reports why one cannot be read."""
    if not folder.fleet_file.exists():
        return []
    version = metadata.version("edgemeter").partition("+")[0]
    pythons = {python.version for python in board.pythons}
    verified = []
    try:
        with open_registry(folder, read_only=True) as registry:
            releases = read_releases(registry)
        for release in releases:
            fits = release.arch == board.arch and release.python in pythons and (board.glibc or (0, 0)) >= numbers(release.glibc)
            path = ContentStore(folder.content).path(release.sha256)
            if fits and release.version.partition("+")[0] == version and path is not None:
                verified.append(manifest.read_release(path, folder.release_public_key))
    except EdgemeterError as error:
        report(f"not every release of the fleet is used: {error}")
    return verified


def _target(board: ExaminedBoard, python: Interpreter) -> ReleaseTarget:
    name = board_of_model(board.board or "")
    return ReleaseTarget(name or board.arch, board.arch, numbers(python.version), board.glibc or OLDEST_GLIBC)


def _built(target: ReleaseTarget, extras: tuple[str, ...], scratch: Path, report: Callable[[str], None]) -> Path:
    """Return the file of a release of what is installed here, made now or by an earlier call."""
    wheel = wheels.make_own_wheel(scratch)
    identity = json.dumps([install.sha256(wheel), extras, target.markers(), target.glibc_text])
    cache = config.home() / _FOLDER
    path = cache / f"{hashlib.sha256(identity.encode()).hexdigest()[:16]}.tar"
    with os_error_as(UnavailableError, f"cannot keep releases in {str(cache)!r}", "set EDGEMETER_HOME to a folder that can be written"):
        make_folder(cache)
        if path.exists():
            path.touch()
            return path
        build.build_release(build.ReleaseRequest(target, extras, None, wheel), path, report)
        for older in sorted(cache.glob("*.tar"), key=lambda file: file.stat().st_mtime, reverse=True)[CACHED:]:
            older.unlink(missing_ok=True)
    return path
