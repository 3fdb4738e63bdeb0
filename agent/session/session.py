"""A session: every case of a suite, repeat by repeat in shuffled order; each run has its own process and becomes a record."""

import os
import random
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from edgemeter.agent import datasets
from edgemeter.agent.base import durable_file
from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.agent.base.suggestions import did_you_mean
from edgemeter.agent.base.toml import parse_toml
from edgemeter.agent.contract import model_file
from edgemeter.agent.contract.model_formats import PYTHON, is_model_file
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_figures import CoolDown, Energy
from edgemeter.agent.contract.suite import SETTLE_LIMIT_S, Case, Suite
from edgemeter.agent.energy import per_inference, queries, renewal, sensor_run
from edgemeter.agent.energy.accelerators import accelerator_link
from edgemeter.agent.energy.generation_energy import SHARED, generation_energy, generation_windows, served_elsewhere
from edgemeter.agent.energy.per_inference import estimated_energy
from edgemeter.agent.energy.sampler import Sampler, SensorTrace, describe_trace, pack_traces
from edgemeter.agent.engine import isolation, job
from edgemeter.agent.engine.process_usage import check_affinity
from edgemeter.agent.machine import fingerprint
from edgemeter.agent.machine.power_range import power_range
from edgemeter.agent.machine.served_memory import served_memory, served_processes
from edgemeter.agent.operating import changes
from edgemeter.agent.power import PowerSensor
from edgemeter.agent.power.detect import described
from edgemeter.agent.session import rate_search, run_record, sustained
from edgemeter.agent.session.hopeless import by_reason, check_runtime, has_failed, refusals
from edgemeter.agent.session.observation import Observation, wait_until_cool
from edgemeter.agent.session.operating import OperatedBoard, operated_board
from edgemeter.agent.session.run_record import PlannedRun, SessionContext


@dataclass(frozen=True, slots=True)
class RunBegins:
    """Run `place` (from 1) of `total` begins; `coming` are the runs expected after it, case and repeat.

    `beside` are the labels of the cases that run at the same time.
    """

    case: Case
    repeat: int
    place: int
    total: int
    coming: Sequence[tuple[Case, int]] = ()
    beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunEnds:
    """The run became a record, or failed."""

    outcome: RunRecord | EdgemeterError


# Called in this order: a run begins, its events, it ends.
OnEvent = Callable[[RunBegins | job.Event | RunEnds], None]


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """Who measures."""

    device: str
    fleet: str


def check(suite: Suite, *, opens: bool = False) -> Mapping[int, EdgemeterError]:
    """Check a suite before anything is measured, and return what `refusals` does of the cases that this machine cannot measure.

    Raises:
        ConfigError: a model, a data set or a core is missing, no runtime or reader is called as a case says, or a model has another hash
            than the suite says; or the board has no such power mode, governor or clock.
        UnavailableError: this machine can measure none of the cases, or its settings cannot be changed.
    """
    for case in suite.cases:
        check_affinity(case.cpus)
        check_runtime(case)
        if case.reader:
            datasets.create(case.reader)
        if case.sha256 and case.runtime != PYTHON:
            model_file.check_sha256(case.model, sha256(case.model), case.sha256)
        else:
            # That of code with all that it reads is known where it was run.
            _require_model(case.model)
        if case.predictions:
            durable_file.check_writable(Path(case.predictions))
        for path, absent in ((case.data, "is no data"), (case.annotations, "are no annotations")):
            if path and not Path(path).exists():
                raise ConfigError(f"there {absent} at {path!r}: correct the path")
    if points := list(dict.fromkeys(filter(None, (case.operating_point for case in suite.cases)))):
        changes.check(points)
    refused = refusals(suite, opens=opens)
    if len(refused) == len(suite.cases):
        errors = by_reason(suite, refused)
        raise type(errors[0])("; ".join(map(str, errors)))
    return refused


