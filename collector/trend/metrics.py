"""What the trend reads of a run: its series, its fingerprint, its figures with standard uncertainties; and the metrics.

A metric names a figure, the scale of its differences, and the smallest difference that matters.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import msgspec

from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.contract.record_figures import Energy
from edgemeter.agent.contract.record_time import off_by_ns
from edgemeter.collector.runs.cases import UNKNOWN_BOARD, key_of, not_measured

NS_PER_DAY = 86_400 * 1_000_000_000

# Bounds of 95% are so many standard deviations apart.
_BOUNDS_APART = 2 * 1.959964


class SeriesKey(msgspec.Struct, frozen=True, order=True):
    """What must be equal for runs to be one series: the case on its device, without what may change below it (see `Fingerprint`)."""

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
    samples_per_query: int
    target_per_s: float | None
    task: str
    dataset_sha256: str
    input_values: int | None
    provenance: str

    def case(self) -> str:
        """Return the case in words."""
        threads = f"{self.threads} thread" + ("" if self.threads == 1 else "s")
        batch = "" if self.batch == 1 else f", batch {self.batch}"
        return f"{self.model} {self.precision} on {self.runtime} {self.backend}, {threads}{batch}, {self.scenario}"

    def of_type(self) -> "SeriesKey":
        """Return the same case on all devices of the board type."""
        return msgspec.structs.replace(self, device="")


# Stands where the series is known from elsewhere.
NO_SERIES = SeriesKey("", "", "", "", "", "", "", "", 0, 0, "", 0, None, "", "", None, "")


class RunFigures(NamedTuple):
    """One run in figures, None where it has none.

    `*_u` are relative standard uncertainties (k = 1) of one run, in the figure's own unit for the accuracy. `energy_kind` and
    `accuracy_kind` name what was measured and how: two kinds are two series.
    """

    run: str
    started_at_ns: int
    received_ns: int
    day: int
    verdict: str
    temperature_c: float | None
    energy_mj: float | None
    energy_u: float | None
    net_mj: float | None
    net_u: float | None
    energy_kind: str | None
    p50_ms: float | None
    p50_u: float | None
    p90_ms: float | None
    p90_u: float | None
    accuracy: float | None
    accuracy_kind: str | None
    is_throttled: bool | None
    is_under_voltage: bool | None
    ttft_ms: float | None = None
    ttft_u: float | None = None
    tpot_ms: float | None = None
    tpot_u: float | None = None


def series_of(run: RunRecord) -> SeriesKey:
    """Return the series that `run` belongs to."""
    key = key_of(run)
    shared: dict[str, Any] = {name: getattr(key, name) for name in SeriesKey.__struct_fields__ if name != "board"}
    return SeriesKey(board=run.environment.board or UNKNOWN_BOARD, **shared)


def figures_of(run: RunRecord, received_ns: int | None = None) -> RunFigures:
    """Return the figures of `run`; None where not measured (or replayed).

    A run of a device without a synchronised clock, or with one that cannot be right, is placed at the time of receipt, if known.
    """
    is_wrong = received_ns is not None and (run.clock_synchronised is False or off_by_ns(run.started_at_ns, received_ns) is not None)
    at_ns = received_ns if received_ns is not None and is_wrong else run.started_at_ns
    energy = run.energy if run.energy is not None and has_own_energy(run) else None
    accuracy = run.accuracy if not_measured(run, "accuracy") is None else None
    has_latency = not_measured(run, "latency") is None
    latency = run.latency
    ttft = run.generation.ttft if run.generation and has_latency else None
    tpot = run.generation.tpot if run.generation and has_latency else None
    is_resolved = energy is not None and energy.net_state == "resolved" and energy.net_mj is not None and energy.net_mj > 0
    return RunFigures(
        run=run.id,
        started_at_ns=at_ns,
        received_ns=at_ns if received_ns is None else received_ns,
        day=at_ns // NS_PER_DAY,
        verdict=run.verdict.state,
        temperature_c=regressor_c(run),
        energy_mj=energy.gross_mj if energy else None,
        energy_u=_ratio(energy.gross_u_mj, energy.gross_k, energy.gross_mj) if energy else None,
        net_mj=energy.net_mj if energy and is_resolved else None,
        net_u=_ratio(energy.net_u_mj, energy.net_k, energy.net_mj) if energy and is_resolved else None,
        energy_kind=_energy_kind(energy) if energy else None,
        p50_ms=latency.p50_ms if has_latency and latency.p50_ms and latency.p50_ms > 0 else None,
        p50_u=ratio_of_bounds(latency.p50_low_ms, latency.p50_high_ms, latency.p50_ms),
        p90_ms=latency.p90_ms if has_latency and latency.p90_ms and latency.p90_ms > 0 else None,
        p90_u=ratio_of_bounds(latency.p90_low_ms, latency.p90_high_ms, latency.p90_ms),
        accuracy=accuracy.value if accuracy else None,
        accuracy_kind=_accuracy_kind(accuracy) if accuracy else None,
        is_throttled=_is_throttled(run),
        is_under_voltage=_any(one.under_voltage_now for one in run.conditions),
        ttft_ms=ttft.p50_ms if ttft else None,
        ttft_u=ratio_of_bounds(ttft.p50_low_ms, ttft.p50_high_ms, ttft.p50_ms) if ttft else None,
        tpot_ms=tpot.p50_ms if tpot else None,
        tpot_u=ratio_of_bounds(tpot.p50_low_ms, tpot.p50_high_ms, tpot.p50_ms) if tpot else None,
    )


def has_own_energy(run: RunRecord) -> bool:
    """Return whether the energy belongs into the run's series: one that was replayed beside measured queries is none of the board."""
    return not_measured(run, "energy") is None and energy_provenance(run) == run.provenance.get("latency")


