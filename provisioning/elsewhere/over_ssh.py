"""Measure on one board over SSH, without a fleet: `--on ssh://pi@host[:port]`. It needs no root there, and no network of the board's.

A release stays in ~/.cache/edgemeter there, by its version, so that the next run copies the suite only. The suite and all that is written
meanwhile are in a folder below it, which `run_there.py` removes at the end. Records have the board's own name for itself and no number of
a ledger: the caller keeps them.
"""

import contextlib
import re
import sys
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import IO, Any, cast

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
from edgemeter.agent.cli.elsewhere import RemoteOutcome, RemoteWork
from edgemeter.agent.contract import data_archive, order_suite
from edgemeter.agent.contract.case_settings import Settings, is_video
from edgemeter.agent.contract.model_formats import runtime_for
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.session.checks import EXTRAS
from edgemeter.provisioning.apply import bring
from edgemeter.provisioning.apply.board import LOST, MB, Board, SshTarget, last_line
from edgemeter.provisioning.apply.bring import OfferedRelease
from edgemeter.provisioning.apply.facts import Interpreter
from edgemeter.provisioning.content.store import ContentStore
from edgemeter.provisioning.jobs import packing
from edgemeter.provisioning.jobs.packing import SUITE_NAME, PackedSuite
from edgemeter.provisioning.release import install
from edgemeter.provisioning.release.boards import numbers

# Below the home there.
ROOT = ".cache/edgemeter"
PROGRAM = Path(__file__).with_name("run_there.py")
# Besides the suite's own files: results and temporary files.
SPARE_BYTES = 64 << 20
BEAT_S, CLOSE_S = 10.0, 60.0


class _BoardDocument(msgspec.Struct, frozen=True):
    runs: list[RunRecord]


def measure(target: SshTarget, work: RemoteWork) -> Iterator[RemoteOutcome]:
    """Measure a suite on the board, and yield its runs; `options` are those of the command, of which count `power` and `release`.

    Raises:
        UnavailableError: the board cannot be reached or does not suit, or it can measure nothing of the suite.
        ConfigError: the suite or an option is wrong there.
        TransientError: the connection was lost.
        KeyboardInterrupt: it was pressed; what had ended was yielded before.
    """

    def note(text: str) -> None:
        work.report(f"{target.name}: {text}")

    with tempfile.TemporaryDirectory(prefix="edgemeter-on-") as name, Board(target, work.options.get("ssh_options") or ()) as board:
        suite = _Suite(Path(name), work)
        work.announce()
        note(board.look(ROOT).words)
        version = _brought(board, suite, work.options.get("release"), Path(name), note)
        bring.check_room(board.facts, suite.size_bytes + SPARE_BYTES, 0)
        note(f"copying {suite.size_bytes / MB:.1f} MB of models and data")
        with _BoardRun(board, version, _arguments(work.options), note) as run:
            run.send(suite)
            run.follow()
    records = run.records()
    for reason in dict.fromkeys(record.reasons["energy"] for record in records if "energy" in record.reasons):
        note(f"no energy: {reason}")
    for text in run.errors if run.status == DONE else ():
        note(text)
    # Why the run in progress ended is known then.
    is_failed = run.interruption is None and run.status != DONE
    errors: list[EdgemeterError] = [MeasurementError(text) for text in run.errors if is_failed]
    yield RemoteOutcome(records[0].device if records else target.name, records, errors)
    if run.interruption is not None:
        raise run.interruption


def _brought(board: Board, suite: "_Suite", release: Path | None, scratch: Path, note: Callable[[str], None]) -> str:
    """Return the version of the release on the board that measures the suite, which is brought there first where it is missing."""
    facts = board.facts
    offer, python = _offer(board, suite, release, scratch, note)
    version = offer.manifest.version
    if facts.releases.get(version) != offer.sha256:
        copied_bytes = bring.copy_release(board, offer, (), note)
        note(f"copied {copied_bytes / MB:.1f} MB; installing {offer.words}")
        command = [*bring.install_command(facts, python, facts.root), "--unsigned", "--allow-downgrade"]
        result = board.run(command, timeout_s=bring.INSTALL_S)
        if result.returncode != DONE:
            reason = last_line(result.stderr, 500, f"the installation {install.how_it_ended(result.returncode)}")
            raise UnavailableError(f"{board.target.login}: {reason.removeprefix('install: ')}")
        board.run(["rm", "-rf", f"{facts.home}/{bring.STAGE}"])
        note(f"the release stays in {facts.root}/releases/{version} for the next run; `rm -r {facts.root}` there removes it")
    return version


