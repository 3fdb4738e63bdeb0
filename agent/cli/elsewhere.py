"""`--on ssh://`: measure on boards over SSH; results are shown and stored as if they were measured here.

The package `provisioning` does the work; it is imported by name.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from edgemeter.agent.contract.suite import PATHS, SuiteFile, expand, set_keys
from edgemeter.agent.session.run_plan import longest_s

if TYPE_CHECKING:
    from edgemeter.agent.contract.case_settings import Settings
    from edgemeter.agent.contract.record import RunRecord

_MEASURE = "edgemeter.provisioning.elsewhere.over_ssh:measure_on_boards"
# These options have no effect on a measurement on another board.
_HERE = ("broker", "if_no_broker", "device", "fleet", "bundle", "predictions")


def measure(
    written: SuiteFile, folder: Path, options: Mapping[str, Any], report: Callable[[str], None]
) -> run_session.SessionOutcome:
    """Measure a suite, with paths relative to `folder`, on the boards of `--on`, store the records here, and return the outcome.

    Raises:
        EdgemeterError: nothing was measured.
    """
    from edgemeter.agent.ledger.own_runs import open_own_runs

    _check_options(options["on"])
    cases = expand(written, folder).cases
    own_runs = open_own_runs(config.read(options["config"])) if options.get("save", True) else None
    outcomes: Iterator[RunRecord | EdgemeterError] = resolve_name(_MEASURE)(
        options["on"], written, folder, options, report
    )
    limit_text = duration(sum(map(longest_s, cases)))
    report(
        f"measuring {count(len(cases), 'case')}: at most {limit_text} on a board, plus the "
        "evaluation of the data"
    )
    keeping = run_session.RecordKeeping(None, own_runs)
    try:
        interruption = keeping.follow(
            outcome if isinstance(outcome, EdgemeterError) else keeping.keep(outcome)
            for outcome in outcomes
        )
    except KeyboardInterrupt as error:
        for text in dict.fromkeys(map(str, keeping.errors)):
            click.echo(f"edgemeter: {text}", err=True)
        raise (
            KeyboardInterrupt("interrupted before a result arrived") if keeping.errors else error
        ) from None
    saved = keeping.finish()
    if keeping.errors and not keeping.records:
        for text in dict.fromkeys(map(str, keeping.errors[1:])):
            report(f"edgemeter: {text}")
        raise keeping.errors[0]
    return run_session.SessionOutcome(keeping.records, keeping.errors, None, interruption, saved)


def in_one_suite(
    models: Sequence[Path], options: Mapping[str, Any], matters_ratio: float
) -> SuiteFile:
    """Return one suite that compares the cases of these models, or suites of one case each, with absolute paths."""
    cases: list[Settings] = []
    for model in models:
        is_suite = run_session.is_suite_file(model)
        written, folder = run_session.written_suite(
            model if is_suite else None, None if is_suite else model, options
        )
        for case in written.case:
            merged = msgspec.structs.replace(written.defaults, **set_keys(case))
            paths = {
                key: str(folder / value)
                for key in PATHS
                if (value := getattr(merged, key)) is not None
            }
            names = [merged.model] if isinstance(merged.model, str) else merged.model or []
            files = [str(folder / name) if (folder / name).exists() else name for name in names]
            cases.append(msgspec.structs.replace(merged, model=files, **paths))
    return SuiteFile(name="compare", case=cases, matters_ratio=matters_ratio)


def _check_options(on: Sequence[str]) -> None:
    """Raise ConfigError if `--on` names devices of a fleet, or an option has no effect on another board."""
    for value in on:
        if "://" not in value:
            command = f"edgemeter fleet run SUITE --on {shlex.quote(value)}"
            raise ConfigError(
                f"--on takes ssh://USER@HOST, not {value!r}: for devices of the "
                f"fleet, use `{command}`"
            )
    context = click.get_current_context(silent=True)
    for param in context.command.params if context else ():
        if (
            context
            and param.name in _HERE
            and context.get_parameter_source(param.name) is ParameterSource.COMMANDLINE
        ):
            raise ConfigError(
                f"{max(param.opts, key=len)} is for measurements on this machine: leave "
                "it out with --on"
            )