def runnable(suite: Suite) -> tuple[Suite, list[EdgemeterError]]:
    """Return the suite without the cases that this machine cannot measure, and why; model and data of each are opened once.

    Raises:
        EdgemeterError: as `check`.
    """
    refused = check(suite, opens=True)
    cases = tuple(case for number, case in enumerate(suite.cases) if number not in refused)
    return replace(suite, cases=cases), by_reason(suite, refused)


def _require_model(path: str) -> None:
    path = str(model_file.source_of(Path(path)))
    if Path(path).is_file():
        if not os.access(path, os.R_OK):
            raise ConfigError(f"the model {path!r} cannot be read: permission denied: `chmod a+r` it, or run as its owner")
        if not Path(path).stat().st_size:
            raise ConfigError(f"the model {path!r} is empty: copy or download it again")
        return
    folder = Path(path).parent
    if not folder.is_dir():
        raise ConfigError(f"there is no model at {path!r}, for there is no folder {str(folder)!r}: correct the path")
    files = [file.name for file in folder.iterdir() if is_model_file(file)] if os.access(folder, os.R_OK) else []
    hint = did_you_mean(Path(path).name, files) or "correct the path, or see `edgemeter models list`"
    raise ConfigError(f"there is no model at {path!r}: {hint}")


def sha256(path: str) -> str:
    """Return the SHA-256 of a model, as in its record; raises ConfigError if there is no such file, or it cannot be read."""
    _require_model(path)
    return model_file.sha256(Path(path))


def run_order(suite: Suite, seed: int) -> list[tuple[Case, int]]:
    """Return all runs in the order of measuring: round by round, each round shuffled, so that slow drift meets every case alike.

    A round sets the board to each operating point once, in an order of its own: drift follows no mode.
    """
    draw = random.Random(seed)  # noqa: S311 - a published, repeatable order is wanted
    order: list[tuple[Case, int]] = []
    for repeat in range(max(case.repeats for case in suite.cases)):
        due = [(case, repeat) for case in suite.cases if repeat < case.repeats]
        draw.shuffle(due)
        points = list(dict.fromkeys(case.operating_point for case, _ in due))
        if len(points) > 1:
            draw.shuffle(points)
            due.sort(key=lambda run: points.index(run[0].operating_point))
        order.extend(due)
    return order


def measure(
    suite: Suite,
    identity: DeviceIdentity,
    sensors: Mapping[str, PowerSensor],
    why_no_power: str,
    on_event: OnEvent,
    keep: Callable[[RunRecord], RunRecord] = lambda record: record,
    order: Sequence[tuple[Case, int]] | None = None,
) -> Generator[RunRecord | EdgemeterError, None, None]:
    """Measure every repeat of every case, and yield each record as `keep` returned it, or the error that ended its run.

    Before them comes one error for each reason why this machine cannot measure a case. `order` gives case and repeat of every run where
    they are not to be shuffled, and is read as they are measured. A case that `has_failed`
    is measured no more. One whose rate is to be found is as many runs as the search takes. The board is set to the operating point of each
    run, and put back at the end, however it comes: close what is returned. That it was not put back is the last error.

    Raises:
        ConfigError: as `check`, or power is both estimated and measured.
        UnavailableError: as `check`.
    """
    refused = check(suite)
    hopeless = [suite.cases[number] for number in refused]
    yield from by_reason(suite, refused)
    check_power(suite, sensors)
    seed = suite.cases[0].seed
    order_seed = seed if order is None else None
    if order is None:
        order = [(case, repeat) for case, repeat in run_order(suite, seed) if case not in hopeless]
    context = SessionContext(suite.name, identity.device, identity.fleet, order_seed, fingerprint.read())
    hashes: dict[str, str] = {}

    def measure_one(board: OperatedBoard, case: Case, repeat: int, number: int) -> RunRecord:
        hashes[case.model] = hashes.get(case.model) or sha256(case.model)
        run = PlannedRun(case, repeat, seed + repeat, number, hashes[case.model], *board.at(case.operating_point))
        return keep(measure_run(run, sensors, why_no_power, on_event))

    try:
        with operated_board(suite.cases, context, partial(on_event, job.Phase(name="settle", seconds=SETTLE_LIMIT_S))) as board:
            yield from _in_order(suite, order, hopeless, partial(measure_one, board), on_event)
    except UnavailableError as error:
        # What was measured stands.
        yield error


