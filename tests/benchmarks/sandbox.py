"""The sandbox beside the same process without one: the latency of a query, its CPU time, and the time to the start of the process.

A pair is two processes that take turns in short blocks on one core, so that what else happens on the machine meets both; what the memory's
layout of a process adds is told by several. CPU time settles it on a machine that is not quiet, where latency is mostly waiting.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import numpy as np

from edgemeter.agent.engine.confinement import grant_for
from edgemeter.agent.sandbox import policy
from edgemeter.models.catalogue.shipped_models import SHIPPED_FOLDER
from tests.benchmarks.comparison import ROOT, Comparison, Line, at_most, compared, compared_pairs, figure
from tests.benchmarks.interleaving import Pair, in_turn
from tests.fixtures.run_jobs import one_case

SECONDS = 20.0
BLOCKS, QUERIES = 60, 50
GOAL = at_most(1.02)
MODELS = ("edgemeter-shapes_fp32.onnx", "edgemeter-shapes_int8.tflite")
BLOCKS_MODULE = "tests.benchmarks.timed_blocks"
Start = Callable[[], AbstractContextManager["subprocess.Popen[Any]"]]


class _Timed:
    """A process that times blocks; `begun_ms` after it was started it ran its first line."""

    def __init__(self, process: "subprocess.Popen[Any]", spawned_ns: int) -> None:
        self._process = process
        self.begun_ms = (self._figures()[0] - spawned_ns) / 1e6

    def block_ms(self) -> list[float]:
        """Return p50 and the mean CPU time of one block."""
        assert self._process.stdin
        self._process.stdin.write(b"%d\n" % QUERIES)
        self._process.stdin.flush()
        return [figure_ns / 1e6 for figure_ns in self._figures()]

    def _figures(self) -> list[float]:
        assert self._process.stdout
        return [float(word) for word in self._process.stdout.readline().split()]

    def end(self) -> None:
        """Let the process end."""
        assert self._process.stdin
        self._process.stdin.close()


def comparisons() -> Iterator[Comparison]:
    """Yield the median latency of each model with and without the sandbox in pairs, and how much later the process begins."""
    with mock.patch.dict(os.environ, PYTHONPATH=str(ROOT), PYTHONSAFEPATH="1"):
        for model in MODELS:
            case = one_case(SHIPPED_FOLDER / model, threads=1)
            grant = grant_for(case)
            grant = replace(grant, read=(*grant.read, ROOT / "tests"))
            arguments = [case.runtime, case.model]
            pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            confined: Start = partial(policy.started, BLOCKS_MODULE, arguments, grant, **pipes)
            plain: Start = partial(subprocess.Popen, [sys.executable, "-m", BLOCKS_MODULE, *arguments], start_new_session=True, **pipes)
            cpu_ms: list[Pair] = []
            later_ms: list[float] = []

            def pair(confined: Start = confined, plain: Start = plain, cpu_ms: Any = cpu_ms, later_ms: Any = later_ms) -> Pair:
                p50_ms, of_query_ms, begun_later_ms = _pair(confined, plain, len(cpu_ms) % 2)
                cpu_ms.append(of_query_ms)
                later_ms.append(begun_later_ms)
                return p50_ms

            yield compared(Line(f"p50 of {model} in the sandbox", "ms", "without", GOAL), pair, SECONDS)
            yield compared_pairs(Line(f"CPU time of a query of {model} in the sandbox", "ms", "without", GOAL), cpu_ms)
            yield figure(f"start of the process of {model}, later by", "ms", statistics.median(later_ms))


def _pair(confined: Start, plain: Start, first: int) -> tuple[Pair, Pair, float]:
    """Return the medians of p50 and of CPU time inside and outside, and by how many ms the process inside began later."""
    with ExitStack() as stack:
        timed: list[_Timed] = []
        for start in (confined, plain) if first else (plain, confined):
            spawned_ns = time.monotonic_ns()
            timed.append(_Timed(stack.enter_context(start()), spawned_ns))
            timed[-1].block_ms()
        inside, outside = timed if first else timed[::-1]
        turns = in_turn(inside.block_ms, outside.block_ms)
        # Of each block: inside or outside, p50 or CPU time.
        blocks = np.asarray([turns() for _ in range(BLOCKS)])
        for process in timed:
            process.end()
    (p50_inside_ms, cpu_inside_ms), (p50_ms, cpu_ms) = np.median(blocks, axis=0).tolist()
    return (p50_inside_ms, p50_ms), (cpu_inside_ms, cpu_ms), inside.begun_ms - outside.begun_ms
