"""A session from the command line: options to cases, cases to records, records to outbox and broker, progress to the terminal."""

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from stat import S_IMODE
from typing import TYPE_CHECKING, Any

import click
import msgspec

from edgemeter.agent.base import config, interrupts
from edgemeter.agent.base.errors import (
    FAILED,
    ConfigError,
    EdgemeterError,
    TransientError,
    UnavailableError,
)
from edgemeter.agent.base.figures import count
from edgemeter.agent.base.model_names import model_path
from edgemeter.agent.base.progress import is_quiet, passing_note, warn
from edgemeter.agent.cli.case_options import CASE_KEYS as CASE_KEYS  # noqa: PLC0414 - read from here by the functions of the API
from edgemeter.agent.contract.suite import (
    PATHS,
    Case,
    Suite,
    SuiteFile,
    expand,
    read_file,
    set_keys,
)
from edgemeter.agent.settings.case_keys import checked_settings

if TYPE_CHECKING:
    from edgemeter.agent.bundle.write import BundleRecorder
    from edgemeter.agent.contract.record import RunRecord
    from edgemeter.agent.delivery.delivery import Delivery
    from edgemeter.agent.engine import job
    from edgemeter.agent.ledger.own_runs import OwnRuns
    from edgemeter.agent.session import session
    from edgemeter.agent.session.run_plan import RunPlan


@contextmanager
def session_progress() -> Iterator["session.OnEvent"]:
    """Yield a handler that shows the progress of a session on standard error, unless the command was given `--quiet`."""
    if is_quiet():
        yield lambda _: None
        return
    from edgemeter.agent.cli.session_progress import SessionProgress

    with SessionProgress() as progress:
        yield progress


# The time that an interrupted session waits for receipts; other records stay in the outbox.
HURRIED_S = 5.0


@dataclass(frozen=True, slots=True)
class SessionOutcome:
    """The outcome of a session: records, failed runs, why receipts are missing, the content of the ledger, and the duration.

    `interruption` ended it early (Ctrl-C, SIGTERM): raise it again after printing the rest.
    """

    records: list["RunRecord"]
    errors: list[EdgemeterError]
    undelivered: str | None
    interruption: BaseException | None = None
    saved: str | None = None
    seconds: float | None = None


def suite_of(
    suite: Path | None, models: Path | Sequence[Path] | None, options: Mapping[str, Any]
) -> Suite:
    """Return the suite in a file, its settings overridden by the options; or the suite of these models (paths, or names of the catalogue).

    Raises:
        ConfigError: the file or a model is wrong.
    """
    written, folder = written_suite(suite, models, options)
    return expand(
        written,
        folder,
        None
        if suite
        else ", ".join(Path(model).name for case in written.case for model in case.model or ()),
    )


def written_suite(
    suite: Path | None, models: Path | Sequence[Path] | None, options: Mapping[str, Any]
) -> tuple[SuiteFile, Path]:
    """Return the suite that `suite_of` expands, as you would write it, and the folder of its relative paths. Raises as `suite_of`."""
    case_settings = {key: options[key] for key in CASE_KEYS if options.get(key) is not None}
    if options.get("together"):
        case_settings["together"] = "together"
    # Paths in a suite are relative to its file, those of options to the working directory.
    case_settings |= {
        key: str(Path(case_settings[key]).absolute()) for key in PATHS if key in case_settings
    }
    named = [models] if isinstance(models, Path) else models or ()
    files = [] if suite else [str(model_path(model)) for model in named]
    one_only = [key for key in ("name", "sha256") if key in case_settings]
    if len(files) > 1 and one_only:
        raise ConfigError(
            f"--{one_only[0]} belongs to one model, {len(files)} are given: leave it out, or "
            "write a suite"
        )
    settings = checked_settings(case_settings if suite else {"model": files, **case_settings})
    if suite is None:
        return SuiteFile(
            name="one model" if len(files) == 1 else f"{len(files)} models", case=[settings]
        ), Path.cwd()
    written = read_file(suite)
    cases = [msgspec.structs.replace(case, **set_keys(settings)) for case in written.case]
    return msgspec.structs.replace(written, case=cases), suite.resolve().parent