def _in_order(
    suite: Suite,
    order: Sequence[tuple[Case, int]],
    hopeless: list[Case],
    measure_one: Callable[[Case, int, int], RunRecord],
    on_event: OnEvent,
) -> Iterator[RunRecord | EdgemeterError]:
    """Yield the outcome of each run; cases that are `hopeless`, or become so, are left out."""
    outcomes: list[list[object]] = [[] for _ in suite.cases]
    further = 0  # Runs of a search after its first.
    for number, (case, repeat) in enumerate(order, 1):
        if case in hopeless:
            continue
        further -= 1
        of_case = outcomes[suite.cases.index(case)]
        of_search: list[RunRecord | EdgemeterError] = []
        while (step := rate_search.next_step(case, of_search)) is not None:
            further += 1
            on_event(RunBegins(step, repeat, number + further, len(order) + further, order[number:]))
            outcome: RunRecord | EdgemeterError
            try:
                outcome = measure_one(step, repeat, number + further)
            except EdgemeterError as error:
                outcome = error
            of_search.append(outcome)
            of_case.append(outcome)
            if has_failed(of_case):
                hopeless.append(case)
            on_event(RunEnds(outcome))
            yield outcome


def check_power(suite: Suite, sensors: Mapping[str, PowerSensor]) -> None:
    """Raise ConfigError if power is both estimated and measured."""
    if sensors and any(case.estimate_power_w is not None for case in suite.cases):
        raise ConfigError(
            f"estimate_power_w states the power, but the sensor {', '.join(sensors)!r} measures it: "
            "remove estimate_power_w, or measure without the sensor (--power none)"
        )


def measure_run(
    run: PlannedRun,
    sensors: Mapping[str, PowerSensor],
    why_no_power: str,
    on_event: OnEvent,
    execute: Callable[[job.RunJob, isolation.Follow], job.MeasuredRun] | None = None,
) -> RunRecord:
    """Return the record of one run, which `execute`, or else a process of its own, measures while power and conditions are read.

    Raises:
        EdgemeterError: it failed.
    """
    work = run_job(run, sensors)
    cooled = cool_down(run.case, on_event)
    observation = Observation(sensors, served=partial(served_here, Path(run.case.model)))
    return observed_run(
        run, observation, observation.sampler, cooled, why_no_power, on_event, partial(execute or isolation.run_isolated, work)
    )


def observed_run(
    run: PlannedRun,
    observation: Observation,
    sampler: Sampler | None,
    cooled: CoolDown | None,
    why_no_power: str,
    on_event: OnEvent,
    execute: Callable[[isolation.Follow], job.MeasuredRun],
) -> RunRecord:
    """Return the record of a run that is observed; its power is read by the sampler, which runs at the same time share."""
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
    return record_of(run, measured, monotonic_ns, observation, traces, why_no_power, cooled)


def run_job(run: PlannedRun, sensors: Mapping[str, PowerSensor]) -> job.RunJob:
    """Return what the process of a run is to do."""
    case = run.case
    return job.RunJob(
        case=case,
        sha256=run.sha256,
        size_bytes=model_file.size_bytes(Path(case.model)),
        seed=run.seed,
        accuracy=case.accuracy == "every" or (case.accuracy == "first" and run.repeat == 0),
        agreement=case.agreement == "every" or (case.agreement == "first" and run.repeat == 0),
        idle=bool(sensors),
        pauses=case.estimate_power_w is None and any(map(renewal.may_keep_step, described(sensors).values())),
        energy_from_s=min(map(sensor_run.shortest_window_s, described(sensors).values()), default=0.0),
        energy_from_inferences=sensor_run.FEWEST_INFERENCES,
        spawned_ns=0,
    )


def cool_down(case: Case, on_event: OnEvent) -> CoolDown | None:
    """Wait until the machine is as cool as the case asks for; None where it does not."""
    if case.start_below_c is None:
        return None
    begins = partial(on_event, job.Phase(name="cool-down", seconds=case.cool_down_limit_s))
    return wait_until_cool(case.start_below_c, case.cool_down_limit_s, begins)


