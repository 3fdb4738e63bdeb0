"""Measures on one board over SSH, without a fleet: `--on ssh://pi@host[:port]`.

It needs neither root nor a network there.

A release stays in ~/.cache/edgemeter there, by its version, so that the next run copies the suite
only. The suite and all files written meanwhile are in a folder below it, which `run_there.py`
removes at the end. Records have the board's own device name and no number of a ledger: the caller
stores them.
"""

import contextlib
import sys
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import IO, cast

import msgspec

from edgemeter.agent.base import interrupts
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
from edgemeter.agent.base.number_text import on_one_line
from edgemeter.agent.base.toml import toml_document
from edgemeter.agent.contract import data_archive, order_suite
from edgemeter.agent.contract.case_settings import Settings, is_video
from edgemeter.agent.contract.model_formats import runtime_for
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.suite import SuiteFile
from edgemeter.agent.measuring.settings import SessionSettings
from edgemeter.agent.session.checks import EXTRAS
from edgemeter.provisioning.apply import bring
from edgemeter.provisioning.apply.board import LOST, MB, Board, SshTarget, parse_target
from edgemeter.provisioning.apply.on_device import INSTALL_S, last_line
from edgemeter.provisioning.jobs import packing
from edgemeter.provisioning.jobs.packing import SUITE_NAME
from edgemeter.provisioning.release import install, release_file
from edgemeter.provisioning.release.boards import numbers
from edgemeter.provisioning.serve.content_store import ContentStore

# In the home folder there.
ROOT = ".cache/edgemeter"
PROGRAM = Path(__file__).with_name("run_there.py")
# Besides the suite's own files: results and temporary files.
SPARE_BYTES = 64 << 20
BEAT_S, CLOSE_S = 10.0, 60.0


class _BoardDocument(msgspec.Struct, frozen=True):
    runs: list[RunRecord]


def measure_on_boards(
    settings: SessionSettings,
    written: SuiteFile,
    folder: Path,
    report: Callable[[str], None],
) -> Iterator[RunRecord | EdgemeterError]:
    """Return an iterator of the runs on each board, and of the errors there.

    Paths of the suite are relative to `folder`; of the settings, `on`, `power` and `release` apply.

    Raises:
        ConfigError: an address is wrong.
    """
    targets = dict.fromkeys(parse_target(text) for text in settings.on)

    def outcomes() -> Iterator[RunRecord | EdgemeterError]:
        with tempfile.TemporaryDirectory(prefix="edgemeter-on-") as scratch:
            suite = BoardSuite(Path(scratch), written, folder)
            for target in targets:
                try:
                    yield from measure(target, suite, settings, report)
                except EdgemeterError as error:
                    # The other boards are measured all the same.
                    yield error

    return outcomes()


def measure(
    target: SshTarget,
    suite: "BoardSuite",
    settings: SessionSettings,
    report: Callable[[str], None],
    ssh_options: Sequence[str] = (),
) -> Iterator[RunRecord | EdgemeterError]:
    """Measure a suite on one board, and yield its runs, then the reasons of failures.

    `ssh_options` are for `ssh -o`.

    Raises:
        UnavailableError: the board cannot be reached or is not suitable, or it can measure nothing
            of the suite.
        ConfigError: the suite or an option is wrong there.
        TransientError: the connection was lost.
        KeyboardInterrupt: it was pressed; finished runs were yielded before.
    """

    def note(text: str) -> None:
        report(f"{target.name}: {text}")

    with Board(target, ssh_options) as board:
        note(board.look(ROOT).words)
        version = _bring_release(board, suite, settings.release, note)
        bring.check_room(board.facts, suite.size_bytes + SPARE_BYTES)
        note(f"copying {suite.size_bytes / MB:.1f} MB of models and data")
        power = [] if settings.power is None else ["--power", settings.power]
        with (
            tempfile.TemporaryFile() as output,
            _BoardRun(board, version, power, output, note) as run,
        ):
            run.follow(suite)
            output.seek(0)
            records = run.records(output.read())
    for reason in dict.fromkeys(
        record.reasons["energy"] for record in records if "energy" in record.reasons
    ):
        note(f"no energy: {reason}")
    for text in run.errors if run.status == DONE else ():
        note(text)
    yield from records
    # The reason why the run in progress ended is known then.
    if run.interruption is not None:
        raise run.interruption
    if run.status != DONE:
        yield from map(MeasurementError, run.errors)


