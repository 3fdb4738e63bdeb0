"""The review: each case of the new side beside the same case of the baseline; what has no like is left out with the reason.

The same case is the same model, data, scenario, precision, runtime, back-end, threads, batch and power mode on the same device; where no
device is on both sides, on the same board. No other baseline takes the place of one that is missing. What may differ is what a change
changes: the model's file, and the versions of runtime and agent.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import msgspec

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.records import RunRecord, Verdict
from edgemeter.collector.compare.cases import group
from edgemeter.collector.compare.judging import Judgements, Matters, judge
from edgemeter.collector.compare.naming import names_of
from edgemeter.collector.compare.ratios import Ratios, ratios
from edgemeter.collector.compare.store import Contents
from edgemeter.collector.compare.summary import Summary, summarise

SAME = (
    "provenance",
    "model",
    "task",
    "runtime",
    "backend",
    "threads",
    "precision",
    "batch",
    "scenario",
    "samples_per_query",
    "target_per_s",
    "dataset_sha256",
    "input_values",
    "power_mode",
)
NOTED = ("agent", "kernel", "firmware", "governor")


@dataclass(frozen=True, slots=True)
class Pair:
    """One case on both sides, with a name that no other has. `changed` is what differs beneath it, in words."""

    name: str
    case: Summary
    baseline: Summary
    ratios: Ratios
    judgements: Judgements
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Left:
    """What is not compared: on which side, what it is, and why. `is_lost` marks a case that the baseline has and the new side ruined."""

    side: str
    what: str
    reason: str
    is_lost: bool = False


@dataclass(frozen=True, slots=True)
class Review:
    """The pairs in the order of the baseline, and what is left out; `baseline` and `new` are the sides as they were asked for."""

    baseline: str
    new: str
    pairs: tuple[Pair, ...]
    left_out: tuple[Left, ...]
    matters: Matters


@dataclass(frozen=True, slots=True)
class _Side:
    name: str
    summaries: list[Summary]
    left_out: list[Left]
    unusable: dict[Hashable, str]


def review(baseline: tuple[str, Contents], new: tuple[str, Contents], matters: Matters = Matters()) -> Review:  # noqa: B008 - frozen
    """Return the review of two named sides.

    Raises:
        ConfigError: a run is on both sides: nothing would be compared.
    """
    both = {run.id for run in baseline[1].runs} & {run.id for run in new[1].runs}
    if both:
        message = f"{len(both)} runs are on both sides ({min(both)} is one): choose sides apart, by ?since=, ?until=, ?device= or ?agent="
        raise ConfigError(message)
    place = _place(baseline[1], new[1])
    old, now = _side(baseline, place), _side(new, place)
    known: dict[Hashable, list[Summary]] = {}
    for summary in old.summaries:
        known.setdefault(_identity(summary, place), []).append(summary)
    met = {_identity(summary, place) for summary in now.summaries}
    gone = {identity: summaries[0] for identity, summaries in known.items() if identity not in met}
    names = names_of(summary.key for summary in (*now.summaries, *gone.values()))
    pairs: list[Pair] = []
    left_out = [*old.left_out, *now.left_out]
    for summary in now.summaries:
        found = known.get(_identity(summary, place))
        if found is None:
            left_out.append(Left(now.name, names[summary.key], "the baseline has no valid run of this case"))
        else:
            # Of several versions the baseline is the one that was measured last.
            pairs.append(_pair(names[summary.key], summary, max(found, key=lambda one: one.newest.started_at_ns), matters))
    for identity, summary in gone.items():
        why = now.unusable.get(identity)
        reason = f"no usable run on the new side: {why}" if why else "not measured on the new side"
        left_out.append(Left(old.name, names[summary.key], reason, is_lost=why is not None))
    return Review(old.name, now.name, tuple(pairs), tuple(left_out), matters)


def _place(baseline: Contents, new: Contents) -> Callable[[Summary], Hashable]:
    devices = [{(run.fleet, run.device) for run in side.runs} for side in (baseline, new)]
    if devices[0] & devices[1]:
        return lambda summary: (summary.key.fleet, summary.key.device)
    return lambda summary: summary.around.environment["board"]


def _side(side: tuple[str, Contents], place: Callable[[Summary], Hashable]) -> _Side:
    name, contents = side
    cases, refused = group(contents.runs)
    by_id = {run.id: run for run in contents.runs}
    left_out = [Left(name, entry.run or "what is no run", entry.reason) for entry in (*contents.left_out, *refused)]
    unusable: dict[Hashable, str] = {}
    for entry in refused:
        if entry.run is not None:
            # An invalid run has no case of its own; summed up alone it says which one it would have belonged to.
            alone, _ = group([_forgiven(by_id[entry.run])])
            unusable.update({_identity(summarise(case), place): entry.reason for case in alone})
    return _Side(name, [summarise(case) for case in cases], left_out, unusable)


def _forgiven(run: RunRecord) -> RunRecord:
    return msgspec.structs.replace(
        run, verdict=Verdict(state="valid"), provenance=run.provenance | dict.fromkeys(("latency", "throughput"), "measured")
    )


def _identity(summary: Summary, place: Callable[[Summary], Hashable]) -> Hashable:
    return place(summary), tuple(getattr(summary.key, name) for name in SAME)


def _pair(name: str, case: Summary, baseline: Summary, matters: Matters) -> Pair:
    found = ratios(case, baseline)
    return Pair(name, case, baseline, found, judge(case, baseline, found, matters), _changed(case, baseline))


def _changed(case: Summary, baseline: Summary) -> tuple[str, ...]:
    own, other = case.key, baseline.key
    around = [(name, baseline.around.environment[name], case.around.environment[name]) for name in NOTED]
    facts: Sequence[tuple[str, str | None, str | None]] = (
        ("device", other.device, own.device),
        ("model file", other.model_sha256[:12], own.model_sha256[:12]),
        (own.runtime_package, other.runtime_version, own.runtime_version),
        *around,
    )
    return tuple(f"{name} {before or 'none'} to {after or 'none'}" for name, before, after in facts if before != after)
