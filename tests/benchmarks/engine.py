"""What the engine adds to a latency: p50 by our loop against a bare loop and LiteRT's own benchmark program.

Loops are fed in the same way outside the clock, so that caches are in the same state: what is left is what our loop adds to the call.
They take turns in one process: between processes p50 moves by 1%, and no number of pairs that anybody waits for tells 0.2% through that.
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
from contextlib import ExitStack, closing, suppress
from itertools import count
from pathlib import Path

from edgemeter.agent.contract.suite import MODES, Case
from edgemeter.agent.engine import closed_loop, job
from edgemeter.agent.engine.model_subject import ModelSubject
from edgemeter.agent.engine.scenarios.timing import TimingPlan
from edgemeter.agent.engine.stopwatch import Stopwatch, no_collection
from tests.benchmarks.harness import Comparison, LeftOutError, Line, Pair, at_most, compared, in_turn, real_models

SECONDS = 35.0
# Model, its goal, queries a block: short against what else happens on a machine, and the first, after the set-up, hardly moves the median.
QUICK = ("mobilenet_v1_0.25_128_quant.tflite", at_most(1.002, reach=0.001), 32)
SLOW = ("coco_ssd_mobilenet_v1_1.0_quant_2018_06_29.tflite", at_most(1.005), 8)
PROGRAM_QUERIES, PROGRAM_SECONDS, TURN_S = MODES["quick"].queries, 80.0, 0.3
SUITE = """
name = "bench"
[[case]]
model = "{model}"
seconds = 0
repeats = 1
mode = "quick"
"""


class Loops:
    """A model on one thread of LiteRT, and a block of so many queries of it, by our loop and by a bare one."""

    def __init__(self, model: Path, queries: int) -> None:
        case = Case(model=str(model), runtime="litert", queries=queries, seconds=0, warm_up_seconds=0, idle_seconds=0)
        self._subject = ModelSubject(job.RunJob(case=case, sha256="", size_bytes=0, seed=0, accuracy=False, idle=False, spawned_ns=0))
        self._subject.load()
        self._subject.prepare()
        self.runtime, self.inputs, self.queries = self._subject.runtime, self._subject.inputs, queries
        for loop in (self.ours_ms, self.bare_ms) * 3:
            loop()

    def ours_ms(self) -> float:
        """Return p50 of a block that our own single_stream timed."""
        plan = TimingPlan(queries=self.queries, seconds=0, expected_ns=1, seed=1)
        self._subject.ready(plan)
        return statistics.median(closed_loop.run(Stopwatch(self._subject), plan).latency_ns.tolist()) / 1e6

    def bare_ms(self) -> float:
        """Return p50 of a block in a loop of nothing but LiteRT's set_tensor, two clock reads and its invoke."""
        interpreter, clock, queries = self.runtime._interpreter, time.monotonic_ns, self.queries
        index, set_tensor, invoke = interpreter.get_input_details()[0]["index"], interpreter.set_tensor, interpreter.invoke
        arrays = [array for (array,) in self.inputs]
        durations = array("q", bytes(8 * queries))
        with no_collection():
            for query in range(queries):
                set_tensor(index, arrays[query % len(arrays)])
                start = clock()
                invoke()
                durations[query] = clock() - start
        return statistics.median(durations) / 1e6

    def close(self) -> None:
        """Let the model go."""
        self._subject.close()


def comparisons() -> Iterator[Comparison]:
    """Yield the comparison with a bare loop for a model of about 0.2 ms and one of about 6 ms."""
    models = real_models()
    for file, goal, queries in (QUICK, SLOW):
        line = Line(f"engine p50, {Path(file).stem}, 1 thread", "ms", "bare loop around invoke()", goal)
        # Around all blocks: a collection takes longer than a block.
        with closing(Loops(models / file, queries)) as loops, no_collection():
            yield compared(line, in_turn(loops.ours_ms, loops.bare_ms), SECONDS)
    yield from beside_litert_benchmark()


def beside_litert_benchmark() -> Iterator[Comparison]:
    """Yield p50 of `edgemeter run` against `litert-benchmark`, which ships in LiteRT's wheel; none where it is not installed.

    The peer rounds to 0.01 ms, so that only the slower model can be compared. It runs the model through LiteRT's CompiledModel, we through
    its Interpreter: the ratio holds both what the two programs add and what the two ways of running differ by. Its figure is read as
    `edgemeter references` reads what others publish.
    """
    program = Path(sys.executable).parent / "litert-benchmark"
    if not program.exists():
        raise LeftOutError(f"{program} is not there")
    model, numbers = real_models() / SLOW[0], count()
    line = Line(f"edgemeter run p50, {model.stem}, 1 thread", "ms", "litert-benchmark", at_most(1.02, reach=0.02))
    yield compared(line, lambda: _programs_ms(program, model, next(numbers) % 2), PROGRAM_SECONDS)


def _programs_ms(program: Path, model: Path, first: int) -> Pair:
    """Return p50 of both programs, in fresh processes that wait for each other once warm: seconds apart a machine is another.

    They take turns of some 30 queries; the query that a turn ends is long, and above the median.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        suite, result = folder / "suite.toml", folder / "result.json"
        suite.write_text(SUITE.format(model=model))
        run = [sys.executable, "-m", "edgemeter.agent.cli.main", "run", str(suite), "--power", "none", "--no-save", "--format", "json"]
        settings = ["--num_runs", str(PROGRAM_QUERIES), "--warmup_runs", "50", "--num_threads", "1", "--result_json", str(result)]
        programs = []
        for command, begins in ((run, ": timed,"), ([str(program), "--model", str(model), *settings], "benchmark iterations")):
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
            stack.callback(_send, process, signal.SIGCONT)
            if not any(begins in line for line in process.stderr or ()):
                raise RuntimeError(f"{command[0]} ended before it measured")
            _send(process, signal.SIGSTOP)
            programs.append(process)
        for number in count(first):
            _send(programs[number % 2], signal.SIGCONT)
            time.sleep(TURN_S)
            if any(process.poll() is not None for process in programs):
                break
            _send(programs[number % 2], signal.SIGSTOP)
        for process in programs:
            _send(process, signal.SIGCONT)
        (document, _), _ = [process.communicate() for process in programs]
        median = float(json.loads(result.read_bytes())["latency"]["median_ms"])
    return float(json.loads(document)["runs"][0]["latency"]["p50_ms"]), median


def _send(process: "subprocess.Popen[str]", signal_number: int) -> None:
    pids = [] if process.poll() is not None else [process.pid]
    for pid in pids:
        with suppress(OSError):
            pids += [int(child) for tasks in Path(f"/proc/{pid}/task").glob("*/children") for child in tasks.read_text().split()]
            os.kill(pid, signal_number)