def _bring_release(
    board: Board, suite: "BoardSuite", path: Path | None, note: Callable[[str], None]
) -> str:
    """Return the version of the release that measures the suite on the board.

    The release is copied there if it is missing.
    """
    facts, address = board.facts, board.target.address
    if path is not None:
        release, python = bring.choose_release(
            [release_file.read_release(path, None)], facts, address
        )
    else:
        usable = facts.usable_pythons(address)
        # There are certainly wheels for this version.
        python = next(
            (python for python in usable if numbers(python.version) == sys.version_info[:2]),
            usable[0],
        )
        release = bring.made_release(facts, python, extras_of(suite.cases, suite.folder), note)
    version, this_version = release.manifest.version, metadata.version("edgemeter")
    if version.partition("+")[0] != this_version.partition("+")[0]:
        raise ConfigError(
            f"--release {version} is not of this edgemeter ({this_version}), which cannot read "
            "its results: build one here"
        )
    if not bring.is_installed(release, facts):
        copied_bytes = bring.copy_release(board, release, note)
        note(f"copied {copied_bytes / MB:.1f} MB; installing {version}")
        command = [*bring.install_command(facts, python), "--unsigned", "--allow-downgrade"]
        result = board.run(command, bring.INSTALLER.read_bytes(), INSTALL_S)
        if result.returncode != DONE:
            how = install.how_it_ended(result.returncode)
            raise UnavailableError(
                f"{board.target.login}: the installation {how}: "
                f"{last_line(result.stderr).removeprefix('install: ')}"
            )
        board.run(["rm", "-f", f"{facts.home}/{bring.STAGED}"])
        note(
            f"the release stays in {facts.root}/releases/{version} for the next run; `rm -r "
            f"{facts.root}` there removes it"
        )
    return version


class BoardSuite:
    """A suite as files for a board; the models are links in `folder`."""

    def __init__(self, scratch: Path, written: SuiteFile, folder: Path) -> None:
        store = ContentStore(scratch / "content")
        work = packing.pack(written, folder, store)
        self.folder = scratch / "suite"
        self.folder.mkdir()
        for content in work.contents:
            (self.folder / content.name).symlink_to(cast("Path", store.path(content.sha256)))
        self._archives = [self.folder / archive.name for archive in work.data]
        document = (self.folder / SUITE_NAME).read_bytes()
        self.cases = order_suite.read(document).case
        suite = msgspec.toml.decode(document)
        keys = {data_archive.IMAGES: "data", data_archive.ANNOTATIONS: "annotations"}
        for case in suite["case"]:
            if (archive := case.get("data")) is not None:
                with zipfile.ZipFile(self.folder / archive) as opened:
                    tops = {tuple(name.split("/")[:2]) for name in opened.namelist()}
                case.update({keys[kind]: f"../data/{archive}/{kind}/{name}" for kind, name in tops})
        (self.folder / SUITE_NAME).unlink()
        (self.folder / SUITE_NAME).write_text(toml_document(suite))
        self.size_bytes = sum(path.stat().st_size for path in self.folder.iterdir())

    def files(self) -> Iterator[tuple[str, int, IO[bytes]]]:
        """Yield each file with its path below the folder there and its size.

        The suite comes last, so that a part is not a suite.
        """
        for archive in self._archives:
            with zipfile.ZipFile(archive) as opened:
                for entry in opened.infolist():
                    with opened.open(entry) as content:
                        yield f"data/{archive.name}/{entry.filename}", entry.file_size, content
        names = (
            {path.name for path in self.folder.iterdir()}
            - {SUITE_NAME}
            - {archive.name for archive in self._archives}
        )
        for name in (*sorted(names), SUITE_NAME):
            with (self.folder / name).open("rb") as content:
                yield f"suite/{name}", (self.folder / name).stat().st_size, content


def extras_of(cases: Iterable[Settings], models: Path) -> tuple[str, ...]:
    """Return the extras that these cases need.

    They are runtimes for the models in `models`, and a reader of videos.
    """
    offered = set(metadata.metadata("edgemeter").get_all("Provides-Extra") or ())
    extras = set()
    for case in cases:
        runtimes = (
            [case.runtime]
            if isinstance(case.runtime, str)
            else case.runtime or [runtime_for(models / str(case.model))]
        )
        extras |= {EXTRAS.get(runtime, runtime) for runtime in runtimes}
        extras |= {"video"} if is_video(case.data or "") else set()
    return tuple(sorted(extras & offered))


