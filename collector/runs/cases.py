"""Cases: which runs measured the same thing and may be merged, which runs may not be compared at all, and what cases are called."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod

import msgspec

from edgemeter.agent.base.figures import stamp
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector.runs.store import LeftOut

# Boards of unknown type: no two of them are known to be alike.
UNKNOWN_BOARD = "unknown board"


@dataclass(frozen=True, slots=True)
class CaseKey:
    """What must be equal for runs to be merged.

    Beside model, runtime, precision, scenario and data these are the role and fleet of the device, and the power mode: the same board in
    another power mode is another machine. `input_values` is the number of values of one input, whatever the layout; None when not known.
    """

    provenance: str
    device: str
    fleet: str
    role: str
    power_mode: str | None
    model: str
    model_sha256: str
    task: str
    runtime: str
    runtime_package: str
    runtime_version: str
    backend: str
    threads: int
    precision: str
    batch: int
    scenario: str
    samples_per_query: int
    target_per_s: float | None
    dataset_sha256: str
    input_values: int | None


@dataclass(frozen=True, slots=True)
class CurrentSegment:
    """Since when the runs of a case show the level that the board has now, and why; `earlier` runs came before and do not count."""

    since_ns: int
    reason: str
    earlier: int

    @property
    def words(self) -> str:
        """The same in words: `since 2026-10-22, firmware 1.2 to 1.3 (latency +8.1%)`."""
        return f"since {stamp(self.since_ns)[:10]}, {self.reason}"


@dataclass(frozen=True, slots=True)
class Case:
    """The usable runs of one case, oldest first; there is at least one. With a `segment` the `earlier` ones are not among them."""

    key: CaseKey
    runs: tuple[RunRecord, ...]
    segment: CurrentSegment | None = None
    earlier: tuple[RunRecord, ...] = ()


def key_of(run: RunRecord) -> CaseKey:
    """Return the case that `run` belongs to."""
    return CaseKey(
        provenance=run.provenance.get("latency", ""),
        device=run.device,
        fleet=run.fleet,
        role=run.role,
        power_mode=run.environment.power_mode,
        model=run.model.name,
        model_sha256=run.model.sha256,
        task=run.model.task,
        runtime=run.runtime.name,
        runtime_package=run.runtime.package,
        runtime_version=run.runtime.version,
        backend=run.runtime.backend,
        threads=run.runtime.threads,
        precision=run.precision,
        batch=run.batch,
        scenario=run.scenario,
        samples_per_query=run.load.samples_per_query if run.load else run.batch,
        target_per_s=run.load.target_per_s if run.load else None,
        dataset_sha256=run.dataset.sha256,
        input_values=_input_values(run),
    )


def _input_values(run: RunRecord) -> int | None:
    shapes = [tensor.shape for tensor in run.inputs]
    if not shapes or any(size <= 0 for shape in shapes for size in shape):
        return None
    return sum(prod(shape) for shape in shapes) // run.batch


def group_cases(runs: Iterable[RunRecord]) -> tuple[list[Case], list[LeftOut]]:
    """Return the cases of `runs`, in the order in which each first ran, and the runs that cannot be used, each with its reason."""
    grouped: dict[CaseKey, list[RunRecord]] = {}
    left_out: list[LeftOut] = []
    seen: set[str] = set()
    for run in runs:
        reason = unusable(run)
        if run.id in seen:
            reason = "the same run was read twice"
        seen.add(run.id)
        if reason is None:
            grouped.setdefault(key_of(run), []).append(run)
        else:
            left_out.append(LeftOut(run.id, reason))
    return [Case(key, tuple(members)) for key, members in grouped.items()], left_out


def unusable(run: RunRecord) -> str | None:
    """Return why `run` cannot be compared, None if it can."""
    if run.verdict.state == "invalid":
        return "invalid: " + ("; ".join(run.verdict.reasons) or "no reason was given")
    return not_measured(run, "latency") or not_measured(run, "throughput")


def not_measured(run: RunRecord, group_name: str) -> str | None:
    """Return why the numbers `group_name` of `run` cannot be compared, None if they were measured (or replayed).

    A replayed run is compared with replayed runs only: provenance is part of the case. A group without its own provenance has that of the
    latency.
    """
    if group_name == "energy" and run.energy is not None and run.energy.gross_mj <= 0:
        return (
            f"energy: {run.energy.gross_mj:.4g} mJ gross by {run.energy.sensor} is no energy: "
            "a reversed clamp or shunt, or a load below what the sensor shows"
        )
    is_energy = group_name == "energy" and run.energy is not None
    provenance = energy_provenance(run) if is_energy else run.provenance.get(group_name, run.provenance.get("latency"))
    if provenance in ("measured", "replayed"):
        return None
    if provenance is None:
        return f"{group_name}: the record does not state that it was measured"
    return f"{group_name}: {provenance}, not measured: it does not rank beside measurements"


def like_with_like(key: CaseKey) -> tuple[object, ...]:
    """Return what two cases on different devices, or before and after a change, must share to be the same case.

    It is the key without device, fleet and role, and without what a change changes: the model's file and the version of the runtime.
    """
    return tuple(getattr(key, name) for name in _LIKE_WITH_LIKE)


_LIKE_WITH_LIKE = tuple(
    name
    for name in CaseKey.__dataclass_fields__
    if name not in {"device", "fleet", "role", "model_sha256", "runtime_package", "runtime_version"}
)


class Fingerprint(msgspec.Struct, frozen=True):
    """What may change within a series: a change on the day of a step is a candidate for its cause."""

    agent: str
    runtime: str
    firmware: str | None
    kernel: str
    power_mode: str | None
    governor: str | None
    model: str
    meter: str | None

    def changes_to(self, later: "Fingerprint") -> list[str]:
        """Return what is different in `later`, in words, the model's file by the start of its hash."""
        pairs = ((name, getattr(self, name), getattr(later, name)) for name in self.__struct_fields__)
        return [
            f"{name.replace('_', ' ')} {before or 'none'} to {after or 'none'}"
            for name, before, after in pairs
            # A run without energy does not name the meter.
            if before != after and not (name == "meter" and None in (before, after))
        ]