def single_case(source: Path, options: Mapping[str, Any]) -> Case:
    """Return the one case of a suite (.toml), or of a model.

    Raises:
        ConfigError: the file or the model is wrong, or the suite has several cases.
    """
    is_suite = is_suite_file(source)
    cases = suite_of(source if is_suite else None, None if is_suite else source, options).cases
    if len(cases) != 1:
        labels = ", ".join(case.label for case in cases)
        raise ConfigError(f"suite {str(source)!r} holds {len(cases)} cases ({labels}): leave one")
    return cases[0]


def is_suite_file(source: Path) -> bool:
    """Return whether this is a suite rather than a model: suites are TOML."""
    return source.suffix.lower() == ".toml"


def run_session(
    suite: Suite,
    options: Mapping[str, Any],
    report: Callable[[str], None] = lambda _: None,
    plan: "RunPlan | None" = None,
) -> SessionOutcome:
    """Measure the suite, deliver the records if a broker is named, and return the outcome.

    Notes on the sensors are passed to `report`. The cases of a `plan` were checked before, and it
    receives their outcomes.

    Raises:
        EdgemeterError: nothing could be measured, or no broker answered at the start.
    """
    with passing_note("checking models, data and sensors ..."):
        # Imports take long on a small board.
        from edgemeter.agent.ledger.own_runs import open_own_runs
        from edgemeter.agent.power.detect import check_sensors
        from edgemeter.agent.session import checks, session

        settings = config.read(options["config"])
        identity = session.DeviceIdentity(
            *config.names(options["device"], options["fleet"], settings), settings.role
        )
        check_sensors(options["power"], settings.power, settings.sensors)
        new_recorder = _new_recorder(options, settings)
        refused: list[EdgemeterError] = []
        if plan is None:
            suite, refused = checks.runnable(suite)
        own_runs = open_own_runs(settings) if options.get("save", True) else None
    with ExitStack() as stack:
        delivery = None
        if address := options["broker"] or settings.broker:
            from edgemeter.agent.delivery.delivery import open_delivery

            delivery = open_delivery(identity, settings, address, options["if_no_broker"])
            stack.callback(delivery.close)
        keeping = RecordKeeping(delivery, own_runs, errors=refused)
        interruption = _measure(
            suite, identity, settings, options, report, keeping, new_recorder, plan
        )
        saved = keeping.finish()
        if keeping.errors and not keeping.records:
            for text in list(dict.fromkeys(map(str, keeping.errors)))[1:]:
                click.echo(f"edgemeter: {text}", err=True)
            raise keeping.errors[0]
        undelivered = None
        if delivery is not None:
            # Receipts may take long, and waiting disturbs no run.
            timeout_s = (
                options["delivery_timeout"]
                if interruption is None
                else min(options["delivery_timeout"], HURRIED_S)
            )
            try:
                undelivered_count = delivery.publisher.drain(timeout_s)
            except (KeyboardInterrupt, SystemExit) as error:
                interrupts.acknowledge()
                undelivered_count, interruption = delivery.waiting(), interruption or error
            undelivered = _undelivered(undelivered_count, delivery) if undelivered_count else None
        return SessionOutcome(
            keeping.records, keeping.errors, undelivered, interruption, saved, keeping.seconds
        )