class _BoardRun(contextlib.AbstractContextManager["_BoardRun"]):
    """One `run_there.py` on the board, which ends with the block at the latest.

    `errors` are the errors that `edgemeter run` printed there.

    `interruption`: Ctrl-C or SIGTERM here ended the run there, whose results arrived all the same.
    """

    def __init__(
        self,
        board: Board,
        version: str,
        options: list[str],
        output: IO[bytes],
        note: Callable[[str], None],
    ) -> None:
        self.errors: list[str] = []
        self.interruption: BaseException | None = None
        self.status: int | None = None
        self._login, self._note, self._last_line = board.target.login, note, "no message"
        command = [
            f"{board.facts.root}/releases/{version}/bin/python",
            "-I",
            "-B",
            "-c",
            PROGRAM.read_text(),
        ]
        arguments = [
            "run",
            f"suite/{SUITE_NAME}",
            "--format",
            "json",
            "--no-save",
            "--config",
            "settings.toml",
            *options,
        ]
        self._process = board.start([*command, *arguments], output)
        self._stdin, self._stderr = (
            cast("IO[bytes]", self._process.stdin),
            cast("IO[bytes]", self._process.stderr),
        )
        self._is_ending = threading.Event()

    def __exit__(self, *_: object) -> None:
        self._end_input()
        try:
            self._process.wait(CLOSE_S)
        finally:
            self._process.end()
            self._stderr.close()

    def follow(self, suite: BoardSuite) -> None:
        """Send the suite and report the lines of the run until it ends.

        Ctrl-C ends it there; a second one ends this.
        """
        # If the board cannot run our program, it prints the reason.
        with (
            contextlib.suppress(BrokenPipeError),
            tarfile.open(fileobj=self._stdin, mode="w|") as tar,
        ):
            for name, size_bytes, content in suite.files():
                member = tarfile.TarInfo(name)
                member.size = size_bytes
                tar.addfile(member, content)
        threading.Thread(target=self._beat, name="edgemeter-alive", daemon=True).start()
        try:
            self._show()
        except (KeyboardInterrupt, SystemExit) as interruption:
            interrupts.acknowledge()
            self.interruption = interruption
            self._end_input()
            self._show()
        self.status = interrupts.wait(self._process)

    def records(self, output: bytes) -> list[RunRecord]:
        """Return the runs in the output; raises the reason if there are none."""
        with contextlib.suppress(msgspec.MsgspecError):
            return decode_json(output.partition(b"#edgemeter\n")[2], _BoardDocument).runs
        if self.status == LOST:
            raise TransientError(
                f"{self._login}: the connection was lost during a run: the run there ends, and "
                "its folder is removed now or by the next "
                "run; run it again"
            )
        if self.interruption is not None:
            has_reason = isinstance(self.interruption, KeyboardInterrupt) and self.errors
            raise KeyboardInterrupt(self.errors[-1]) if has_reason else self.interruption
        reason = (
            "; ".join(dict.fromkeys(self.errors))
            or f"edgemeter {install.how_it_ended(self.status or 0)} ({self._last_line})"
        )
        if self.status in {INTERRUPTED, TERMINATED}:
            raise TransientError(f"{self._login}: {reason}: somebody ended it there: run it again")
        raise (ConfigError if self.status == USAGE else UnavailableError)(
            f"{self._login}: {reason}"
        )

    def _show(self) -> None:
        for line in interrupts.lines(self._stderr):
            text = on_one_line(line.decode(errors="replace"))
            if text.startswith("edgemeter: "):
                self.errors.append(text.removeprefix("edgemeter: "))
            elif text:
                self._last_line = text
                self._note(text)

    def _beat(self) -> None:
        while not self._is_ending.wait(BEAT_S):
            with contextlib.suppress(OSError, ValueError):
                self._stdin.write(b"\n")
                self._stdin.flush()

    def _end_input(self) -> None:
        # The end of its input ends the run there.
        self._is_ending.set()
        with contextlib.suppress(OSError, ValueError):
            self._stdin.close()
