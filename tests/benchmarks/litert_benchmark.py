"""p50 of `edgemeter run` against `litert-benchmark`, which ships in LiteRT's wheel; each run in a fresh process.

The peer rounds to 0.01 ms, so that only the slower model can be compared. It runs the model through LiteRT's CompiledModel, we through
its Interpreter: the ratio holds both what the two programs add and what the two ways of running differ by.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.comparison import Comparison, LeftOutError, at_most, interleaved, real_models
from tests.benchmarks.engine import SLOW

PAIRS = 12
SECONDS = 60.0
QUERIES = 300


def comparisons() -> Iterator[Comparison]:
    """Yield the comparison for a model of about 6 ms; none where the program is not installed."""
    program = Path(sys.executable).parent / "litert-benchmark"
    if not program.exists():
        raise LeftOutError(f"{program} is not there")
    model = real_models() / SLOW[0]
    paired = interleaved(lambda: _ours_ms(model), lambda: _peer_ms(program, model), PAIRS, SECONDS)
    yield at_most(f"edgemeter run p50, {model.stem}, 1 thread", "ms", "litert-benchmark", paired, 1.02)


def _ours_ms(model: Path) -> float:
    with tempfile.TemporaryDirectory() as folder:
        suite = Path(folder) / "suite.toml"
        suite.write_text(f'name = "bench"\n[[case]]\nmodel = "{model}"\nqueries = {QUERIES}\nseconds = 0\nrepeats = 1\nmode = "rapid"\n')
        command = [sys.executable, "-m", "edgemeter.agent.cli.main", "run", str(suite), "--power", "none", "--json"]
        completed = subprocess.run(command, check=True, capture_output=True)
    return float(json.loads(completed.stdout)["runs"][0]["latency"]["p50_ms"])


def _peer_ms(program: Path, model: Path) -> float:
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        settings = ["--num_runs", str(QUERIES), "--warmup_runs", "50", "--num_threads", "1", "--result_json", str(result)]
        subprocess.run([str(program), "--model", str(model), *settings], check=True, capture_output=True)
        return float(json.loads(result.read_text())["latency"]["median_ms"])