def _offer(
    board: Board, suite: "_Suite", release: Path | None, scratch: Path, note: Callable[[str], None]
) -> tuple[OfferedRelease, Interpreter]:
    facts, address = board.facts, board.target.address
    if release is not None:
        return bring.choose_offer([bring.read_offer(release, None, scratch)], facts, address)
    usable = facts.usable_pythons(address)
    # Wheels for this version are certainly there.
    python = next((python for python in usable if numbers(python.version) == sys.version_info[:2]), usable[0])
    return bring.made_release(facts, python, suite.extras(), note), python


class _Suite:
    """A packed suite as the files that a board gets; the models are links in `folder`."""

    def __init__(self, scratch: Path, work: RemoteWork) -> None:
        store = ContentStore(scratch / "content")
        packed: PackedSuite = packing.pack(work.written, work.folder, store)
        self.folder = scratch / "suite"
        self.folder.mkdir()
        for content in packed.work.contents:
            if (path := store.path(content.sha256)) is None:
                raise UnavailableError(f"{content.name} is not among the packed files any more: run it again")
            (self.folder / content.name).symlink_to(path)
        self._archives = [self.folder / archive.name for archive in packed.work.data]
        document = (self.folder / SUITE_NAME).read_bytes()
        self.cases = order_suite.read(document).case
        suite = msgspec.toml.decode(document)
        for case in suite["case"]:
            if (name := case.get("data")) is not None:
                case.update(_data_paths(self.folder / name))
        (self.folder / SUITE_NAME).unlink()
        (self.folder / SUITE_NAME).write_text(toml_document(suite))
        self.size_bytes = sum(path.stat().st_size for path in self.folder.iterdir())

    def extras(self) -> tuple[str, ...]:
        """Return the extras that bring what the cases need: their runtimes, and a reader of videos."""
        return extras_of(self.cases, self.folder)

    def files(self) -> Iterator[tuple[str, int, IO[bytes]]]:
        """Yield each file with its path below the folder there and its size; the suite comes last, so that a part is no suite."""
        for archive in self._archives:
            with zipfile.ZipFile(archive) as opened:
                for entry in opened.infolist():
                    with opened.open(entry) as content:
                        yield f"data/{archive.name}/{entry.filename}", entry.file_size, content
        names = {path.name for path in self.folder.iterdir()} - {SUITE_NAME} - {archive.name for archive in self._archives}
        for name in (*sorted(names), SUITE_NAME):
            with (self.folder / name).open("rb") as content:
                yield f"suite/{name}", (self.folder / name).stat().st_size, content


def extras_of(cases: Iterable[Settings], models: Path) -> tuple[str, ...]:
    """Return the extras that bring what these cases need, whose models are in `models`."""
    offered = set(metadata.metadata("edgemeter").get_all("Provides-Extra") or ())
    extras = set()
    for case in cases:
        runtimes = [case.runtime] if isinstance(case.runtime, str) else case.runtime or [runtime_for(models / str(case.model))]
        extras |= {EXTRAS.get(runtime, runtime) for runtime in runtimes}
        extras |= {"video"} if is_video(case.data or "") else set()
    return tuple(sorted(extras & offered))


def _data_paths(archive: Path) -> dict[str, str]:
    """Return the paths of a case's data there, from the suite."""
    with zipfile.ZipFile(archive) as opened:
        tops = {tuple(name.split("/")[:2]) for name in opened.namelist()}
    keys = {data_archive.IMAGES: "data", data_archive.ANNOTATIONS: "annotations"}
    return {keys[kind]: f"../data/{archive.name}/{kind}/{name}" for kind, name in tops}


def _arguments(options: Mapping[str, Any]) -> list[str]:
    """Return the arguments of `edgemeter` there."""
    arguments = ["run", f"suite/{SUITE_NAME}", "--format", "json", "--no-save", "--config", "settings.toml"]
    arguments += ["--power", str(options["power"])] if options.get("power") is not None else []
    return [*arguments, *(["--quiet"] if is_quiet() else [])]


