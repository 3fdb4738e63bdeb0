"""Metrics: the figures that a trend is drawn of, on which scale their differences are looked at, and how large one must be to matter.

Energies and latencies are looked at as 100 ln(y): differences are per cent. Accuracies and the share of
throttled runs are looked at in points (0..100).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from edgemeter.collector.trend.run_figures import RunFigures


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a run; `value` and `kind` read it, `u` is the standard uncertainty of one run on the metric's scale, None: not known.

    `matters` is the smallest difference that matters, on the scale: per cent, or points. `floor` is the least that days scatter.
    """

    title: str
    unit: str
    scale: Literal["log", "points", "share"]
    worse: Literal["higher", "lower"]
    matters: float
    floor: float
    value: Callable[[RunFigures], float | None]
    u: Callable[[RunFigures], float | None]
    kind: Callable[[RunFigures], str | None]
    only_valid: bool = True
    follows_temperature: bool = True


def _per_cent(u_ratio: float | None) -> float | None:
    return None if u_ratio is None else 100 * u_ratio


def _no_kind(_: RunFigures) -> str | None:
    return None


def _unknown(_: RunFigures) -> float | None:
    return None


def _share(run: RunFigures) -> float | None:
    return None if run.is_throttled is None else float(run.is_throttled)


METRICS: dict[str, Metric] = {
    "energy": Metric(
        "energy per inference, gross", "mJ", "log", "higher", 3.0, 0.05,
        lambda run: run.energy_mj, lambda run: _per_cent(run.energy_u), lambda run: run.energy_kind,
    ),
    "energy-net": Metric(
        "energy per inference, net", "mJ", "log", "higher", 3.0, 0.05,
        lambda run: run.net_mj, lambda run: _per_cent(run.net_u), lambda run: run.energy_kind,
    ),
    "latency": Metric(
        "latency p50", "ms", "log", "higher", 3.0, 0.05, lambda run: run.p50_ms, lambda run: _per_cent(run.p50_u), _no_kind
    ),
    "latency-p90": Metric(
        "latency p90", "ms", "log", "higher", 3.0, 0.05, lambda run: run.p90_ms, lambda run: _per_cent(run.p90_u), _no_kind
    ),
    "accuracy": Metric(
        "accuracy", "", "points", "lower", 0.5, 0.02,
        lambda run: run.accuracy, _unknown, lambda run: run.accuracy_kind, follows_temperature=False,
    ),
    "throttling": Metric(
        "share of throttled runs", "", "share", "higher", 10.0, 0.1, _share, _unknown, _no_kind,
        only_valid=False, follows_temperature=False,
    ),
}  # fmt: skip
# An interval may be wider than any number: where hardly anything is known, the end is far away and no error.
_LARGEST = 10_000.0
DEFAULT = ("energy", "latency", "accuracy", "throttling")


def on_scale(metric: Metric, value: float) -> float:
    """Return `value` on the scale on which differences are looked at."""
    return 100 * math.log(value) if metric.scale == "log" else 100 * value


def off_scale(metric: Metric, x: float) -> float:
    """Return the figure that `x` on the scale stands for."""
    return math.exp(x / 100) if metric.scale == "log" else x / 100


def difference(metric: Metric, step: float) -> float:
    """Return a step on the scale as people say it: per cent of the level before, or points."""
    return 100 * math.expm1(min(step, _LARGEST) / 100) if metric.scale == "log" else step
