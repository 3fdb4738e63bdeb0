"""Measure on one board over SSH, without a fleet: `--on ssh://pi@host[:port]`. It needs no root there, and no network of the board's.

    measure(target, packed, store, options, report) -> BoardRuns

`packed` is a suite as `jobs.packing` packs it, `store` holds its content. `options` are those of the command, of which count `power`,
`release` (a release to install there, Path) and `keep_there` (bool); a caller may add `fleet_folder` (FleetFolder) and `ssh`
(SshOptions). Each may be absent. `report` gets progress, a line each, as `HOST: LINE`. The records have the board's own name for itself
and no number of a ledger: the caller keeps them.

There: ~/.cache/edgemeter/on-XXXXXXXX holds a release, the suite and all that is written meanwhile; board_program.py removes it at the end.
"""

import re
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from edgemeter.agent.base.errors import (
    DONE,
    INTERRUPTED,
    TERMINATED,
    USAGE,
    ConfigError,
    EdgemeterError,
    MeasurementError,
    TransientError,
    UnavailableError,
)
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.base.progress import is_quiet
from edgemeter.agent.base.toml import toml_document
from edgemeter.agent.contract import data_archive, order_suite
from edgemeter.agent.contract.record import RunRecord
from edgemeter.provisioning.apply import ssh as apply_ssh
from edgemeter.provisioning.apply.board import ExaminedBoard, inspect_board
from edgemeter.provisioning.apply.offer import Offer
from edgemeter.provisioning.apply.ssh import FileToCopy, SshConnection, SshOptions, SshTarget, copy_files, missing_files
from edgemeter.provisioning.content.store import ContentStore
from edgemeter.provisioning.elsewhere import board_release
from edgemeter.provisioning.elsewhere.board_session import BoardSession
from edgemeter.provisioning.inventory import fleet_folder
from edgemeter.provisioning.jobs.packing import SUITE_NAME, PackedSuite
from edgemeter.provisioning.release import install

MB = 1e6
# What can be fetched: what the last command printed; and a file there.
OUTPUT, SETTINGS = "output", "suite/settings.toml"
INSTALLER = "installer.py"
# Beside the suite's own files: models are read from it, results and temporary files are written.
SPARE_BYTES = 64 << 20
NOTE_EVERY_S = 5.0
# `run --on` has none of the options of `fleet apply`, and no fleet.toml.
REMEDIES = apply_ssh.REMEDIES | {
    "Host key verification failed": "its host key is unknown; connect once by hand with `ssh {address}`",
    "Permission denied": "the login was refused; `ssh-copy-id {address}`, or name the key in ~/.ssh/config",
    "Too many authentication failures": "too many keys were tried; name the right one in ~/.ssh/config, with IdentitiesOnly yes",
    "Could not resolve hostname": "the host name is unknown; correct it, or use --on ssh://USER@ADDRESS",
    "Connection refused": (
        "nothing listens there; enable SSH (`sudo systemctl enable --now ssh`), or add its port as in --on ssh://USER@HOST:PORT"
    ),
    "No such identity": "the key file does not exist; correct IdentityFile in ~/.ssh/config",
}
# The signature is for releases that come by themselves: what comes over this connection has its hashes, which are compared.
_INSTALL = """
import contextlib, importlib.util, pathlib, sys
spec = importlib.util.spec_from_file_location("installer", sys.argv[1])
installer = importlib.util.module_from_spec(spec)
sys.modules["installer"] = installer
spec.loader.exec_module(installer)
folder, root = map(pathlib.Path, sys.argv[2:])
try:
    with contextlib.closing(installer.UnverifiedRelease(folder)) as source:
        document = source.small(installer.MANIFEST, installer.MOST_MANIFEST_BYTES)
        manifest = installer.parse_manifest(document)
        installation = installer.Installation(source, root, document, manifest)
        python = installation.check("allowed")
        installer.verify_files(source, manifest)
        with installation.alone():
            if not installation.is_finished():
                installation.build(python)
except (installer.RefusedError, OSError) as error:
    sys.exit(" ".join(str(error).split()))
"""
# The board's names and sensors, and no broker of its own: what is measured goes to the machine that asked.
_SETTINGS = """
import os, sys
from edgemeter.agent.base import config
from edgemeter.agent.base.toml import toml_document
os.environ["HOME"] = sys.argv[1]
settings = config.read()
kept = ("device", "fleet", "role", "power", "sensors")
open(sys.argv[2], "w").write(toml_document({key: getattr(settings, key) for key in kept}))
"""


@dataclass(frozen=True, slots=True)
class BoardRuns:
    """The runs of one board: their records, why others failed, and what interrupted them; raise that once the rest is shown."""

    host: str
    records: list[RunRecord]
    errors: list[EdgemeterError] = field(default_factory=list)
    interruption: BaseException | None = None


