"""A session: the runs of a plan, each in its own process; each becomes a record."""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import msgspec

from edgemeter.agent.base import durable_file, interrupts
from edgemeter.agent.base.config import home
from edgemeter.agent.base.errors import ConfigError, EdgemeterError
from edgemeter.agent.base.toml import parse_toml
from edgemeter.agent.base.types import Role
from edgemeter.agent.contract import model_file
from edgemeter.agent.contract.model_formats import SERVED
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.suite import Case, Suite
from edgemeter.agent.energy.sampler import Sampler, SensorTrace, pack_traces
from edgemeter.agent.engine import isolation, job
from edgemeter.agent.machine import clock, fingerprint
from edgemeter.agent.machine.machine import THIS_MACHINE
from edgemeter.agent.machine.served_memory import served_memory, served_processes
from edgemeter.agent.operating import changed_board
from edgemeter.agent.power import PowerSensor
from edgemeter.agent.power.detect import described
from edgemeter.agent.session import checks, run_record
from edgemeter.agent.session.observation import Observation
from edgemeter.agent.session.quiet import QuietMoment, settle
from edgemeter.agent.session.run_energy import energy_of_run
from edgemeter.agent.session.run_plan import RunPlan
from edgemeter.agent.session.run_record import PlannedRun, SessionContext


@dataclass(frozen=True, slots=True)
class RunBegins:
    """Run `place` (from 1) of `total` begins; all are expected to take `planned_s`.

    `beside` are labels of cases at the same time.
    """

    case: Case
    repeat: int
    place: int
    total: int
    planned_s: float
    beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunEnds:
    """The run ended with a record or an error."""

    outcome: RunRecord | EdgemeterError


@dataclass(frozen=True, slots=True)
class RunsEnd:
    """All runs have ended, and the board is free; the delivery of the last records follows."""


SessionEvent: TypeAlias = RunBegins | job.Event | RunEnds | RunsEnd
OnEvent = Callable[[SessionEvent], None]


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """The measuring device."""

    device: str
    fleet: str
    role: Role = "device"


def measure(
    suite: Suite,
    identity: DeviceIdentity,
    sensors: Mapping[str, PowerSensor],
    why_no_power: str,
    on_event: OnEvent,
    keep: Callable[[RunRecord], RunRecord] = lambda record: record,
    plan: RunPlan | None = None,
) -> Generator[RunRecord | EdgemeterError, None, None]:
    """Measure the runs of the plan, and yield each record, or the error of its run.

    A record is as `keep` returned it. Errors for cases that this machine cannot measure come first.
    Without a plan, each case is measured until it is precise enough or its difference is decided.
    The board is set to the operating point of each run and restored at the end: close the
    generator.

    Raises:
        ConfigError: as `check`.
        UnavailableError: as `check` and `changed_board`.
    """
    refused = checks.check(suite)
    yield from checks.by_reason(suite, refused)
    if plan is None:
        plan = RunPlan(
            [case for number, case in enumerate(suite.cases) if number not in refused],
            suite.matters_ratio,
        )
    started_at_ns = clock.wall_ns(time.monotonic_ns())
    context = SessionContext(
        suite.name,
        identity.device,
        identity.fleet,
        identity.role,
        fingerprint.read(),
        started_at_ns,
    )
    hashes: dict[str, str] = {}
    quiet = QuietMoment(THIS_MACHINE, time.monotonic, interrupts.sleep)

    def measure_one(case: Case, repeat: int) -> RunRecord:
        hashes[case.model] = hashes.get(case.model) or checks.sha256(case.model)
        now, point = context, None
        if board is not None:
            point, is_written = board.set(case.operating_point)
            if is_written:
                settle(THIS_MACHINE, time.monotonic, interrupts.sleep, on_event)
            now = replace(context, environment=fingerprint.read())
        run = PlannedRun(case, repeat, case.seed + repeat, hashes[case.model], now, point)
        if case.runtime != "replay":  # A replay is not disturbed.
            quiet.wait(on_event)
        return keep(measure_run(run, sensors, why_no_power, on_event))

    points = [case.operating_point for case in suite.cases if case.operating_point]
    with changed_board.changed_board(home(), points) if points else nullcontext() as board:
        for number, (case, repeat) in enumerate(plan, 1):
            interrupts.check()
            begun_s = time.monotonic()
            on_event(RunBegins(case, repeat, number, *plan.expected()))
            outcome: RunRecord | EdgemeterError
            try:
                outcome = measure_one(case, repeat)
            except EdgemeterError as error:
                outcome = error
            plan.note(outcome, time.monotonic() - begun_s)
            on_event(RunEnds(outcome))
            yield outcome


