"""Modes: how long a run measures. Query counts and times follow MLPerf Mobile and MLPerf Inference."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mode:
    """How much of everything: a run lasts until both `queries` and `seconds` are reached."""

    queries: int
    seconds: float
    warm_up_seconds: float
    idle_seconds: float
    repeats: int


# Idle power is only taken where a sensor is; measurement-rules ask for >= 30 s of it, which the two short modes do not give.
MODES: Mapping[str, Mode] = {
    "rapid": Mode(queries=64, seconds=0.0, warm_up_seconds=3.0, idle_seconds=5.0, repeats=3),
    "quick": Mode(queries=128, seconds=10.0, warm_up_seconds=10.0, idle_seconds=10.0, repeats=3),
    "normal": Mode(queries=1024, seconds=60.0, warm_up_seconds=30.0, idle_seconds=30.0, repeats=5),
    "full": Mode(queries=1024, seconds=600.0, warm_up_seconds=60.0, idle_seconds=60.0, repeats=5),
    # One long run: how a board holds out. A short warm-up, so that the curve begins before it is hot.
    "sustained": Mode(queries=64, seconds=1800.0, warm_up_seconds=5.0, idle_seconds=60.0, repeats=1),
}
