"""What `edgemeter run` and `edgemeter publish` do: options to cases, cases to records, records to the outbox and the broker."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from edgemeter.agent import config, progress
from edgemeter.agent.bundle import signature
from edgemeter.agent.bundle.recorder import Recorder
from edgemeter.agent.delivery.way import Way, open_way
from edgemeter.agent.engine import preflight, session, suites
from edgemeter.agent.errors import ConfigError, EdgemeterError, TransientError
from edgemeter.agent.jobs import run_lock
from edgemeter.agent.power import opening
from edgemeter.agent.records import RunRecord

# Options of `run` that are settings of a case: given with a suite they hold for all its cases.
CASE_OPTIONS = (
    "images",
    "annotations",
    "subset",
    "seed",
    "corrupt",
    "runtime",
    "backend",
    "threads",
    "scenario",
    "samples_per_query",
    "batch",
    "rate_per_s",
    "mode",
    "minutes",
    "cpus",
    "start_below_c",
    "cool_down_limit_s",
    "repeats",
    "accuracy",
    "reference_accuracy",
    "gate",
    "agreement",
    "precision",
    "name",
    "sha256",
    "role",
    "estimate_power_w",
)


# How long an interrupted session waits for receipts; what has none stays in the outbox.
HURRIED_S = 5.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a session: the records, the runs that failed, and why receipts are missing, where they are.

    `interruption` is what ended it early (Ctrl-C, SIGTERM): raise it again when the rest is printed.
    """

    records: list[RunRecord]
    errors: list[EdgemeterError]
    undelivered: str | None
    interruption: BaseException | None = None


def suite_of(suite: Path | None, model: Path | None, options: Mapping[str, Any]) -> suites.Suite:
    """Return the suite in a file, with what the options say instead of what it says; or the suite of one model.

    Raises:
        ConfigError: the file or the model is wrong.
    """
    said = {key: options[key] for key in CASE_OPTIONS if options[key] is not None}
    # Paths of a suite are relative to its file, those of options to the working directory.
    said |= {key: str(Path(said[key]).absolute()) for key in ("images", "annotations") if key in said}
    if suite is not None:
        return suites.read(suite, _settings(said))
    written = suites.SuiteFile(name="one model", case=[_settings({"model": str(model), **said})])
    return suites.expand(written, Path.cwd())


def _settings(said: Mapping[str, Any]) -> suites.Settings:
    try:
        return msgspec.convert(said, suites.Settings)
    except msgspec.ValidationError as error:
        message = f"wrong option: {error}"
        raise ConfigError(message) from error


def run(suite: suites.Suite, options: Mapping[str, Any], say: Callable[[str], None] = lambda _: None) -> Outcome:
    """Measure the suite, deliver the records where a broker was named, and return what came of it.

    What speaks against measuring now is told to `say` before the first run.

    Raises:
        EdgemeterError: nothing could be measured, or no broker answered at the start.
    """
    settings = config.said(options)
    who = session.Identity(*config.names(options["device"], options["fleet"], settings))
    session.check(suite)
    with ExitStack() as stack:
        way = open_way(who, settings, options["broker"], options["if_no_broker"])
        if way:
            stack.callback(way.close)
        board = stack.enter_context(ExitStack())
        board.enter_context(run_lock.held(config.home(), "edgemeter run", say))
        sensors, why_no_power = stack.enter_context(opening.opened(options["power"], settings.power, settings.sensors))
        if sensors and why_no_power:
            say(f"power: {why_no_power}")
        for note in preflight.notes():
            say(f"note: {note}")
        tell = stack.enter_context(progress.Bars()) if progress.on_terminal() else _silence
        recorder = _recorder(options, settings, tell)
        keeping = Keeping(way)
        interruption = _follow(session.measure(suite, who, sensors, why_no_power, recorder or tell, keeping.keep), keeping)
        # Receipts may take long, and disturb nobody.
        board.close()
        if keeping.errors and not keeping.records:
            raise keeping.errors[0]
        keeping.errors.extend(recorder.errors if recorder else [])
        if interruption is None:
            left, interruption = _drain(way, options["delivery_timeout"])
        else:
            left, _ = _drain(way, min(options["delivery_timeout"], HURRIED_S))
        why = _undelivered(left, way.why_left()) if way and left else None
        return Outcome(keeping.records, keeping.errors, why, interruption)


@dataclass(slots=True)
class Keeping:
    """The runs that have ended, however the session ends; a record that the outbox cannot take is still returned, with the error."""

    way: Way | None
    records: list[RunRecord] = field(default_factory=list)
    errors: list[EdgemeterError] = field(default_factory=list)

    def keep(self, record: RunRecord) -> RunRecord:
        """Return the record as the outbox keeps it, and note it."""
        self.records.append(record)
        try:
            if self.way is not None:
                self.records[-1] = self.way.keep(record)
        except EdgemeterError as error:
            self.errors.append(error)
        return self.records[-1]


def _follow(outcomes: Iterator[RunRecord | EdgemeterError], keeping: Keeping) -> BaseException | None:
    """Let the session run to its end; return what interrupted it."""
    try:
        for outcome in outcomes:
            if isinstance(outcome, EdgemeterError):
                keeping.errors.append(outcome)
    except (KeyboardInterrupt, SystemExit) as interruption:
        if not keeping.records:
            raise
        return interruption
    return None


def _drain(way: Way | None, timeout_s: float) -> tuple[int, BaseException | None]:
    """Return how many receipts are missing, and what interrupted the wait for them."""
    if way is None:
        return 0, None
    try:
        return way.drain(timeout_s), None
    except (KeyboardInterrupt, SystemExit) as interruption:
        return way.waiting(), interruption


def publish(options: Mapping[str, Any]) -> str:
    """Send what the outbox holds of one device and return, as a sentence, how many records it was.

    Raises:
        EdgemeterError: no broker is named or answers, receipts for some records did not come in time, or what is left is of a device
            that nobody named.
    """
    settings = config.said(options)
    who = session.Identity(*config.names(options["device"], options["fleet"], settings))
    way = open_way(who, settings, options["broker"], "fail")
    if way is None:
        message = "no broker is named: give --broker HOST, or set `broker` in the configuration"
        raise ConfigError(message)
    try:
        held = way.waiting()
        left = way.drain(options["delivery_timeout"])
        if left:
            raise TransientError(_undelivered(left, way.why_left()))
        others = way.others()
    finally:
        way.close()
    if not others:
        return f"delivered {held} records; the outbox is empty"
    kept = " and ".join(f"{count} of device {name!r}" for name, count in others.items())
    message = f"delivered {held} records of device {who.device!r}; the outbox still holds {kept}: send them with --device"
    if not (options["device"] or settings.device):
        raise TransientError(message)
    return message


def document(outcome: Outcome) -> bytes:
    """Return `{"runs": [record, ...]}` as JSON."""
    return msgspec.json.encode({"runs": outcome.records})


def _undelivered(left: int, why: str) -> str:
    return f"{left} records are not delivered: {why}; `edgemeter publish` sends them later"


def _recorder(options: Mapping[str, Any], settings: config.Config, tell: session.Tell) -> Recorder | None:
    """Return what writes a bundle of each run, where a folder for them was named."""
    folder = options.get("bundle")
    if folder is None:
        return None
    key = options.get("signing_key_file") or settings.signing_key_file
    suite = options.get("suite_file")
    return Recorder(folder, tell, None if suite is None else suite.read_bytes(), signature.signer(Path(key)) if key else None)


def _silence(_: object) -> None:
    pass
