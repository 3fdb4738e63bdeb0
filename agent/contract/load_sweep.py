"""Sweeps of a model behind a server over users or rates: the highest level held; of text tokens a user against tokens in all."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

import msgspec

from edgemeter.agent.base.figures import count, plain_digits
from edgemeter.agent.contract.case_identity import CaseKey, key_of
from edgemeter.agent.contract.figures import reader
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_generation import Generation
from edgemeter.agent.contract.record_served import Served
from edgemeter.agent.contract.slo import METRICS, slo_text

# The share of requests that must meet the limits: a p90 below each of them.
GOOD_RATIO = 0.9
MOST_FAILED_RATIO = 0.01
TOO_SHORT = "a schedule too short to tell"
SCENARIOS = ("concurrent", "poisson")
# Rules that find the load too high: such a run is a level that does not hold, unless one of the others says that it measured nothing.
OF_LOAD = {"rate-not-sustained", "failed-answers"}
UNSOUND = {"outputs-differ", "cached-prompt", "throttled"}


class SweepPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One level of a sweep, by users or by rate: medians over its runs; null where they have none."""

    runs: int
    concurrency: int | None
    target_per_s: float | None
    requests_per_s: float | None
    latency_p50_ms: float | None
    latency_p90_ms: float | None
    output_tokens_per_s: float | None
    user_tokens_per_s: float | None
    ttft_p50_ms: float | None
    ttft_p90_ms: float | None
    tpot_p50_ms: float | None
    goodput_per_s: float | None
    good_ratio: float | None
    error_ratio: float
    holds: bool
    limited_by: str | None

    @property
    def level(self) -> float:
        """The users, or the rate."""
        return self.concurrency or self.target_per_s or 0.0

    @property
    def name(self) -> str:
        """The level in words."""
        return f"{plain_digits(self.target_per_s, 3)} requests/s" if self.concurrency is None else count(self.concurrency, "user")


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """The levels of one model on one server, from the lowest; `limits` are in words, `summary` states the highest level that holds."""

    device: str
    model: str
    settings: str
    limits: str
    points: tuple[SweepPoint, ...]
    summary: str


def fails_too_often(answers: Generation | Served, answered: int) -> bool:
    """Return whether more than the share of queries that may fail did."""
    return answers.unanswered > MOST_FAILED_RATIO * (answers.failed_queries + answered)


def answers_of(run: RunRecord) -> Generation | Served | None:
    """Return the part of the record on the queries of a server; None of a model that ran in its own process."""
    return run.generation or run.served


def requests_per_s(run: RunRecord) -> float:
    """Return the requests answered a second; the throughput counts the samples of a fixed batch."""
    return run.throughput_per_s / (run.load.samples_per_query if run.load else 1)


def error_ratio(run: RunRecord) -> float:
    """Return the share of requests without an answer: failed, or left out because too many were under way."""
    answers = answers_of(run)
    failed = answers.failed_queries if answers else 0
    unserved = run.load.unserved if run.load else 0
    return (failed + unserved) / max(run.latency.count + failed + unserved, 1)


def limit_of(run: RunRecord) -> str | None:
    """Return what keeps a run from holding its load, in words; None where it holds: the rate is sustained, and all limits are met."""
    answers, load = answers_of(run), run.load
    if answers is not None and fails_too_often(answers, run.latency.count):
        return f"{error_ratio(run):.1%} of requests without an answer"
    goodput = answers.goodput if answers else None
    are_good = goodput is None or goodput.good >= GOOD_RATIO * run.latency.count
    if load is not None and load.unserved and load.in_flight_max and are_good:
        return "the number of queries that Edgemeter sends at once"
    if goodput is not None and goodput.good_ratio < GOOD_RATIO and any(goodput.missed.values()):
        name = max(goodput.missed, key=lambda name: goodput.missed[name])
        part = getattr(answers, name) if name in ("ttft", "tpot") else run.latency
        return f"{METRICS[name]} p90{f' of {plain_digits(part.p90_ms)} ms' if part and part.p90_ms is not None else ''}"
    if load is not None and load.is_sustained is False:
        return "requests that wait in line"
    if load is not None and load.target_per_s is not None and load.is_sustained is None and goodput is None:
        return TOO_SHORT
    return None


def sweeps(runs: Iterable[RunRecord]) -> list[Sweep]:
    """Return the sweeps among the runs: cases that are equal but for users or rate, of two levels and more.

    Of invalid runs only those count that were offered too much: they are the answer.
    """
    groups: dict[tuple[CaseKey, str], list[RunRecord]] = {}
    for run in runs:
        rules = set(run.verdict.rules)
        counts = run.verdict.state != "invalid" or (bool(rules & OF_LOAD) and not rules & UNSOUND)
        answers = answers_of(run)
        if run.scenario in SCENARIOS and answers is not None and counts:
            limits = slo_text(answers.goodput.limits_ms) if answers.goodput else ""
            key = msgspec.structs.replace(key_of(run), target_per_s=None, concurrency=None)
            groups.setdefault((key, limits), []).append(run)
    each = (_sweep(key, limits, of_sweep) for (key, limits), of_sweep in groups.items())
    return [sweep for sweep in each if len(sweep.points) > 1]