def measure_run(
    run: PlannedRun,
    sensors: Mapping[str, PowerSensor],
    why_no_power: str,
    on_event: OnEvent,
    execute: Callable[[job.RunJob, isolation.Follow], job.MeasuredRun] | None = None,
) -> RunRecord:
    """Return the record of one run.

    `execute`, by default a process of its own, measures it while power and conditions are read.

    Raises:
        EdgemeterError: the run failed.
    """
    work = run_job(run, sensors)
    observation = Observation(sensors, served=partial(served_here, Path(run.case.model)))
    return observed_run(
        run,
        observation,
        observation.sampler,
        why_no_power,
        on_event,
        partial(execute or isolation.run_isolated, work),
    )


def observed_run(
    run: PlannedRun,
    observation: Observation,
    sampler: Sampler | None,
    why_no_power: str,
    on_event: OnEvent,
    execute: Callable[[isolation.Follow], job.MeasuredRun],
) -> RunRecord:
    """Return the record of an observed run; runs at the same time share the sampler."""
    observation.inspect_before()
    monotonic_ns = time.monotonic_ns()

    def follow(event: job.Event, pid: int) -> None:
        observation.follow(event, pid)
        on_event(event)

    try:
        measured = execute(follow)
    finally:
        observation.end()
    observation.inspect_after()
    traces = list(sampler.traces().values()) if sampler else []
    return record_of(run, measured, monotonic_ns, observation, traces, why_no_power)


def run_job(run: PlannedRun, sensors: Mapping[str, PowerSensor]) -> job.RunJob:
    """Return the job for the process of a run."""
    case, energy_from_s = run.case, 0.0
    if descriptions := described(sensors).values():
        # It needs NumPy, which a run without sensors does not.
        from edgemeter.agent.energy.refusals import shortest_window_s  # noqa: PLC0415

        energy_from_s = min(map(shortest_window_s, descriptions))
    return job.RunJob(
        case=case,
        sha256=run.sha256,
        size_bytes=model_file.size_bytes(Path(case.model)),
        seed=run.seed,
        accuracy=run.repeat == 0,
        idle=bool(sensors),
        pauses=any(description.kind == "power" for description in descriptions),
        energy_from_s=energy_from_s,
        spawned_ns=0,
    )


def record_of(
    run: PlannedRun,
    measured: job.MeasuredRun,
    monotonic_ns: int,
    observation: Observation,
    traces: Sequence[SensorTrace],
    why_no_power: str,
) -> RunRecord:
    """Return the record of a run that has ended, with its energy.

    Its predictions are written to their file.
    """
    if run.case.predictions and measured.predictions != job.NO_PREDICTIONS:
        durable_file.write(Path(run.case.predictions), bytes(measured.predictions), 0o644)
    if measured.runtime.name == SERVED or (
        measured.generation is not None and not measured.generation.is_local
    ):
        # The sandboxed process of the run cannot see the server's.
        memory, unseen = served_memory(measured.runtime.facts.get("server_url", ""))
        reasons = (
            measured.reasons if unseen is None else measured.reasons | {"memory_peak_mb": unseen}
        )
        measured = msgspec.structs.replace(measured, memory=memory, reasons=reasons)
    elif observation.memory is not None:
        thirds_mb = observation.memory.thirds_mb(measured.timed.start_ns, measured.timed.end_ns)
        measured = msgspec.structs.replace(measured, memory_thirds_mb=thirds_mb)
    power = energy_of_run(measured, traces, run.session.environment, why_no_power)
    measured = msgspec.structs.replace(
        measured,
        generation=power.generation,
        samples=(*measured.samples, *pack_traces(traces, measured.timed.start_ns)),
        reasons=measured.reasons | power.reasons,
    )
    curve = None
    if run.case.mode == "sustained" or measured.is_long_schedule:
        # It needs NumPy, which other runs do not.
        from edgemeter.agent.session.sustained import sustained_of  # noqa: PLC0415

        curve = sustained_of(measured, measured.timed, observation.timed_conditions, traces)
    return run_record.run_record(
        run, measured, monotonic_ns, observation.seen, power.energies, traces, curve
    )


def served_here(model: Path) -> set[int]:
    """Return the visible processes of a model's server.

    There are none if the model is not the file of a server.
    """
    if model.suffix.lower() != ".server":
        return set()
    with suppress(ConfigError):
        return served_processes(str(parse_toml(model, "server's file").get("url", "")))
    return set()
