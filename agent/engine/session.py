"""A session: every case of a suite, repeat by repeat in shuffled order, each run in its own process, each becoming a record."""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from edgemeter.agent import records
from edgemeter.agent.energy import estimate, per_inference, power_series, queries, usb_accelerator
from edgemeter.agent.energy.sampler import Trace
from edgemeter.agent.engine import affinity, cool_down, isolation, job, run_record, windows
from edgemeter.agent.engine.observing import observer_store
from edgemeter.agent.engine.observing.observation import Observation, Observing
from edgemeter.agent.engine.run_record import Always, Around, Run
from edgemeter.agent.engine.scenarios import sustained
from edgemeter.agent.engine.suites import Case, Suite
from edgemeter.agent.errors import ConfigError, EdgemeterError
from edgemeter.agent.machine import fingerprint
from edgemeter.agent.power import PowerSensor
from edgemeter.agent.runtimes import model_file


@dataclass(frozen=True, slots=True)
class RunBegins:
    """Run `place` (from 1) of `total` begins."""

    case: Case
    repeat: int
    place: int
    total: int


@dataclass(frozen=True, slots=True)
class RunEnds:
    """The run became a record, or failed."""

    outcome: records.RunRecord | EdgemeterError


# Whoever wants to show what happens is told so, in this order: a run begins, its events, it ends.
Tell = Callable[[RunBegins | job.Event | RunEnds], None]


@dataclass(frozen=True, slots=True)
class Identity:
    """Who measures."""

    device: str
    fleet: str


def check(suite: Suite) -> None:
    """Find what can be found before anything is measured.

    Raises:
        ConfigError: a model, a data set or a core is missing, or a model has another hash than the suite says.
    """
    for case in suite.cases:
        affinity.check(case.cpus)
        if case.sha256 and (found := sha256(case.model)) != case.sha256:
            message = f"{case.model!r} has sha256 {found}, not {case.sha256}: fetch it again, or correct the hash"
            raise ConfigError(message)
        if not case.sha256:
            _must_be_file(case.model, "model")
        if case.images and not Path(case.images).is_dir():
            message = f"there is no folder of images at {case.images!r}: correct the path"
            raise ConfigError(message)
        if case.annotations:
            _must_be_there(case.annotations)


def _must_be_there(annotations: str) -> None:
    if not Path(annotations).exists():
        message = f"there are no annotations at {annotations!r}: correct the path"
        raise ConfigError(message)


def _refuse_estimates(suite: Suite, sensors: Mapping[str, PowerSensor]) -> None:
    if sensors and any(case.estimate_power_w is not None for case in suite.cases):
        message = (
            f"a power was stated to estimate energy with, and the sensor {', '.join(sensors)!r} measures it: "
            "leave estimate_power_w out, or measure without the sensor (--power none)"
        )
        raise ConfigError(message)


def _must_be_file(path: str, what: str) -> None:
    if not Path(path).is_file():
        message = f"there is no {what} at {path!r}: correct the path"
        raise ConfigError(message)


def sha256(path: str) -> str:
    """Return the hash of a model, as its record has it.

    Raises:
        ConfigError: there is no such file, or it cannot be read.
    """
    _must_be_file(path, "model")
    return model_file.sha256(Path(path))


def plan(suite: Suite, seed: int) -> list[tuple[Case, int]]:
    """Return all runs in the order of measuring: round by round, each round shuffled, so that slow drift meets every case alike."""
    draw = random.Random(seed)  # noqa: S311 - a published, repeatable order is wanted
    order: list[tuple[Case, int]] = []
    for repeat in range(max(case.repeats for case in suite.cases)):
        due = [(case, repeat) for case in suite.cases if repeat < case.repeats]
        draw.shuffle(due)
        order.extend(due)
    return order


