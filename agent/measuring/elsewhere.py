"""`--on ssh://`: boards measure over SSH; their records are stored as if they were measured here.

The package `provisioning` does the work; it is imported by name.
"""

import logging
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

import msgspec

from edgemeter.agent.base import config
from edgemeter.agent.base.errors import ConfigError, EdgemeterError
from edgemeter.agent.base.number_text import count, duration
from edgemeter.agent.contract.case_settings import Settings
from edgemeter.agent.contract.suite import PATHS, SuiteFile, expand, set_keys
from edgemeter.agent.ledger.own_runs import open_own_runs
from edgemeter.agent.measuring.measure_suite import RecordKeeping, SessionOutcome
from edgemeter.agent.measuring.settings import SessionSettings
from edgemeter.agent.measuring.suites import is_suite_file, written_suite
from edgemeter.agent.session.run_plan import longest_s

if TYPE_CHECKING:
    from edgemeter.agent.contract.record import RunRecord

logger = logging.getLogger(__name__)
_MEASURE = "edgemeter.provisioning.elsewhere.over_ssh:measure_on_boards"


def measure_on_boards(
    written: SuiteFile,
    folder: Path,
    settings: SessionSettings,
    report: Callable[[str], None],
) -> SessionOutcome:
    """Measure a suite on the boards `on` of the settings, and return the outcome.

    The records are stored here. Paths of the suite are relative to `folder`.

    Raises:
        EdgemeterError: nothing was measured.
    """
    for value in settings.on:
        if "://" not in value:
            command = f"edgemeter fleet run SUITE --on {shlex.quote(value)}"
            raise ConfigError(
                f"--on takes ssh://USER@HOST, not {value!r}: for devices of the "
                f"fleet, use `{command}`"
            )
    cases = expand(written, folder).cases
    own_runs = open_own_runs(config.read(settings.config)) if settings.save else None
    outcomes: Iterator[RunRecord | EdgemeterError] = resolve_name(_MEASURE)(
        settings, written, folder, report
    )
    limit_text = duration(sum(map(longest_s, cases)))
    report(
        f"measuring {count(len(cases), 'case')}: at most {limit_text} on a board, plus the "
        "evaluation of the data"
    )
    keeping = RecordKeeping(None, own_runs)
    try:
        interruption = keeping.follow(
            outcome if isinstance(outcome, EdgemeterError) else keeping.keep(outcome)
            for outcome in outcomes
        )
    except KeyboardInterrupt as error:
        for text in dict.fromkeys(map(str, keeping.errors)):
            logger.warning("edgemeter: %s", text)
        raise (
            KeyboardInterrupt("interrupted before a result arrived") if keeping.errors else error
        ) from None
    saved = keeping.finish()
    keeping.require_records()
    return SessionOutcome(keeping.records, keeping.errors, interruption=interruption, saved=saved)


def in_one_suite(models: Sequence[Path], settings: Settings, matters_ratio: float) -> SuiteFile:
    """Return one suite that compares the cases of these models.

    They may also be suites of one case each. Paths are absolute.
    """
    cases: list[Settings] = []
    for model in models:
        is_suite = is_suite_file(model)
        written, folder = written_suite(
            model if is_suite else None, None if is_suite else model, settings
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