class _BoardDocument(msgspec.Struct, frozen=True):
    runs: list[RunRecord]


def measure(
    target: SshTarget, packed: PackedSuite, store: ContentStore, options: Mapping[str, Any], report: Callable[[str], None]
) -> BoardRuns:
    """Measure a suite on the board, and return its runs.

    Raises:
        UnavailableError: the board cannot be reached or does not suit, or it can measure nothing of the suite.
        ConfigError: the suite or an option is wrong there.
        TransientError: the connection was lost; nothing of it remains there.
        KeyboardInterrupt: Ctrl-C, before the first run ended.
    """
    with _installed(target, packed, store, options, report) as board:
        status = board.edgemeter("run", f"suite/{SUITE_NAME}", "--format", "json", "--no-save", *board.shared_options)
        document = board.session.fetch(OUTPUT)
    records = board.records(document, status)
    for reason in dict.fromkeys(record.reasons["energy"] for record in records if "energy" in record.reasons):
        report(f"{target.name}: no energy: {reason}")
    interruption = board.session.interruption
    # Why the run in progress ended is known then.
    errors: list[EdgemeterError] = [MeasurementError(text) for text in board.session.errors if interruption is None and status != DONE]
    for text in board.session.errors if status == DONE else ():
        report(f"{target.name}: {text}")
    return BoardRuns(target.name, records, errors, interruption)


@dataclass(frozen=True, slots=True)
class _InstalledBoard:
    """A board with a release and a suite in a folder of its own."""

    session: BoardSession
    version: str
    program: str
    suite: "_Suite"
    shared_options: tuple[str, ...]

    def edgemeter(self, command: str, *arguments: str) -> int:
        """Return the status of a command of edgemeter there."""
        return self.session.run("measuring", [self.program, command, *arguments], shows=True)[0]

    def records(self, document: bytes | None, status: int) -> list[RunRecord]:
        """Return the runs in the document that a command printed; where it printed none, or not all, raises its `failure`."""
        if not document or (status != DONE and not _is_whole(document)):
            raise self.failure(status)
        try:
            return decode_json(document, _BoardDocument).runs
        except msgspec.MsgspecError as error:
            raise UnavailableError(
                f"{self.session.login}: its release {self.version} writes other results than this one reads ({error}): use a newer one"
            ) from error

    def failure(self, status: int) -> BaseException:
        """Return why a command with this status gave no result."""
        if (interruption := self.session.interruption) is not None:
            has_reason = isinstance(interruption, KeyboardInterrupt) and self.session.errors
            return KeyboardInterrupt(self.session.errors[-1]) if has_reason else interruption
        if unknown := re.search(r"(\w+): no such key", " ".join(self.session.errors)):
            # The suite was checked here.
            return UnavailableError(
                f"{self.session.login}: its release {self.version} is older than this edgemeter and knows no {unknown[1]}: use a newer one"
            )
        message = f"{self.session.login}: {'; '.join(dict.fromkeys(self.session.errors)) or f'edgemeter {install.how_it_ended(status)}'}"
        if status in {INTERRUPTED, TERMINATED}:
            return TransientError(f"{message}: somebody ended it there: run it again")
        return (ConfigError if status == USAGE else UnavailableError)(message)


@contextmanager
def _installed(
    target: SshTarget, packed: PackedSuite, store: ContentStore, options: Mapping[str, Any], report: Callable[[str], None]
) -> Iterator[_InstalledBoard]:
    """Yield the board with all that the suite needs; its folder there goes with the block, whatever ends it."""

    def note(text: str) -> None:
        report(f"{target.name}: {text}")

    with (
        tempfile.TemporaryDirectory(prefix="edgemeter-on-") as name,
        SshConnection(target, options.get("ssh") or SshOptions(), REMEDIES) as ssh,
    ):
        scratch = Path(name)
        suite = _Suite(scratch / "suite", packed, store)
        board = inspect_board(ssh, "")
        python = board_release.interpreter_of(board, target.login)
        note(board.words)
        extras = board_release.extras_of(suite.cases, suite.folder)
        folder = options.get("fleet_folder") or fleet_folder.default()
        release, python = board_release.release_for(board, python, extras, options.get("release"), folder, scratch, note)
        with BoardSession(ssh, python.path, release.sha256, note) as session:
            if session.removed:
                note(f"removed what {session.removed} lost connections left there")
            _install(ssh, session, board, release, python.path, suite, note)
            installed = f"{session.folder}/root/releases/{release.manifest.version}/bin"
            # Without it, as where its file may not be read, the board has its host name and its sensors.
            command = [f"{installed}/python", "-I", "-c", _SETTINGS, board.home, SETTINGS]
            status, error = session.run("reading the board's settings", command, shows=False)
            if status != DONE:
                note(f"the board's own configuration is not used: {error.partition('Error: ')[2] or error}")
            yield _InstalledBoard(session, release.manifest.version, f"{installed}/edgemeter", suite, tuple(_shared_options(options)))
            session.stays = bool(options.get("keep_there"))
        if options.get("keep_there"):
            note(f"the release stays in {session.folder}: the next run finds it" if session.is_left else f"{session.folder} was removed")


