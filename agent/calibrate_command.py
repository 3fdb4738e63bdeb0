"""What `edgemeter calibrate observer` does: options to a case, pairs of runs to an effect, the effect to its file."""

import logging
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from edgemeter.agent import config, progress, run_command
from edgemeter.agent.engine import session
from edgemeter.agent.engine.observing import observer as calibration
from edgemeter.agent.engine.observing import observer_store
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.jobs import run_lock
from edgemeter.agent.machine import fingerprint
from edgemeter.agent.power import opening

logger = logging.getLogger(__name__)


def observer(suite: Path | None, model: Path | None, pairs: int, options: Mapping[str, Any]) -> tuple[calibration.Calibrated, Path]:
    """Measure the one case of the suite, or the model, and return what was found and the file that keeps it.

    Raises:
        EdgemeterError: the case is wrong, a run failed, or the file cannot be written.
    """
    settings = config.read(options["config"])
    who = session.Identity(*config.names(options["device"], options["fleet"], settings))
    cases = run_command.suite_of(suite, model, {**dict.fromkeys(run_command.CASE_OPTIONS), **options})
    if len(cases.cases) != 1:
        message = f"the suite holds {len(cases.cases)} cases ({', '.join(one.label for one in cases.cases)}): leave one"
        raise ConfigError(message)
    with ExitStack() as stack:
        stack.enter_context(run_lock.held(config.home(), "edgemeter calibrate", logger.warning))
        sensors, _ = stack.enter_context(opening.opened(options["power"], settings.power, settings.sensors))
        tell = stack.enter_context(progress.Bars()) if progress.on_terminal() else _silence
        found = calibration.calibrate(cases.cases[0], who, sensors, pairs, tell)
    return found, observer_store.keep(found.effect, fingerprint.read())


def document(found: calibration.Calibrated) -> bytes:
    """Return the effect, every pair and every doubt as JSON."""
    return msgspec.json.encode(found)


def _silence(_: object) -> None:
    pass
