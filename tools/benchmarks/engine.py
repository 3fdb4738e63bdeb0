"""The time that the engine adds to a latency.

It is p50 by our loop against a bare loop and LiteRT's own benchmark program. Loops are fed in the
same way outside the clock, so that caches are in the same state: the difference is what our loop
adds to the call. They take turns in one process: between processes p50 moves by 1%, and no number
of pairs that anybody waits for tells 0.2% through that.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator
from contextlib import closing, nullcontext, suppress
from itertools import count
from pathlib import Path
from unittest.mock import patch

from click.testing import CliRunner

from edgemeter.agent.cli import session
from edgemeter.agent.cli.run import run
from edgemeter.agent.contract.suite import MODES, Case
from edgemeter.agent.engine import closed_loop, job
from edgemeter.agent.engine.model_subject import ModelSubject
from edgemeter.agent.engine.scenarios.timing import TimingPlan
from edgemeter.agent.engine.stopwatch import Stopwatch, no_collection
from tools.benchmarks.harness import (
    Comparison,
    LeftOutError,
    Line,
    Pair,
    at_most,
    compared,
    in_turn,
    real_models,
)

QUICK, SLOW = (
    "mobilenet_v1_0.25_128_quant.tflite",
    "coco_ssd_mobilenet_v1_1.0_quant_2018_06_29.tflite",
)
# A block is short against what else happens on a machine, and its first query, after the set-up,
# hardly moves the median.
SECONDS, QUERIES = 20.0, 32
PROGRAM_SECONDS, PROGRAM_QUERIES, TURN_S = 80.0, MODES["rapid"].queries, 0.15
OURS = ["--mode", "rapid", "--repeats", "1", "--power", "none", "--no-save", "--format", "json"]


class Loops:
    """A model on one thread of LiteRT, and blocks of so many queries of it.

    A block is by our loop or by a bare one.
    """

    def __init__(self, model: Path) -> None:
        case = Case(
            model=str(model),
            runtime="litert",
            queries=QUERIES,
            seconds=0,
            warm_up_seconds=0,
            idle_seconds=0,
        )
        self.subject = ModelSubject(
            job.RunJob(
                case=case, sha256="", size_bytes=0, seed=0, accuracy=False, idle=False, spawned_ns=0
            )
        )
        self.subject.load()
        self.subject.prepare()
        for loop in (self.ours_ms, self.bare_ms) * 3:
            loop()

    def ours_ms(self) -> float:
        """Return p50 of a block that our own single_stream timed."""
        plan = TimingPlan(queries=QUERIES, seconds=0, expected_ns=1, seed=1)
        self.subject.ready(plan)
        return (
            statistics.median(closed_loop.run(Stopwatch(self.subject), plan).latency_ns.tolist())
            / 1e6
        )

    def bare_ms(self) -> float:
        """Return p50 of a block in a bare loop.

        That has only LiteRT's set_tensor, two clock reads and its invoke.
        """
        interpreter, clock = self.subject.runtime._interpreter, time.monotonic_ns
        index, set_tensor, invoke = (
            interpreter.get_input_details()[0]["index"],
            interpreter.set_tensor,
            interpreter.invoke,
        )
        arrays = [array for (array,) in self.subject.inputs]
        durations = array("q", bytes(8 * QUERIES))
        with no_collection():
            for query in range(QUERIES):
                set_tensor(index, arrays[query % len(arrays)])
                start = clock()
                invoke()
                durations[query] = clock() - start
        return statistics.median(durations) / 1e6


def comparisons() -> Iterator[Comparison]:
    """Yield the comparison with a bare loop for a model of less than 1 ms."""
    model = real_models() / QUICK
    line = Line(
        f"engine p50, {model.stem}, 1 thread",
        "ms",
        "bare loop around invoke()",
        at_most(1.002, reach=0.001),
    )
    loops = Loops(model)
    # Around all blocks: a collection takes longer than a block.
    with closing(loops.subject), no_collection():
        yield compared(line, in_turn(loops.ours_ms, loops.bare_ms), SECONDS)
    yield from beside_litert_benchmark()


def beside_litert_benchmark() -> Iterator[Comparison]:
    """Yield p50 of `edgemeter run` against `litert-benchmark`, which ships in LiteRT's wheel.

    Yields none where it is not installed. The peer rounds to 0.01 ms, so that only the slower model
    can be compared. It runs the model through LiteRT's CompiledModel, we through its Interpreter:
    the ratio holds both what the two programs add and what the two ways of running differ by.
    """
    program = Path(sys.executable).parent / "litert-benchmark"
    if not program.exists():
        raise LeftOutError(f"{program} is not there")
    model, numbers = real_models() / SLOW, count()
    line = Line(
        f"edgemeter run p50, {model.stem}, 1 thread",
        "ms",
        "litert-benchmark",
        at_most(1.02, reach=0.02),
    )
    yield compared(
        line,
        lambda: _programs_ms(program, model, next(numbers) % 2),
        PROGRAM_SECONDS,
        has_processes=True,
    )


def _programs_ms(program: Path, model: Path, first: int) -> Pair:
    """Return p50 of `edgemeter run` and of the program, which take turns while they are timed.

    A machine is another one seconds later.
    """
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        settings = [
            "--num_runs",
            str(PROGRAM_QUERIES),
            "--warmup_runs",
            "20",
            "--num_threads",
            "1",
            "--result_json",
            str(result),
        ]

        def on_event(event: object) -> None:
            if isinstance(event, job.Phase) and event.name == "timed":
                _take_turns([str(program), "--model", str(model), *settings], first)

        # The command runs in this process, its queries in a process of their own, which waits while
        # its session handles an event.
        with patch.object(session, "session_progress", lambda: nullcontext(on_event)):
            ran = CliRunner().invoke(run, [str(model), *OURS], catch_exceptions=False)
        return float(json.loads(ran.stdout)["runs"][0]["latency"]["p50_ms"]), float(
            json.loads(result.read_bytes())["latency"]["median_ms"]
        )


def _take_turns(command: list[str], first: int) -> None:
    """Let the process of the run and the program's take turns until the program has ended.

    The run is timed from now on. A turn has some 10 queries; the one at its end is long, and above
    the median.
    """
    worker = _descendants(os.getpid())
    _send(worker, signal.SIGSTOP)
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        if not any("benchmark iterations" in line for line in process.stderr or ()):
            raise RuntimeError(f"{command[0]} ended before it measured")
        sides = worker, [process.pid]
        _send(sides[1], signal.SIGSTOP)
        for number in count(first):
            _send(sides[number % 2], signal.SIGCONT)
            time.sleep(TURN_S)
            if process.poll() is not None:
                break
            _send(sides[number % 2], signal.SIGSTOP)
        _send(worker, signal.SIGCONT)


def _descendants(pid: int) -> list[int]:
    children = [
        int(child)
        for tasks in Path(f"/proc/{pid}/task").glob("*/children")
        for child in tasks.read_text().split()
    ]
    return children + [each for child in children for each in _descendants(child)]


def _send(pids: list[int], signal_number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal_number)