class _Suite:
    """The packed suite as files to copy."""

    def __init__(self, folder: Path, packed: PackedSuite, store: ContentStore) -> None:
        folder.mkdir()
        self.folder, self.archives = folder, packed.work.data
        for content in packed.work.contents:
            if (path := store.path(content.sha256)) is None:
                raise UnavailableError(f"{content.name} is not among the packed files any more: run it again")
            (folder / content.name).symlink_to(path.resolve())
        document = (folder / SUITE_NAME).read_bytes()
        self.cases = order_suite.read(document).case
        suite = msgspec.toml.decode(document)
        for case in suite["case"]:
            # As orders call it.
            if "images" in case:
                case.update(_data_paths(folder / case.pop("images")))
        (folder / SUITE_NAME).unlink()
        (folder / SUITE_NAME).write_text(toml_document(suite))
        # Written there with the board's own names and sensors.
        (folder / Path(SETTINGS).name).touch()

    def files(self) -> list[FileToCopy]:
        """Return all files."""
        return [_file(path, path.name) for path in sorted(self.folder.iterdir())]


def _data_paths(archive: Path) -> dict[str, str]:
    """Return the paths of a case's data, from the suite, once its archive is unpacked there."""
    with zipfile.ZipFile(archive) as opened:
        tops = {tuple(name.split("/")[:2]) for name in opened.namelist()}
    keys = {data_archive.IMAGES: "data", data_archive.ANNOTATIONS: "annotations"}
    return {keys[kind]: f"../data/{archive.name}/{kind}/{name}" for kind, name in tops}


def _file(path: Path, name: str) -> FileToCopy:
    return FileToCopy(path, name, install.sha256(path), path.stat().st_size)


def _install(
    ssh: SshConnection, session: BoardSession, board: ExaminedBoard, release: Offer, python: str, suite: _Suite, note: Callable[[str], None]
) -> None:
    """Copy the suite and, unless it is there, the release, and install it."""
    folders = {"suite": suite.files()}
    needed_bytes = SPARE_BYTES + sum(archive.size_bytes for archive in suite.archives)
    if not session.has_release:
        folders["release"] = [
            *(FileToCopy(release.folder / file.path, file.path, file.sha256, file.size_bytes) for file in release.files()),
            _file(Path(install.__file__), INSTALLER),
        ]
        needed_bytes += release.unpacked_bytes()
    with session.during("copying"):
        missing_bytes = sum(size for folder, files in folders.items() for _, _, size in missing_files(ssh, folder, files, session.folder))
    needed_bytes += missing_bytes
    if needed_bytes > board.home_free_bytes:
        raise UnavailableError(
            f"{ssh.target.login}: not enough room on {board.home_disk}: {needed_bytes / MB:.0f} MB are needed for a while, "
            f"{board.home_free_bytes / MB:.0f} MB are free: remove something there, or use a larger card"
        )
    note(f"copying {missing_bytes / MB:.1f} MB")
    with session.during("copying"):
        for folder, files in folders.items():
            copy_files(ssh, folder, files, _CopyProgress(note), session.folder)
    for archive in suite.archives:
        session.unpack(f"suite/{archive.name}", f"data/{archive.name}")
    if not session.has_release:
        note(f"installing {release.words}")
        arguments = [f"{session.folder}/release/{INSTALLER}", f"{session.folder}/release", f"{session.folder}/root"]
        status, error = session.run("installing the release", [python, "-I", "-B", "-c", _INSTALL, *arguments], shows=False)
        if session.interruption is not None:
            raise session.interruption
        if status != DONE:
            raise UnavailableError(f"{ssh.target.login}: {error or f'the installation {install.how_it_ended(status)}'}")
        session.remove("release")


class _CopyProgress:
    """Reports how much is copied, every few seconds."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note, self._noted_s = note, time.monotonic()

    def __call__(self, copied_bytes: int, total_bytes: int) -> None:
        if time.monotonic() - self._noted_s > NOTE_EVERY_S:
            self._note(f"copied {copied_bytes / MB:.1f} of {total_bytes / MB:.1f} MB")
            self._noted_s = time.monotonic()


def _shared_options(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options that `run` takes there too."""
    yield from ("--config", SETTINGS)
    if options.get("power") is not None:
        yield from ("--power", str(options["power"]))
    if is_quiet():
        yield "--quiet"


def _is_whole(document: bytes) -> bool:
    try:
        decode_json(document, msgspec.Raw)
    except msgspec.DecodeError:
        return False
    return True