def _measure(
    suite: Suite,
    identity: "session.DeviceIdentity",
    settings: config.Config,
    options: Mapping[str, Any],
    report: Callable[[str], None],
    keeping: "RecordKeeping",
    new_recorder: "Callable[[session.OnEvent], BundleRecorder] | None",
    plan: "RunPlan | None",
) -> BaseException | None:
    """Measure the suite while no other run is in progress on this board; return the interruption.

    `keeping` receives the records.
    """
    from edgemeter.agent.operating.changed_board import quiet_board
    from edgemeter.agent.power.detect import open_sensors
    from edgemeter.agent.session import session
    from edgemeter.agent.verdict.environment_rules import environment_notes
    from edgemeter.agent.verdict.words import text_of

    with ExitStack() as board:
        board.enter_context(quiet_board(config.home(), "edgemeter run", warn))
        sensors, why_no_power = board.enter_context(
            open_sensors(options["power"], settings.power, settings.sensors)
        )
        if why_no_power and (sensors or settings.sensors) and options["power"] is None:
            report(f"power: {why_no_power}")
        for violation in environment_notes():
            report(f"note: {text_of(violation)}")
        on_event = board.enter_context(session_progress())
        if keeping.delivery is not None:
            from edgemeter.agent.session.activity_report import ActivityReport

            on_event = _in_turn(
                ActivityReport(suite.name, keeping.delivery.publisher.report_activity), on_event
            )
            board.callback(keeping.delivery.publisher.report_activity, None)
        recorder = new_recorder(on_event) if new_recorder else None
        bench = (suite, identity, sensors, why_no_power, recorder or on_event, keeping.keep)
        if plan is None and any(case.together for case in suite.cases):
            from edgemeter.agent.session import together

            measured = together.measure(*bench)
        else:
            measured = session.measure(*bench, plan)
        begun_s = time.monotonic()
        interruption = keeping.follow(measured)
    keeping.seconds = time.monotonic() - begun_s
    keeping.errors.extend(recorder.errors if recorder else [])
    return interruption


def _in_turn(first: "session.OnEvent", second: "session.OnEvent") -> "session.OnEvent":
    """Return a handler that passes each event to both."""

    def follow(event: "session.RunBegins | job.Event | session.RunEnds") -> None:
        first(event)
        second(event)

    return follow


@dataclass(slots=True)
class RecordKeeping:
    """The finished runs, however the session ends; a record that neither outbox nor ledger can store is still returned."""

    delivery: "Delivery | None"
    own_runs: "OwnRuns | None" = None
    records: list["RunRecord"] = field(default_factory=list)
    errors: list[EdgemeterError] = field(default_factory=list)
    seconds: float | None = None

    def keep(self, record: "RunRecord") -> "RunRecord":
        """Return the record as stored in the outbox and the ledger."""
        # A run that has ended is stored, even if Ctrl-C comes now.
        with interrupts.deferred():
            self.records.append(record)
            try:
                if self.delivery is not None:
                    self.records[-1] = self.delivery.keep(record)
            except EdgemeterError as error:
                self.errors.append(error)
            if self.own_runs is not None:
                self.records[-1] = self.own_runs.keep(self.records[-1])
        return self.records[-1]

    def finish(self) -> str | None:
        """Return the content of the ledger in words; note why it is incomplete."""
        if self.own_runs is None:
            return None
        saved = self.own_runs.finish()
        if self.own_runs.error is not None:
            self.errors.append(self.own_runs.error)
        return saved

    def follow(
        self, outcomes: "Generator[RunRecord | EdgemeterError, None, None]"
    ) -> BaseException | None:
        """Run the session to its end; return the interruption.

        A closed session has restored the board's settings.
        """
        try:
            with closing(outcomes):
                for outcome in outcomes:
                    if isinstance(outcome, EdgemeterError):
                        self.errors.append(outcome)
        except KeyboardInterrupt as interruption:
            if not self.records:
                raise KeyboardInterrupt(
                    "interrupted before the first run ended: there is no result"
                ) from interruption
            interrupts.acknowledge()
            return KeyboardInterrupt(
                f"interrupted: {count(len(self.records), 'run')} ended, the one in "
                "progress does not count"
            )
        except SystemExit as interruption:
            if not self.records:
                raise
            interrupts.acknowledge()
            return interruption
        return None


