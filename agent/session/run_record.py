"""Builds the record of a run.

It is built from the results of its process, the readings around it, and the session.
"""

import hashlib
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from edgemeter.agent.base.errors import ConfigError, MeasurementError
from edgemeter.agent.base.types import Role
from edgemeter.agent.contract.case_identity import served_model
from edgemeter.agent.contract.energy_provenance import sensor_provenance
from edgemeter.agent.contract.operating_point import OperatingPoint
from edgemeter.agent.contract.record import RunRecord, decode_head, encode
from edgemeter.agent.contract.record_conditions import Condition, Environment, Provenance
from edgemeter.agent.contract.record_figures import Energy, Sustained, Windows
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.energy.energies import Energies
from edgemeter.agent.energy.sampler import SensorTrace, describe_trace
from edgemeter.agent.engine.job import MeasuredRun
from edgemeter.agent.machine import clock
from edgemeter.agent.power.detect import scope_rank
from edgemeter.agent.verdict.facts import Facts
from edgemeter.agent.verdict.judge import judge


def relative_windows(measured: MeasuredRun) -> Windows:
    """Return the windows of a run, from its first timed query."""
    start_ns = measured.timed.start_ns
    before_ns, after_ns = (
        None if window is None else (window.start_ns - start_ns, window.end_ns - start_ns)
        for window in (measured.idle_before, measured.idle_after)
    )
    return Windows(
        timed_start_ns=start_ns,
        timed_end_ns=measured.timed.length_ns,
        idle_before_ns=before_ns,
        idle_after_ns=after_ns,
    )


@dataclass(frozen=True, slots=True)
class SessionContext:
    """The facts that all runs of a session share."""

    suite: str
    device: str
    fleet: str
    role: Role
    environment: Environment
    started_at_ns: int


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run of a session; `operating_point` is the one read back from the board."""

    case: Case
    repeat: int
    seed: int
    sha256: str
    session: SessionContext
    operating_point: OperatingPoint | None = None


def run_record(
    run: PlannedRun,
    measured: MeasuredRun,
    monotonic_ns: int,
    conditions: Sequence[Condition],
    power: Energies,
    traces: Sequence[SensorTrace],
    sustained: Sustained | None,
) -> RunRecord:
    """Return the record of a run; start, conditions and energy were read outside its process.

    Raises:
        MeasurementError: a figure is out of its bounds.
    """
    case, environment = run.case, run.session.environment
    energies = power.all()
    shared = {
        name: getattr(measured, name)
        for name in measured.__struct_fields__
        if name in RunRecord.__struct_fields__
    }
    warnings = tuple(
        f"{trace.name}: {warning}"
        for trace in traces
        if trace.description
        for warning in trace.description.warnings
    )
    lost = lost_sensors(traces, energies)
    record = RunRecord(
        id=uuid.uuid4().hex,
        device=run.session.device,
        fleet=run.session.fleet,
        role=run.session.role,
        started_at_ns=clock.wall_ns(monotonic_ns),
        session_started_at_ns=run.session.started_at_ns,
        clock_synchronised=clock.synchronised(),
        monotonic_ns=monotonic_ns,
        suite=run.session.suite,
        case=_case_id(run, measured),
        repeat=run.repeat,
        scenario=case.scenario,
        mode=case.mode,
        seed=run.seed,
        energy=power.energy,
        other_energies=power.others,
        environment=environment,
        conditions=tuple(conditions),
        verdict=judge(Facts(measured, conditions, environment, energies, warnings, lost)),
        provenance=_provenance(measured, power.energy),
        sustained=sustained,
        operating_point=run.operating_point,
        power_traces=tuple(filter(None, map(describe_trace, traces))),
        windows=relative_windows(measured),
        **shared,
    )
    try:
        decode_head(encode(record))
    except ConfigError as error:
        raise MeasurementError(
            f"the run is not stored, because no reader would accept it: {error}"
        ) from error
    return record


def lost_sensors(traces: Iterable[SensorTrace], energies: Sequence[Energy]) -> tuple[str, ...]:
    """Return the power sensors that are absent or stopped, with reasons.

    Their scope is at least that of the energy.
    """
    if not energies:
        return ()
    giving, rank = {energy.sensor for energy in energies}, scope_rank(energies[0].scope)
    lost = []
    for trace in traces:
        described = trace.description
        is_narrower = described is not None and (
            described.id in giving or scope_rank(described.scope) > rank
        )
        if trace.ended is not None and not is_narrower:
            lost.append(f"{trace.name}, {trace.ended}")
    return tuple(lost)


def _provenance(measured: MeasuredRun, power: Energy | None) -> dict[str, Provenance]:
    timed: Provenance = "replayed" if measured.runtime.name == "replay" else "measured"
    groups: dict[str, Provenance] = {"latency": timed, "cold_start": timed, "memory": "measured"}
    if measured.accuracy:
        groups["accuracy"] = timed
    if power:
        groups["energy"] = sensor_provenance(power.sensor, timed) or timed
    return groups


def _case_id(run: PlannedRun, measured: MeasuredRun) -> str:
    """Return the case's id.

    It is the same on every device and day for the same model, runtime settings, load and data.
    """
    case = run.case
    # Backend and threads as recorded, because a runtime may choose them.
    runtime = (case.runtime, measured.runtime.backend, measured.runtime.threads)
    setup = (measured.model.sha256, *runtime, case.scenario, case.mode, measured.dataset.sha256)
    load = (dict(sorted(case.options.items())), measured.batch, case.rate_per_s, case.cpus)
    parts = (
        *setup,
        *load,
        # Only if set, so that the ids of other cases stay the same.
        *([case.prompt_tokens, case.output_tokens] if case.output_tokens is not None else []),
        *([measured.steady.deadline_ms] if measured.steady is not None else []),
        *([f"{case.concurrency} users"] if case.concurrency is not None else []),
        *([run.operating_point] if run.operating_point is not None else []),
        *([together.neighbours] if (together := measured.together) is not None else []),
        *(
            [served]
            if (served := served_model(measured.generation, measured.runtime)) is not None
            else []
        ),
    )
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:12]