def fingerprint_of(run: RunRecord) -> Fingerprint:
    """Return the fingerprint of `run`."""
    return Fingerprint(
        agent=run.environment.agent,
        runtime=f"{run.runtime.package} {run.runtime.version}",
        firmware=run.environment.firmware,
        kernel=run.environment.kernel,
        power_mode=run.environment.power_mode,
        governor=run.environment.governor,
        model=run.model.sha256[:12],
        meter=run.energy.sensor if run.energy else None,
    )


def distinct(values: Iterable[str | None]) -> Sequence[str]:
    """Return the different values in the order in which they first come, without those that are absent."""
    return list(dict.fromkeys(value for value in values if value is not None))


def named(key: CaseKey) -> str:
    """Return a case as people call it: model, precision, runtime and device."""
    return f"{key.model} {key.precision} on {key.runtime}, {key.device}"


def names_of(keys: Iterable[CaseKey], called: Callable[[CaseKey], str] = named) -> dict[CaseKey, str]:
    """Return a name for each case, no two alike: `yolov8n fp32 on onnx, pi-1, 4 threads` where there is one of 1 thread too."""
    grouped: dict[str, list[CaseKey]] = {}
    for key in dict.fromkeys(keys):
        grouped.setdefault(called(key), []).append(key)
    return {key: ", ".join([name, *_apart(key, alike)]) for name, alike in grouped.items() for key in alike}


def _apart(key: CaseKey, alike: list[CaseKey]) -> list[str]:
    """Return the fewest parts that distinguish a case from others of the same name."""
    parts: list[str] = []
    left = [other for other in alike if other != key]
    for part in _PARTS:
        apart = [other for other in left if part(other) != part(key)]
        if apart:
            parts.append(part(key))
            left = [other for other in left if other not in apart]
    return parts


_PARTS: tuple[Callable[[CaseKey], str], ...] = (
    lambda key: f"{key.threads} thread{'s' * (key.threads != 1)}",
    lambda key: key.backend,
    lambda key: f"batch {key.batch}",
    lambda key: key.power_mode or "no power mode",
    lambda key: key.scenario,
    lambda key: f"{key.samples_per_query} samples a query",
    lambda key: "no rate" if key.target_per_s is None else f"{key.target_per_s:g} a second",
    lambda key: key.role,
    lambda key: f"fleet {key.fleet}",
    lambda key: f"{key.runtime_package} {key.runtime_version}",
    lambda key: f"model {key.model_sha256[:6]}",
    lambda key: f"data {key.dataset_sha256[:6]}",
    lambda key: "input unknown" if key.input_values is None else f"{key.input_values} values",
    lambda key: key.provenance,
    lambda key: key.task,
)