def record_of(
    run: PlannedRun,
    measured: job.MeasuredRun,
    monotonic_ns: int,
    observation: Observation,
    traces: Sequence[SensorTrace],
    why_no_power: str,
    cooled: CoolDown | None,
) -> RunRecord:
    """Return the record of a run that has ended, with its energy by the power that was read beside it; its predictions go to their file."""
    if run.case.predictions and measured.predictions != job.NO_PREDICTIONS:
        durable_file.write(Path(run.case.predictions), bytes(measured.predictions), 0o644)
    if measured.served is not None or (measured.generation is not None and not measured.generation.is_local):
        # The run's own process may not look at others.
        measured = msgspec.structs.replace(measured, memory=served_memory(measured.runtime.facts.get("server_url", "")))
    elif observation.memory is not None:
        thirds_mb = observation.memory.thirds_mb(measured.timed.start_ns, measured.timed.end_ns)
        measured = msgspec.structs.replace(measured, memory=msgspec.structs.replace(measured.memory, thirds_mb=thirds_mb))
    energy_run = _energy_run(run, measured)
    power = _energies(traces, run, measured, energy_run, why_no_power)
    measured = _with_token_energy(measured, power.energy, traces, energy_run)
    series = pack_traces(traces, measured.timed.start_ns)
    measured = msgspec.structs.replace(measured, samples=(*measured.samples, *series))
    has_curve = run.case.mode == "sustained" or measured.is_long_schedule
    curve = sustained.sustained_of(measured, observation.timed_conditions, traces) if has_curve else None
    measured = sustained.with_throttling(measured, curve)
    described_traces = tuple(map(describe_trace, traces))
    return run_record.run_record(run, measured, monotonic_ns, observation.seen, power, described_traces, cooled, curve)


def served_here(model: Path) -> set[int]:
    """Return the processes of a model's server that are seen here; none of a model that is no server's file."""
    if model.suffix.lower() != ".server":
        return set()
    with suppress(ConfigError):
        return served_processes(str(parse_toml(model, "server's file").get("url", "")))
    return set()


def _with_token_energy(
    measured: job.MeasuredRun, energy: Energy | None, traces: Sequence[SensorTrace], energy_run: sensor_run.EnergyRun
) -> job.MeasuredRun:
    """Return what was measured with the energies per token, where text was generated."""
    if measured.generation is None:
        return measured
    windows = generation_windows(measured.samples, measured.timed.start_ns, measured.generation)
    tokens, why = (None, SHARED) if measured.together else generation_energy(energy, traces, windows, energy_run)
    return msgspec.structs.replace(measured, generation=msgspec.structs.replace(measured.generation, energy=tokens, energy_reason=why))


def _energies(
    traces: Sequence[SensorTrace], run: PlannedRun, measured: job.MeasuredRun, energy_run: sensor_run.EnergyRun, why: str
) -> per_inference.Energies:
    if run.case.estimate_power_w is not None:
        return per_inference.Energies(estimated_energy(run.case.estimate_power_w, energy_run), None)
    if not traces:
        return per_inference.Energies(None, why)
    if elsewhere := served_elsewhere(measured.generation, measured.runtime):
        return per_inference.Energies(None, elsewhere)
    return per_inference.energies_of(traces, energy_run)


def _energy_run(run: PlannedRun, measured: job.MeasuredRun) -> sensor_run.EnergyRun:
    attached = run.session.environment.attached
    return sensor_run.EnergyRun(
        measured.timed,
        measured.idle_before,
        measured.idle_after,
        measured.load.samples if measured.load else measured.latency.count,
        queries.queries_of(measured.samples, measured.timed.start_ns, measured.timed.end_ns),
        accelerator_link(measured.runtime, attached),
        attached,
        # A query of a language model is many steps: a few of them are enough.
        counts_inferences=measured.generation is None,
        draws=power_range(run.session.environment),
        frames_per_s=measured.steady.rate_per_s if measured.steady else None,
    )
