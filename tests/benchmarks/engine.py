"""What the engine adds to a latency: p50 of `edgemeter run` against a bare loop around the runtime's own call, each in fresh processes."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.comparison import Comparison, interleaved, this_machine

BARE_LOOP = """
import statistics, sys, time
import numpy as np
from ai_edge_litert.interpreter import Interpreter
interpreter = Interpreter(sys.argv[1], num_threads=1)
interpreter.allocate_tensors()
(info,) = interpreter.get_input_details()
shape, dtype = info["shape"], info["dtype"]
draw = np.random.default_rng(0)
value = draw.random(shape).astype(dtype) if dtype is np.float32 else draw.integers(0, 128, shape).astype(dtype)
interpreter.set_tensor(info["index"], value)
seconds = float(sys.argv[2])
for _ in range(50):
    interpreter.invoke()
durations, end = [], time.monotonic() + seconds
while time.monotonic() < end:
    start = time.monotonic_ns()
    interpreter.invoke()
    durations.append(time.monotonic_ns() - start)
print(statistics.median(durations) / 1e6)
"""
ROUNDS = 8
SECONDS = 3.0


def comparisons(models: Path) -> Iterator[Comparison]:
    """Yield the comparison for a model of about 0.2 ms and one of about 6 ms; `models` holds the .tflite files."""
    for file, limit in (("mobilenet_v1_0.25_128_quant.tflite", 1.02), ("coco_ssd_mobilenet_v1_1.0_quant_2018_06_29.tflite", 1.02)):
        model = models / file
        ours, peer, ratio = interleaved(lambda m=model: _ours(m), lambda m=model: _bare(m), ROUNDS)  # type: ignore[misc]
        yield Comparison(
            name=f"engine p50, {model.stem}, 1 thread",
            unit="ms",
            ours=ours,
            peer="bare loop around invoke()",
            peer_value=peer,
            ratio=ratio,
            goal=f"ratio <= {limit}",
            machine=this_machine(),
            met=ratio <= limit,
        )


def _ours(model: Path) -> float:
    with tempfile.TemporaryDirectory() as folder:
        suite = Path(folder) / "suite.toml"
        suite.write_text(f'name = "bench"\n[[case]]\nmodel = "{model}"\nqueries = 64\nseconds = {SECONDS}\nrepeats = 1\n')
        done = subprocess.run(
            [sys.executable, "-m", "edgemeter.agent.cli", "run", str(suite), "--power", "none", "--json"], check=True, capture_output=True
        )
    return float(json.loads(done.stdout)["runs"][0]["latency"]["p50_ms"])


def _bare(model: Path) -> float:
    done = subprocess.run([sys.executable, "-c", BARE_LOOP, str(model), str(SECONDS)], check=True, capture_output=True)
    return float(done.stdout)
