"""The slow-down of models that run together, beside a control that shares no code with it.

    python -m tests.benchmarks.contention MODEL.onnx MODEL.onnx --cpus 0 --cpus 0 --seconds 10 --rounds 5

The control starts one bare process a model: ONNX Runtime with one thread, pinned, which begins at a moment of the wall clock that is the
same for both, counts its calls for so many seconds and prints them. A slow-down is calls alone over calls together, by round.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from pathlib import Path

CONTROL = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[2])})
import numpy as np, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
types = {"tensor(float)": np.float32, "tensor(uint8)": np.uint8, "tensor(int8)": np.int8}
feed = {i.name: np.zeros([s if isinstance(s, int) else 1 for s in i.shape], types[i.type]) for i in session.get_inputs()}
while time.time() < float(sys.argv[3]) - 1:
    session.run(None, feed)
while time.time() < float(sys.argv[3]):
    pass
calls, end = 0, float(sys.argv[3]) + float(sys.argv[4])
while time.time() < end:
    session.run(None, feed)
    calls += 1
print(calls)
"""
START_S = 4.0


def calls_of(models: list[tuple[Path, int]], seconds: float) -> list[int]:
    """Return how many calls each model makes in so many seconds, all at the same time."""
    begin = str(time.time() + START_S)
    processes = [
        subprocess.Popen([sys.executable, "-c", CONTROL, model, str(core), begin, str(seconds)], stdout=subprocess.PIPE, text=True)
        for model, core in models
    ]
    return [int(process.communicate()[0]) for process in processes]


def measured(models: list[tuple[Path, int]], seconds: float, rounds: int, folder: Path) -> list[str]:
    """Return what `edgemeter run` states of the same models."""
    cases = "".join(
        f'[[case]]\nmodel = "{model.absolute()}"\nname = "{name}"\ncpus = [{core}]\n'
        for (model, core), name in zip(models, "ab", strict=True)
    )
    head = (
        f'name = "contention"\n[defaults]\ntogether = "both"\nthreads = 1\nseconds = {seconds}\nrepeats = {rounds}\nagreement = "never"\n'
    )
    (folder / "suite.toml").write_text(head + cases)
    command = [sys.executable, "-m", "edgemeter.agent.cli.main", "run", "suite.toml", "--power", "none", "--json", "--no-save", "-q"]
    document = json.loads(subprocess.run(command, cwd=folder, capture_output=True, check=True).stdout)
    cells = [(row["model"]["model"], row["beside"][0]) for row in document["together"]["rows"]]
    return [
        f"{name}: {cell['slow_down_ratio']:.3f} ({cell['slow_down_low_ratio'] or 0:.3f} to {cell['slow_down_high_ratio'] or 0:.3f})"
        for name, cell in cells
    ]


def main() -> None:
    """Print the slow-downs of the control, and those of Edgemeter."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs=2, type=Path)
    parser.add_argument("--cpus", action="append", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path())
    options = parser.parse_args()
    models = list(zip(options.models, options.cpus, strict=True))
    logs: list[list[float]] = [[], []]
    for _ in range(options.rounds):
        alone = [calls_of([model], options.seconds)[0] for model in models]
        for log, by_itself, together in zip(logs, alone, calls_of(models, options.seconds), strict=True):
            log.append(math.log(by_itself / together))
    for name, log in zip("ab", logs, strict=True):
        print(f"control {name}: {math.exp(statistics.mean(log)):.3f} ({math.exp(min(log)):.3f} to {math.exp(max(log)):.3f} in {len(log)})")
    for line in measured(models, options.seconds, options.rounds, options.folder):
        print(f"edgemeter {line}")


if __name__ == "__main__":
    main()
