"""The sandbox beside the same process without one: the latency of a query, and the time to the start of the measuring process."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from edgemeter.agent.engine import isolation, job
from edgemeter.models.catalogue.shipped_models import SHIPPED_FOLDER
from tests.benchmarks.comparison import Comparison, at_most, figure, interleaved
from tests.fixtures.run_jobs import one_case, run_job

PAIRS = 7
LATENCY_RATIO = 1.02
MODELS = ("edgemeter-shapes_fp32.onnx", "edgemeter-shapes_int8.tflite")


@contextmanager
def _plain(module: str, arguments: list[str], *_: Any, **streams: Any) -> Iterator["subprocess.Popen[bytes]"]:
    """Start the process as `sandbox.policy.started` does, without the sandbox."""
    with subprocess.Popen([sys.executable, "-m", module, *arguments], env={**os.environ, "PYTHONSAFEPATH": "1"}, **streams) as process:
        yield process


def _measured(model: str, *, is_confined: bool) -> job.MeasuredRun:
    case = one_case(SHIPPED_FOLDER / model, mode="rapid", queries=500, threads=1, agreement="never")
    with mock.patch.object(isolation.policy, "started", isolation.policy.started if is_confined else _plain):
        return isolation.run_isolated(run_job(case), lambda _event, _pid: None)


def comparisons() -> Iterator[Comparison]:
    """Yield the median latency of each model with and without the sandbox in pairs, and how much later the process begins."""
    for model in MODELS:
        begun_ms: list[float] = []

        def confined(model: str = model, begun_ms: list[float] = begun_ms) -> float:
            measured = _measured(model, is_confined=True)
            begun_ms.append(measured.cold_start.process_ms)
            return measured.latency.p50_ms or measured.latency.mean_ms

        def plain(model: str = model, begun_ms: list[float] = begun_ms) -> float:
            measured = _measured(model, is_confined=False)
            begun_ms.append(-measured.cold_start.process_ms)
            return measured.latency.p50_ms or measured.latency.mean_ms

        yield at_most(f"p50 of {model} in the sandbox", "ms", "without", interleaved(confined, plain, PAIRS), LATENCY_RATIO)
        # In each pair the one is later than the other by this much; a median of few, because processes start unevenly.
        pairs = zip(sorted(value for value in begun_ms if value > 0), sorted(-value for value in begun_ms if value < 0), strict=True)
        differences = sorted(confined_ms - plain_ms for confined_ms, plain_ms in pairs)
        yield figure(f"start of the process of {model}, later by", "ms", differences[len(differences) // 2])
