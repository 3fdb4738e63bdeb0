"""Cases: which runs measured the same thing and may be merged into one figure, and which runs may not stand beside others at all."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from edgemeter.agent.records import RunRecord
from edgemeter.collector.compare.store import LeftOut

# Boards that do not tell what they are: no two of them are known to be of one type.
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
class Case:
    """The usable runs of one case, oldest first; there is at least one."""

    key: CaseKey
    runs: tuple[RunRecord, ...]


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


def group(runs: Iterable[RunRecord]) -> tuple[list[Case], list[LeftOut]]:
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
    """Return why `run` may not stand beside others, or None when it may."""
    if run.verdict.state == "invalid":
        return "invalid: " + ("; ".join(run.verdict.reasons) or "no reason was given")
    return not_measured(run, "latency") or not_measured(run, "throughput")


def not_measured(run: RunRecord, group_name: str) -> str | None:
    """Return why the numbers `group_name` of `run` may not stand beside others, or None when they were measured (or replayed).

    What was replayed from a recording stands beside its like only: provenance is part of the case, and of what makes a pair.
    A group that the record's provenance does not name came with the latency; a record that does not say where that came from has none.
    """
    provenance = run.provenance.get(group_name, run.provenance.get("latency"))
    if provenance in ("measured", "replayed"):
        return None
    if provenance is None:
        return f"{group_name}: the record does not say that it was measured"
    return f"{group_name}: {provenance}, not measured: it does not rank beside measurements"


def distinct(values: Iterable[str | None]) -> Sequence[str]:
    """Return the different values in the order in which they first come, without those that are absent."""
    return list(dict.fromkeys(value for value in values if value is not None))