def publish_outbox(options: Mapping[str, Any]) -> str:
    """Send the outbox of one device, and return a sentence with the number of records.

    Raises:
        EdgemeterError: no broker is named or answers, receipts for some records did not arrive in
            time, or the rest belongs to a device that was not named.
    """
    from edgemeter.agent.delivery.delivery import open_delivery
    from edgemeter.agent.delivery.outbox_file import OUTBOX, try_again
    from edgemeter.agent.session import session

    settings = config.read(options["config"])
    identity = session.DeviceIdentity(
        *config.names(options["device"], options["fleet"], settings), settings.role
    )
    if not (address := options["broker"] or settings.broker):
        raise ConfigError(
            "no broker is named: give --broker HOST, or set `broker` in the configuration"
        )
    # The broker's limit may have been raised.
    try_again(config.home() / OUTBOX)
    delivery = open_delivery(identity, settings, address, "fail")
    try:
        waiting = delivery.waiting()
        if remaining := delivery.publisher.drain(options["delivery_timeout"]):
            raise TransientError(_undelivered(remaining, delivery))
        counts = delivery.others()
    finally:
        delivery.close()
    if not counts:
        return f"delivered {waiting} records; the outbox is empty"
    counts_text = " and ".join(f"{count} of device {name!r}" for name, count in counts.items())
    message = (
        f"delivered {waiting} records of device {identity.device!r}; the outbox still has "
        f"{counts_text}: send them with --device"
    )
    if not (options["device"] or settings.device):
        raise TransientError(message)
    return message


def session_document(outcome: SessionOutcome) -> bytes:
    from edgemeter.agent.contract.mode_answer import mode_answers

    document: dict[str, object] = {"runs": outcome.records}
    if of_modes := mode_answers(outcome.records):
        document["answer"] = of_modes
    return msgspec.json.encode(document)


def end_session(outcome: SessionOutcome) -> None:
    """Print the errors of a session whose results are shown, and exit accordingly."""
    for message, times in Counter(map(str, outcome.errors)).items():
        click.echo(f"edgemeter: {message}{f' ({times} times)' if times > 1 else ''}", err=True)
    if outcome.interruption is not None:
        raise outcome.interruption
    if outcome.undelivered:
        raise TransientError(outcome.undelivered)
    if outcome.errors:
        sys.exit(FAILED)


def write_document(path: Path, document: bytes, errors: list[EdgemeterError]) -> None:
    """Write the document to a file, atomically; a failure is added to `errors`."""
    from edgemeter.agent.base.durable_file import replacing

    try:
        if path.is_symlink() or (
            path.exists() and not (path.is_file() and os.access(path.parent, os.W_OK))
        ):
            # Standard output, a pipe, or a file that cannot be replaced.
            path.write_bytes(document + b"\n")
            return
        with replacing(path, S_IMODE(path.stat().st_mode) if path.exists() else 0o644) as file:
            file.write(document + b"\n")
    except OSError as error:
        remedy = "make room there, or use another file (--output)"
        errors.append(
            UnavailableError(
                f"cannot write the results to {str(path)!r} ({error.strerror}): {remedy}"
            )
        )


def _undelivered(remaining: int, delivery: "Delivery") -> str:
    return (
        f"{remaining} records are not delivered: {delivery.publisher.why_left()}; `edgemeter "
        "agent publish` sends them later"
    )


def _new_recorder(
    options: Mapping[str, Any], settings: config.Config
) -> "Callable[[session.OnEvent], BundleRecorder] | None":
    """Return a factory of the writer of bundles, if a folder was named; raises ConfigError if they cannot be written there."""
    if (folder := options.get("bundle")) is None:
        return None
    from edgemeter.agent.bundle import signature
    from edgemeter.agent.bundle.write import BundleRecorder, check_folder

    check_folder(folder)
    key = settings.signing_key_file
    return partial(BundleRecorder, folder, signer=signature.signer(Path(key)) if key else None)