class _BoardRun(contextlib.AbstractContextManager["_BoardRun"]):
    """One `run_there.py` on the board: it ends with the block at the latest. `errors` are the errors that the run there printed.

    `interruption`: Ctrl-C or SIGTERM here ended the run there, whose results came all the same.
    """

    def __init__(self, board: Board, version: str, arguments: list[str], note: Callable[[str], None]) -> None:
        self.errors: list[str] = []
        self._last_line = "no message"
        self.interruption: BaseException | None = None
        self.status: int | None = None
        self._version, self._login, self._note = version, board.target.login, note
        python = f"{board.facts.root}/releases/{version}/bin/python"
        self._process = board.start([python, "-I", "-B", "-c", PROGRAM.read_text(), *arguments])
        pipes = (self._process.stdin, self._process.stdout, self._process.stderr)
        self._stdin, self._stdout, self._stderr = cast("tuple[IO[bytes], IO[bytes], IO[bytes]]", pipes)
        self._output = b""
        self._closed = threading.Event()
        self._reader = threading.Thread(target=self._read, name="edgemeter-output", daemon=True)
        self._reader.start()

    def __exit__(self, *_: object) -> None:
        self._close_input()
        try:
            self._process.wait(CLOSE_S)
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            self._reader.join()
            for pipe in (self._stdout, self._stderr):
                pipe.close()

    def send(self, suite: _Suite) -> None:
        """Send the suite."""
        # Where the board cannot run our program, it says why.
        with contextlib.suppress(BrokenPipeError), tarfile.open(fileobj=self._stdin, mode="w|") as tar:
            for name, size_bytes, content in suite.files():
                member = tarfile.TarInfo(name)
                member.size = size_bytes
                tar.addfile(member, content)
        threading.Thread(target=self._beat, name="edgemeter-alive", daemon=True).start()

    def follow(self) -> None:
        """Report the lines of the run until it ends; Ctrl-C ends it there, a second one ends this."""
        try:
            self._show()
        except (KeyboardInterrupt, SystemExit) as interruption:
            self.interruption = interruption
            self._close_input()
            self._show()
        self.status = self._process.wait()
        self._reader.join()

    def records(self) -> list[RunRecord]:
        """Return the runs that came; where there are none, raises why."""
        document = self._output.partition(b"#edgemeter\n")[2]
        try:
            return decode_json(document, _BoardDocument).runs
        except msgspec.ValidationError as error:
            raise UnavailableError(
                f"{self._login}: its release {self._version} writes other results than this one reads ({error}): use a newer one"
            ) from error
        except msgspec.MsgspecError:
            raise self._failure() from None

    def _failure(self) -> BaseException:
        """Return why no results came."""
        if self.status == LOST:
            return TransientError(
                f"{self._login}: the connection was lost while it measured, so what runs there ends, and its folder goes now or with the "
                "next run; run it again"
            )
        if self.interruption is not None:
            has_reason = isinstance(self.interruption, KeyboardInterrupt) and self.errors
            return KeyboardInterrupt(self.errors[-1]) if has_reason else self.interruption
        if unknown := re.search(r"(\w+): no such key", " ".join(self.errors)):
            # The suite was checked here.
            return UnavailableError(
                f"{self._login}: its release {self._version} is older than this edgemeter and knows no {unknown[1]}: use a newer one"
            )
        reason = "; ".join(dict.fromkeys(self.errors)) or f"edgemeter {install.how_it_ended(self.status or 0)} ({self._last_line})"
        if self.status in {INTERRUPTED, TERMINATED}:
            return TransientError(f"{self._login}: {reason}: somebody ended it there: run it again")
        return (ConfigError if self.status == USAGE else UnavailableError)(f"{self._login}: {reason}")

    def _show(self) -> None:
        for line in self._stderr:
            # A terminal shows it: nothing of another machine moves its cursor.
            text = "".join(char for char in line.decode(errors="replace") if char.isprintable()).strip()
            if text.startswith("edgemeter: "):
                self.errors.append(text.removeprefix("edgemeter: "))
            elif text:
                self._last_line = text
                self._note(text)

    def _read(self) -> None:
        self._output = self._stdout.read()

    def _beat(self) -> None:
        while not self._closed.wait(BEAT_S):
            with contextlib.suppress(OSError, ValueError):
                self._stdin.write(b"\n")
                self._stdin.flush()

    def _close_input(self) -> None:
        # The end of its input ends the run there.
        self._closed.set()
        with contextlib.suppress(OSError, ValueError):
            self._stdin.close()
