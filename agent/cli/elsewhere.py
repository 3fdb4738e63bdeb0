"""`--on`: measure on devices of a fleet, or on a board over SSH; results are shown and kept as if they were measured here.

The package `provisioning` does it; it is reached by name, as is the collector's ledger, in which the results of a fleet arrive.
"""

import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import click
import msgspec
from click.core import ParameterSource

from edgemeter.agent.base import config
from edgemeter.agent.base.errors import ConfigError, EdgemeterError
from edgemeter.agent.base.figures import count, duration
from edgemeter.agent.cli import run_session
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.suite import PATHS, Case, SuiteFile, expand, set_keys
from edgemeter.agent.session.run_plan import longest_s

if TYPE_CHECKING:
    from edgemeter.agent.contract.case_settings import Settings
    from edgemeter.agent.ledger.ledger import Ledger

_MEASURE = "edgemeter.provisioning.elsewhere.run:measure_elsewhere"
_LEDGER_PLACE = "edgemeter.collector.ledgers.place:ledger_place"
_OPEN_LEDGER = "edgemeter.collector.ledgers.place:open_ledger"
# Of what is measured elsewhere they would change nothing.
_HERE = (
    "broker", "if_no_broker", "device", "fleet", "bundle", "predictions",
)  # fmt: skip
POLL_S = 0.5
RESULTS_S = 60.0
# For what no setting tells: fetching, a language model's queries, accuracy on many images.
UNKNOWN_S = 6 * 3600.0
LONGEST_S = 604_800.0


@dataclass(frozen=True, slots=True)
class RemoteWork:
    """The work for a device elsewhere: the suite, the folder of its paths, and the options of the command.

    Results are read from `results` where they do not come another way; `report` prints a line, `announce` how long it takes, once.
    """

    written: SuiteFile
    folder: Path
    options: Mapping[str, Any]
    timeout_s: float
    results: "CollectorLedger"
    report: Callable[[str], None]
    announce: Callable[[], None]


@dataclass(frozen=True, slots=True)
class RemoteOutcome:
    """The records of one device, and what went wrong there."""

    device: str
    records: Sequence[RunRecord] = ()
    errors: Sequence[EdgemeterError] = ()


@dataclass(frozen=True, slots=True)
class CollectorLedger:
    """The ledger in which a fleet's results arrive, opened for each look."""

    place: str | None
    wait_s: float

    def __str__(self) -> str:
        """Return where it is."""
        return str(self._address())

    def check(self) -> None:
        """Raise EdgemeterError if it cannot be read."""
        self._open().close()

    def find(self, runs: Mapping[str, Collection[str]]) -> dict[str, RunRecord]:
        """Return the runs of these devices by their ids, once all are there; those that have not come in time are absent."""
        end_s = time.monotonic() + self.wait_s
        devices = {run: device for device, ids in runs.items() for run in ids}
        records: dict[str, RunRecord] = {}
        while True:
            with self._open() as ledger:
                query = "SELECT row FROM runs WHERE device = ? AND id = ?"
                rows = [row for run, device in devices.items() if run not in records for (row,) in ledger.query(query, device, run)]
                records |= {stored.record.id: stored.record for stored in ledger.records(with_samples=True, rows=sorted(rows))}
            if records.keys() >= devices.keys() or time.monotonic() >= end_s:
                return records
            time.sleep(POLL_S)

    def _open(self) -> "Ledger":
        ledger: Ledger = resolve_name(_OPEN_LEDGER)(self._address(), "read")
        return ledger

    def _address(self) -> Any:
        from edgemeter.agent.ledger.ledger import default_path

        return default_path() if self.place is None else resolve_name(_LEDGER_PLACE)(self.place)


def measure(written: SuiteFile, folder: Path, options: Mapping[str, Any], report: Callable[[str], None]) -> run_session.SessionOutcome:
    """Measure a suite, whose paths are relative to `folder`, where `--on` says, keep the records here too, and return the outcome.

    Raises:
        EdgemeterError: nothing was measured.
    """
    from edgemeter.agent.ledger.own_runs import open_own_runs

    _refuse_options_of_here(options["on"])
    cases = expand(written, folder).cases
    own_runs = open_own_runs(config.read(options["config"])) if options.get("save", True) else None
    work = _work(written, folder, cases, options, report, f"measuring {count(len(cases), 'case')}: {_at_most(cases)}")
    keeping = run_session.RecordKeeping(None, own_runs)

    def outcomes() -> Generator[RunRecord | EdgemeterError, None, None]:
        for outcome in _outcomes(options["on"], work):
            for record in outcome.records:
                yield keeping.keep(record)
            yield from outcome.errors

    try:
        interruption = keeping.follow(outcomes())
    except KeyboardInterrupt as error:
        for text in dict.fromkeys(map(str, keeping.errors)):
            click.echo(f"edgemeter: {text}", err=True)
        raise KeyboardInterrupt("interrupted before a result arrived") if keeping.errors else error from None
    saved = keeping.finish()
    if keeping.errors and not keeping.records:
        for text in dict.fromkeys(map(str, keeping.errors[1:])):
            report(f"edgemeter: {text}")
        raise keeping.errors[0]
    return run_session.SessionOutcome(keeping.records, keeping.errors, None, interruption, saved)


def _outcomes(on: Sequence[str], work: RemoteWork) -> Iterator[RemoteOutcome]:
    outcomes: Iterator[RemoteOutcome] = resolve_name(_MEASURE)(on, work)
    return outcomes


def _work(
    written: SuiteFile, folder: Path, cases: Sequence[Case], options: Mapping[str, Any], report: Callable[[str], None], text: str
) -> RemoteWork:
    known_s = sum(map(longest_s, cases))
    results = CollectorLedger(options.get("ledger"), options.get("delivery_timeout", RESULTS_S))
    return RemoteWork(written, folder, options, min(LONGEST_S, 2 * known_s + UNKNOWN_S), results, report, cache(partial(report, text)))


def _at_most(cases: Sequence[Case]) -> str:
    return f"at most {duration(sum(map(longest_s, cases)))}, without what the data takes"


def in_one_suite(models: Sequence[Path], options: Mapping[str, Any], matters_ratio: float) -> SuiteFile:
    """Return the cases of models, or of suites of one case each, in one suite that compares them, with paths from the root."""
    cases: list[Settings] = []
    for model in models:
        is_suite = run_session.is_suite_file(model)
        written, folder = run_session.written_suite(model if is_suite else None, None if is_suite else model, options)
        for case in written.case:
            merged = msgspec.structs.replace(written.defaults, **set_keys(case))
            paths = {key: str(folder / value) for key in PATHS if (value := getattr(merged, key)) is not None}
            names = [merged.model] if isinstance(merged.model, str) else merged.model or []
            files = [str(folder / name) if (folder / name).exists() else name for name in names]
            cases.append(msgspec.structs.replace(merged, model=files, **paths))
    return SuiteFile(name="compare", case=cases, matters_ratio=matters_ratio)


def _refuse_options_of_here(on: Sequence[str]) -> None:
    """Raise ConfigError if the command line has an option that would change nothing elsewhere."""
    context = click.get_current_context(silent=True)
    # A board over SSH has no configuration that names its sensors.
    names = _HERE if all(value.startswith("ssh://") for value in on) else ("power", *_HERE)
    for param in context.command.params if context else ():
        if context and param.name in names and context.get_parameter_source(param.name) is ParameterSource.COMMANDLINE:
            raise ConfigError(f"{max(param.opts, key=len)} is for measurements on this machine: leave it out with --on")
