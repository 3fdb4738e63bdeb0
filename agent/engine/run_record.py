"""A run becomes a record: what its process measured, what was read beside it, and who, when and in which order."""

import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from edgemeter.agent import records
from edgemeter.agent.energy import estimate
from edgemeter.agent.energy.per_inference import Energies
from edgemeter.agent.engine import job
from edgemeter.agent.engine.observing.observation import Observing
from edgemeter.agent.engine.suites import Case
from edgemeter.agent.engine.verdict import judge as verdict
from edgemeter.agent.machine import clock


@dataclass(frozen=True, slots=True)
class Always:
    """What all runs of a session share."""

    suite: str
    device: str
    fleet: str
    order_seed: int | None
    environment: records.Environment
    observing: Observing
    observer: records.ObserverEffect | None


@dataclass(frozen=True, slots=True)
class Run:
    """One run to come: of which case, for which time, with which seed, in which place of the order."""

    case: Case
    repeat: int
    seed: int
    place: int
    sha256: str
    always: Always


@dataclass(frozen=True, slots=True)
class Around:
    """What stood around the run's process: when it was started, what was seen, and what it drew."""

    monotonic_ns: int
    seen: Sequence[records.Condition]
    power: Energies
    power_warnings: tuple[str, ...]
    cool_down: records.CoolDown | None
    sustained: records.Sustained | None


def record(run: Run, measured: job.Measured, around: Around) -> records.RunRecord:
    """Return the record of a run."""
    case, power = run.case, around.power
    shared = {name: getattr(measured, name) for name in measured.__struct_fields__ if name in records.RunRecord.__struct_fields__}
    return records.RunRecord(
        id=uuid.uuid4().hex,
        device=run.always.device,
        fleet=run.always.fleet,
        role=case.role,
        started_at_ns=clock.wall_ns(around.monotonic_ns),
        clock_synchronised=clock.synchronised(),
        monotonic_ns=around.monotonic_ns,
        suite=run.always.suite,
        case=_case_id(run, measured),
        repeat=run.repeat,
        scenario=case.scenario,
        mode=case.mode,
        seed=run.seed,
        energy=power.energy,
        energy_reason=power.reason,
        other_energies=power.others,
        other_energy_reasons=power.refused,
        environment=run.always.environment,
        conditions=tuple(around.seen),
        observer=run.always.observer,
        verdict=verdict.judge(
            measured, around.seen, run.always.environment, run.always.observer, around.cool_down, power.all(), around.power_warnings
        ),
        provenance=_provenance(measured, power.energy),
        sustained=around.sustained,
        cool_down=around.cool_down,
        order_seed=run.always.order_seed,
        order_place=run.place,
        **shared,
    )


def _provenance(measured: job.Measured, power: records.Energy | None) -> dict[str, records.Provenance]:
    """Return where each group of numbers comes from."""
    timed: records.Provenance = "replayed" if measured.runtime.name == "replay" else "measured"
    groups: dict[str, records.Provenance] = {"latency": timed, "cold_start": timed, "memory": "measured"}
    if measured.accuracy:
        groups["accuracy"] = timed
    if power:
        groups["energy"] = "estimated" if estimate.is_one(power) else "replayed" if power.sensor.startswith("replay") else timed
    return groups


def _case_id(run: Run, measured: job.Measured) -> str:
    """Return the case's own short name: the same on every device and day for the same model, runtime settings, load and data."""
    case = run.case
    samples = measured.load.samples_per_query if measured.load else measured.batch
    parts = (
        run.sha256,
        case.runtime,
        measured.runtime.backend,
        case.threads,
        case.scenario,
        case.mode,
        measured.dataset.sha256,
        case.options,
        measured.batch,
        samples,
        case.rate_per_s,
        case.cpus,
    )
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:12]
