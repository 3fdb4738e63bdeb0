"""What `edgemeter run` and `edgemeter publish` do: options to cases, cases to records, records to the outbox and the broker."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from edgemeter.agent import config, progress, records
from edgemeter.agent.bundle import signature
from edgemeter.agent.bundle.recorder import Recorder
from edgemeter.agent.delivery.way import open_way
from edgemeter.agent.engine import preflight, session, suites
from edgemeter.agent.errors import ConfigError, EdgemeterError, TransientError
from edgemeter.agent.power import opening

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


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a session: the records, the runs that failed, and why receipts are missing, where they are."""

    records: list[records.RunRecord]
    errors: list[EdgemeterError]
    undelivered: str | None


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
    settings = config.read(options["config"])
    who = session.Identity(options["device"] or settings.device or config.this_device(), options["fleet"] or settings.fleet)
    session.check(suite)
    with ExitStack() as stack:
        way = open_way(who, settings, options["broker"], options["if_no_broker"])
        if way:
            stack.callback(way.close)
        sensors, why_no_power = stack.enter_context(opening.opened(options["power"], settings.power, settings.sensors))
        if sensors and why_no_power:
            say(f"power: {why_no_power}")
        for note in preflight.notes():
            say(f"note: {note}")
        tell = stack.enter_context(progress.Bars()) if progress.on_terminal() else _silence
        recorder = _recorder(options, settings, tell)
        outcomes = list(session.measure(suite, who, sensors, why_no_power, recorder or tell, way.keep if way else _unkept))
        measured = [outcome for outcome in outcomes if isinstance(outcome, records.RunRecord)]
        errors = [outcome for outcome in outcomes if isinstance(outcome, EdgemeterError)]
        if errors and not measured:
            raise errors[0]
        errors.extend(recorder.errors if recorder else [])
        left = way.drain(options["delivery_timeout"]) if way else 0
        return Outcome(measured, errors, _undelivered(left, way.why_left()) if way and left else None)


def publish(options: Mapping[str, Any]) -> int:
    """Send what the outbox holds and return how many records it was.

    Raises:
        EdgemeterError: no broker is named or answers, or receipts for some records did not come in time.
    """
    settings = config.read(options["config"])
    who = session.Identity(options["device"] or settings.device or config.this_device(), options["fleet"] or settings.fleet)
    way = open_way(who, settings, options["broker"], "fail")
    if way is None:
        message = "no broker is named: give --broker HOST, or set `broker` in the configuration"
        raise ConfigError(message)
    try:
        held = way.waiting()
        left = way.drain(options["delivery_timeout"])
        if left:
            raise TransientError(_undelivered(left, way.why_left()))
    finally:
        way.close()
    return held


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


def _unkept(record: records.RunRecord) -> records.RunRecord:
    return record