def _sweep(key: CaseKey, limits: str, runs: Sequence[RunRecord]) -> Sweep:
    levels: dict[Any, list[RunRecord]] = {}
    for run in runs:
        levels.setdefault((run.load.concurrency, run.load.target_per_s) if run.load else None, []).append(run)
    points = sorted((_point(of_level) for of_level in levels.values()), key=lambda point: point.level)
    generation = runs[0].generation
    lengths = f" {generation.lengths}" if generation else ""
    model = f"{key.model}{lengths}"
    return Sweep(
        device=key.device, model=model, settings=", ".join(filter(None, (key.precision, key.runtime, key.settings))), limits=limits,
        points=tuple(points), summary=_summary(model, key.device, limits, points),
    )  # fmt: skip


def _middle(runs: Sequence[RunRecord], path: str) -> float | None:
    values = [value for run in runs for part in path.split(" or ") if (value := reader(part)(run)) is not None]
    return median(values) if values else None


# Where the figures of a point stand in the record.
_PATHS: Mapping[str, str] = {
    "output_tokens_per_s": "generation.output_tokens_per_s",
    "user_tokens_per_s": "generation.user_tokens_per_s", "ttft_p50_ms": "generation.ttft.p50_ms", "ttft_p90_ms": "generation.ttft.p90_ms",
    "tpot_p50_ms": "generation.tpot.p50_ms", "goodput_per_s": "generation.goodput.requests_per_s or served.goodput.requests_per_s",
    "good_ratio": "generation.goodput.good_ratio or served.goodput.good_ratio", "latency_p50_ms": "latency.p50_ms",
    "latency_p90_ms": "latency.p90_ms",
}  # fmt: skip


def _point(runs: Sequence[RunRecord]) -> SweepPoint:
    limits = [limit for run in runs if (limit := limit_of(run)) is not None]
    load = runs[0].load
    return SweepPoint(
        runs=len(runs),
        concurrency=load.concurrency if load else None,
        target_per_s=load.target_per_s if load else None,
        requests_per_s=median(map(requests_per_s, runs)),
        error_ratio=median(map(error_ratio, runs)),
        # Of several runs at one level most must hold.
        holds=len(limits) * 2 < len(runs),
        limited_by=limits[0] if limits else None,
        **{name: _middle(runs, path) for name, path in _PATHS.items()},
    )


def bracket(points: Iterable[SweepPoint]) -> tuple[SweepPoint | None, SweepPoint | None]:
    """Return the highest level that holds below the lowest that does not, and that one; None where there is none.

    A level that cannot be told holds if a higher one does.
    """
    ordered = sorted(points, key=lambda point: point.level)
    highest = max((point.level for point in ordered if point.holds), default=0.0)
    failing = next((point for point in ordered if not point.holds and (point.limited_by != TOO_SHORT or point.level > highest)), None)
    holding = [point for point in ordered if point.holds and (failing is None or point.level < failing.level)]
    return (holding[-1] if holding else None), failing


def _summary(model: str, device: str, limits: str, points: Sequence[SweepPoint]) -> str:
    """Return the highest level that holds in one sentence, with what limits it."""
    holding, failing = bracket(points)
    begin = f"{model} on {device}"
    reason = f", limited by {failing.limited_by}" if failing and failing.limited_by else ""
    no_longer = f" ({plain_digits(failing.level, 3)} no longer{reason})" if failing else ""
    if holding is not None and holding.concurrency is not None and not limits:
        levels = [point for point in points if point.level <= holding.level]
        richest = max(levels, key=lambda point: point.output_tokens_per_s or point.requests_per_s or 0.0)
        rates = f"{plain_digits(richest.output_tokens_per_s)} output tokens/s in all, {plain_digits(richest.user_tokens_per_s)} a user"
        if richest.output_tokens_per_s is None:
            rates = f"{plain_digits(richest.requests_per_s)} requests/s, latency p50 of {plain_digits(richest.latency_p50_ms)} ms"
        return f"{begin} gives most with {richest.name}: {rates}{no_longer}"
    within = f" with {limits} for {GOOD_RATIO:.0%} of requests" if limits else ""
    if failing is None:
        return f"{begin} holds {points[-1].name}{within}, the most that was tried"
    if holding is None:
        return f"{begin} does not hold {failing.name}{within}, the least that was tried{reason}"
    return f"{begin} holds {holding.name}{within}{no_longer}"
