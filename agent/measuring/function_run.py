"""A run of a function in the process of its caller.

It is observed, judged and recorded like every run.
"""

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from edgemeter.agent.base import config, interrupts
from edgemeter.agent.contract.case_settings import Settings
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.suite import Case, SuiteFile, expand
from edgemeter.agent.engine import isolation, job
from edgemeter.agent.engine.callables import name_of, sha256_of
from edgemeter.agent.engine.function_subject import FunctionCall, measure_call
from edgemeter.agent.machine import fingerprint
from edgemeter.agent.machine.machine import THIS_MACHINE
from edgemeter.agent.measuring.settings import SessionSettings
from edgemeter.agent.operating.changed_board import quiet_board
from edgemeter.agent.power.detect import open_sensors
from edgemeter.agent.session.quiet import QuietMoment
from edgemeter.agent.session.run_record import PlannedRun, SessionContext
from edgemeter.agent.session.session import OnEvent, measure_run

# The settings of a case that apply to a function; others are about models, data or a separate
# process.
SETTINGS = ("mode", "seconds", "idle_seconds", "name", "seed")


def case_of(target: FunctionCall, settings: Settings) -> Case:
    """Return the case of a function."""
    written = msgspec.structs.replace(
        settings,
        model="function",
        runtime=job.FUNCTION_RUNTIME,
        name=settings.name or name_of(target.function),
    )
    return expand(SuiteFile(name="function", case=[written]), Path.cwd()).cases[0]


def measure_function(
    target: FunctionCall,
    case: Case,
    settings: SessionSettings,
    report: Callable[[str], None],
    on_event: OnEvent,
) -> RunRecord:
    """Return the record of a run of a function.

    No other run is in progress on this board meanwhile. `report` is told of a wait for another run.

    Raises:
        EdgemeterError: the function cannot be measured, or failed.
    """
    configuration = config.read(settings.config)
    with (
        quiet_board(config.home(), "edgemeter.measure", report),
        open_sensors(settings.power, configuration.power, configuration.sensors) as (
            sensors,
            why_no_power,
        ),
    ):
        device, fleet = config.names(settings.device, settings.fleet, configuration)
        role = configuration.role
        context = SessionContext("function", device, fleet, role, fingerprint.read(), 0)
        run = PlannedRun(case, 0, case.seed, sha256_of(target.function), context)
        QuietMoment(THIS_MACHINE, time.monotonic, interrupts.sleep).wait(on_event)
        return measure_run(run, sensors, why_no_power, on_event, partial(_execute, target))


def _execute(target: FunctionCall, work: job.RunJob, follow: isolation.Follow) -> job.MeasuredRun:
    return measure_call(work, target, lambda event: follow(event, os.getpid()))