def _ratio(expanded: float | None, factor: float | None, value: float | None) -> float | None:
    return expanded / (factor or 2.0) / value if expanded is not None and value else None


def ratio_of_bounds(low: float | None, high: float | None, value: float | None) -> float | None:
    """Return the relative standard uncertainty of a figure with bounds of 95%, None where one is not known."""
    return (high - low) / _BOUNDS_APART / value if low is not None and high is not None and value else None


def _energy_kind(energy: Energy) -> str:
    excludes = f" without {', '.join(energy.excludes)}" if energy.excludes else ""
    return f"{energy.scope}{excludes}"


# Stands in the kind of an accuracy whose lower value is the better one.
LOWER = " (lower is better)"


def _accuracy_kind(accuracy: Accuracy) -> str:
    better = LOWER if accuracy.better == "lower" else ""
    return f"{accuracy.metric}{better} over {accuracy.images} images {accuracy.dataset_sha256[:12]}"


def regressor_c(run: RunRecord) -> float | None:
    """Return the highest temperature before the run: the load's own heat is no cause. Without one, the highest of any reading."""
    for when in ("before", "during", "after"):
        found = [value for one in run.conditions if one.when == when for value in one.temperatures_c.values()]
        if found:
            return max(found)
    return None


def _is_throttled(run: RunRecord) -> bool | None:
    """Return whether the board throttled, None if unknown."""
    if any(reason.partition(":")[0] == "throttled" for reason in run.verdict.reasons):
        return True
    return _any(one.throttled_now for one in run.conditions)


def _any(flags: Iterable[bool | None]) -> bool | None:
    known = [flag for flag in flags if flag is not None]
    return any(known) if known else None


TOLD_RATIO = 0.9


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a run: its name in `RunFigures`, those of its standard uncertainty and its kind, None if it has none.

    Of accuracies `is_error` says whether those are of the metric whose lower value is the better one. `matters` is the smallest
    difference that matters, on the scale: per cent, or points. `floor` is the least that days scatter.
    """

    title: str
    unit: str
    scale: Literal["log", "points", "share"]
    worse: Literal["higher", "lower"]
    matters: float
    floor: float
    figure: str
    figure_u: str | None = None
    figure_kind: str | None = None
    is_error: bool | None = None
    only_valid: bool = True
    follows_temperature: bool = True

    def value(self, run: RunFigures) -> float | None:
        """Return the figure of a run, None where it has none."""
        found = getattr(run, self.figure)
        return None if found is None or not self.takes(self.kind(run)) else float(found)

    def kind(self, run: RunFigures) -> str | None:
        """Return of what kind the figure of a run is, None where that is not told apart."""
        return None if self.figure_kind is None else getattr(run, self.figure_kind)

    def takes(self, kind: str | None) -> bool:
        """Return whether a figure of this kind is one of the metric."""
        return self.is_error is None or self.is_error == (kind is not None and LOWER in kind)

    @property
    def told(self) -> float:
        """The estimated size from which a step is told to people: with one of just what matters that must not be the toss of a coin."""
        return TOLD_RATIO * self.matters


METRICS: dict[str, Metric] = {
    "energy": Metric("energy per inference, gross", "mJ", "log", "higher", 3.0, 0.05, "energy_mj", "energy_u", "energy_kind"),
    "energy-net": Metric("energy per inference, net", "mJ", "log", "higher", 3.0, 0.05, "net_mj", "net_u", "energy_kind"),
    "latency": Metric("latency p50", "ms", "log", "higher", 3.0, 0.05, "p50_ms", "p50_u"),
    "latency-p90": Metric("latency p90", "ms", "log", "higher", 3.0, 0.05, "p90_ms", "p90_u"),
    "ttft": Metric("time to first token p50", "ms", "log", "higher", 3.0, 0.05, "ttft_ms", "ttft_u"),
    "tpot": Metric("time per output token p50", "ms", "log", "higher", 3.0, 0.05, "tpot_ms", "tpot_u"),
    "accuracy": Metric(
        "accuracy", "", "points", "lower", 0.5, 0.02,
        "accuracy", figure_kind="accuracy_kind", is_error=False, follows_temperature=False,
    ),
    "error": Metric(
        "error of the predictions", "", "points", "higher", 0.5, 0.02,
        "accuracy", figure_kind="accuracy_kind", is_error=True, follows_temperature=False,
    ),
    "throttling": Metric(
        "share of throttled runs", "", "share", "higher", 10.0, 0.1, "is_throttled", only_valid=False, follows_temperature=False
    ),
}  # fmt: skip

# Metrics whose differences are ratios.
RELATIVE = frozenset(name for name, metric in METRICS.items() if metric.scale == "log")

# An interval may be wider than any number, if hardly anything is known.
_LARGEST = 10_000.0
DEFAULT = ("energy", "latency", "accuracy", "error", "throttling")


def on_scale(metric: Metric, value: float) -> float:
    """Return `value` on the metric's scale of differences."""
    return 100 * math.log(value) if metric.scale == "log" else 100 * value


def off_scale(metric: Metric, x: float) -> float:
    """Return the figure that `x` on the scale stands for."""
    return math.exp(x / 100) if metric.scale == "log" else x / 100


def difference(metric: Metric, step: float) -> float:
    """Return a step on the scale as per cent of the level before, or points."""
    return 100 * math.expm1(min(step, _LARGEST) / 100) if metric.scale == "log" else step