def measure(
    suite: Suite,
    identity: Identity,
    sensors: Mapping[str, PowerSensor],
    why_no_power: str,
    tell: Tell,
    keep: Callable[[records.RunRecord], records.RunRecord] = lambda record: record,
    order: Sequence[tuple[Case, int]] | None = None,
    observing: Observing = "all",
) -> Iterator[records.RunRecord | EdgemeterError]:
    """Measure every case as often as it says, and yield each record as `keep` returned it, or the error that its run ended with.

    `order` names case and repeat of every run where they are not to be shuffled. `observing` says what is sampled beside them.

    Raises:
        ConfigError: something is wrong that shows before measuring.
    """
    check(suite)
    _refuse_estimates(suite, sensors)
    seed = suite.cases[0].seed
    order_seed = seed if order is None else None
    order = plan(suite, seed) if order is None else order
    environment = fingerprint.read()
    observer = observer_store.find(environment, sensors) if observing == "all" else None
    always = Always(suite.name, identity.device, identity.fleet, order_seed, environment, observing, observer)
    hashes: dict[str, str] = {}
    for place, (case, repeat) in enumerate(order, 1):
        tell(RunBegins(case, repeat, place, len(order)))
        outcome: records.RunRecord | EdgemeterError
        try:
            hashes[case.model] = hashes.get(case.model) or sha256(case.model)
            run = Run(case, repeat, seed + repeat, place, hashes[case.model], always)
            outcome = keep(_one(run, sensors, why_no_power, tell))
        except EdgemeterError as error:
            outcome = error
        tell(RunEnds(outcome))
        yield outcome


def _one(run: Run, sensors: Mapping[str, PowerSensor], why_no_power: str, tell: Tell) -> records.RunRecord:
    case = run.case
    work = job.Job(
        case=case,
        sha256=run.sha256,
        size_bytes=sum(part.stat().st_size for part in model_file.parts(Path(case.model))),
        seed=run.seed,
        accuracy=case.accuracy == "every" or (case.accuracy == "first" and run.repeat == 0),
        agreement=case.agreement == "every" or (case.agreement == "first" and run.repeat == 0),
        corrupt=bool(case.corrupt) and case.accuracy != "never" and run.repeat == 0,
        idle=bool(sensors),
        spawned_ns=0,
    )
    cooled = None
    if case.start_below_c is not None:
        begins = partial(tell, job.Phase(name="cool-down", seconds=case.cool_down_limit_s))
        cooled = cool_down.wait(case.start_below_c, case.cool_down_limit_s, begins)
    observation = Observation(sensors, run.always.observing)
    observation.look_before()
    monotonic_ns = time.monotonic_ns()

    def follow(event: job.Event, pid: int) -> None:
        observation.follow(event, pid)
        tell(event)

    try:
        measured = isolation.run(work, follow)
    finally:
        observation.end()
    observation.look_after()
    traces = list(observation.sampler.traces().values()) if observation.sampler else []
    power = _energies(traces, run, measured, why_no_power)
    series = power_series.pack(traces, measured.timed.start_ns)
    measured = msgspec.structs.replace(measured, samples=(*measured.samples, *series))
    curve = sustained.of(measured, observation.looks, traces) if case.mode == "sustained" else None
    warnings = tuple(f"{trace.name}: {warning}" for trace in traces if trace.description for warning in trace.description.warnings)
    around = Around(monotonic_ns, observation.seen, power, warnings, cooled, curve)
    record = run_record.record(run, measured, around)
    return msgspec.structs.replace(record, power_traces=tuple(map(power_series.described, traces)), windows=windows.relative(measured))


def _energies(traces: Sequence[Trace], run: Run, measured: job.Measured, why: str) -> per_inference.Energies:
    inferences = _inferences(measured)
    if run.case.estimate_power_w is not None:
        return per_inference.Energies(estimate.energy(run.case.estimate_power_w, measured.timed, inferences), None)
    if not traces:
        return per_inference.Energies(None, why)
    seen = per_inference.Run(
        measured.timed,
        measured.idle_before,
        measured.idle_after,
        inferences,
        queries.queries_of(measured.samples, measured.timed.start_ns, measured.timed.end_ns),
        usb_accelerator.runs_on_usb(measured.runtime, run.always.environment.attached),
    )
    return per_inference.of(traces, seen)


def _inferences(measured: job.Measured) -> int:
    return measured.load.samples if measured.load else measured.latency.count
