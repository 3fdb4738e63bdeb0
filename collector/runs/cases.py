"""Cases: which runs are one case or one series, which runs may not be compared at all, what cases are called, and which energies rank."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from edgemeter.agent.base.figures import stamp
from edgemeter.agent.contract.case_identity import FIELD, CaseKey, key_of
from edgemeter.agent.contract.energy_provenance import MEASURED, group_provenance
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_figures import WIDEST_FIRST, Scope
from edgemeter.agent.verdict.judge import judged_together
from edgemeter.agent.verdict.words import sentence_of
from edgemeter.collector.runs.relation import SERIES_FIELDS, in_series
from edgemeter.collector.runs.store import LeftOut

Key = TypeVar("Key")
Value = TypeVar("Value")
# Boards of unknown type: no two of them are known to be alike.
UNKNOWN_BOARD = "unknown board"


@dataclass(frozen=True, slots=True, order=True)
class EnergyClass:
    """The class in which energies are ranked, as text its scope, and its provenance where not measured: `board-input, replayed`."""

    scope: Scope
    provenance: str

    def __str__(self) -> str:
        return self.scope if self.is_measured else f"{self.scope}, {self.provenance}"

    @property
    def is_measured(self) -> bool:
        """Whether a sensor measured it in the run itself."""
        return self.provenance == MEASURED

    @property
    def preference(self) -> tuple[bool, int]:
        """The sort key of classes, which do not rank with each other: measured ones lead, then the widest scope."""
        return not self.is_measured, WIDEST_FIRST.index(self.scope)


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
class CaseRuns:
    """The usable runs of one case, oldest first; there is at least one. With a `segment` the `earlier` ones are not among them."""

    key: CaseKey
    runs: tuple[RunRecord, ...]
    segment: CurrentSegment | None = None
    earlier: tuple[RunRecord, ...] = ()


def group_cases(runs: Iterable[RunRecord]) -> tuple[list[CaseRuns], list[LeftOut]]:
    """Return the cases of `runs`, in the order in which each first ran, and the runs that cannot be used, each with its reason."""
    members_of_case: dict[CaseKey, list[RunRecord]] = {}
    left_out: list[LeftOut] = []
    ids: set[str] = set()
    for run in judged_together(runs):
        reason = unusable(run)
        if run.id in ids:
            reason = "the same run was read twice"
        ids.add(run.id)
        if reason is None:
            members_of_case.setdefault(key_of(run), []).append(run)
        else:
            left_out.append(LeftOut(run.id, reason))
    return [CaseRuns(key, tuple(members)) for key, members in members_of_case.items()], left_out


def unusable(run: RunRecord) -> str | None:
    """Return why `run` cannot be compared, None if it can."""
    if run.verdict.state == "invalid":
        return "invalid: " + ("; ".join(map(sentence_of, run.verdict.violations)) or "no reason was given")
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
    provenance = group_provenance(run, group_name)
    if provenance in ("measured", "replayed"):
        return None
    if provenance == "shared" and run.together is not None:
        return f"{group_name}: shared with {run.together.names}, which ran at the same time: it is no cost of one model"
    if provenance is None:
        return f"{group_name}: the record does not state that it was measured"
    return f"{group_name}: {provenance}, not measured: it does not rank beside measurements"


class SeriesKey(msgspec.Struct, frozen=True, order=True):
    """The identity of a series: the case on its device and board, without the properties that may change in it (see `Fingerprint`)."""

    fleet: str
    device: str
    role: str
    board: str
    model: str
    precision: str
    runtime: str
    backend: str
    threads: int
    batch: int
    scenario: str
    task: str
    dataset_sha256: str
    provenance: str
    settings: str
    operating_point: str
    together: str
    deadline: str | None
    target_per_s: float | None
    concurrency: int | None
    input_values: int | None
    served_model: str | None
    prompt_tokens: int | None
    output_tokens: int | None

    def case(self) -> str:
        """Return the case in words."""
        threads = f"{self.threads} thread" + ("" if self.threads == 1 else "s")
        batch = "" if self.batch == 1 else f", batch {self.batch}"
        users = "" if self.concurrency is None else f" of {self.concurrency}"
        tokens = "" if self.output_tokens is None else f", {self.prompt_tokens or 'some'}+{self.output_tokens} tokens"
        together = f"together with {self.together}" if self.together else ""
        details = "".join(f", {text}" for text in (self.settings, self.operating_point, together, self.served_model) if text)
        return f"{self.model} {self.precision} on {self.runtime} {self.backend}, {threads}{batch}, {self.scenario}{users}{tokens}{details}"

    def of_type(self) -> "SeriesKey":
        """Return the same case on all devices of the board type."""
        return msgspec.structs.replace(self, device="")


# Stands where the series is known from elsewhere.
NO_SERIES = SeriesKey(
    *("", "", "", "", "", "", "", "", 0, 0, "", "", "", "", "", "", ""), *(None, None, None, None, None, None, None)
)  # fmt: skip


def series_of(run: RunRecord) -> SeriesKey:
    """Return the series that `run` belongs to."""
    shared: dict[str, Any] = dict(zip(SERIES_FIELDS, in_series(key_of(run)), strict=True))
    return SeriesKey(board=run.environment.board or UNKNOWN_BOARD, **shared)


class Fingerprint(msgspec.Struct, frozen=True):
    """The properties that may change within a series: a change on the day of a step is a candidate for its cause."""

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


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Return the values of each key, both in the order in which they come."""
    groups: dict[Key, list[Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def distinct(values: Iterable[str | None]) -> Sequence[str]:
    """Return the different values in the order in which they first come, without those that are absent."""
    return list(dict.fromkeys(value for value in values if value is not None))


def named(key: CaseKey) -> str:
    """Return a case as people call it: model, precision, runtime and device."""
    return f"{key.model} {key.precision} on {key.runtime}, {key.device}"


def names_of(keys: Iterable[CaseKey], called: Callable[[CaseKey], str] = named, fields: Iterable[str] = tuple(FIELD)) -> dict[CaseKey, str]:
    """Return a name for each case, alike only where all `fields` are: `yolov8n fp32 on onnx, pi-1, 4 threads` beside one of 1 thread."""
    by_name = grouped((called(key), key) for key in dict.fromkeys(keys))
    parts = [FIELD[name].text for name in fields]
    return {key: ", ".join([name, *apart(key, alike, parts)]) for name, alike in by_name.items() for key in alike}


def apart(key: CaseKey, alike: Sequence[CaseKey], parts: Sequence[Callable[[CaseKey], str]]) -> list[str]:
    """Return of the `parts` of a case what tells it from the others that have its name."""
    distinguishing: list[str] = []
    remaining = [other for other in alike if other != key]
    for part in parts:
        same = [other for other in remaining if part(other) == part(key)]
        if len(same) < len(remaining):
            distinguishing.append(part(key))
            remaining = same
    return distinguishing
