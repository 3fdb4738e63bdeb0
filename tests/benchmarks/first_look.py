"""The first look: how long the help, the first words of a run, and a whole short run take, as processes; `python -m` prints them."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.comparison import Comparison, within

ROUNDS = 9
HELP_S = 0.15
FIRST_WORDS_S = 1.0
RAPID_S = 8.0
MODEL = {
    "format": "edgemeter-replay",
    "schema": 1,
    "latencies_ms": [0.2],
    "inputs": [{"name": "x", "shape": [1, 4], "dtype": "float32"}],
    "outputs": [{"name": "y", "shape": [1], "dtype": "float32"}],
}
# A plug that is read once a second.
PLUG = {"id": "plug", "scope": "wall-ac", "period_ms": 1000, "t_s": [0, 1], "power_w": [5, 6]}


def comparisons() -> Iterator[Comparison]:
    """Yield the medians against their goals."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "m.replay.json").write_text(json.dumps(MODEL))
        (folder / "plug.json").write_text(json.dumps(PLUG))
        (folder / "plug.toml").write_text(f'power = ["replay"]\n[sensors.replay]\npath = "{folder / "plug.json"}"\n')
        run = ["run", str(folder / "m.replay.json"), "--mode", "rapid"]
        plug = [*run, "--config", str(folder / "plug.toml")]
        yield within("`edgemeter --help`", "s", statistics.median(_taken_s(folder, ["--help"])[1] for _ in range(ROUNDS)), HELP_S)
        taken = [_taken_s(folder, [*run, "--power", "none"]) for _ in range(ROUNDS)]
        yield within("first words of a run", "s", statistics.median(first for first, _ in taken), FIRST_WORDS_S)
        yield within("a run of a 0.2 ms model in rapid", "s", statistics.median(whole for _, whole in taken), RAPID_S)
        yield within("the same with a power sensor", "s", statistics.median(_taken_s(folder, plug)[1] for _ in range(3)), RAPID_S)


def _taken_s(home: Path, arguments: list[str]) -> tuple[float, float]:
    """Return after how long a command's first line came, and after how long it ended."""
    environment = {**os.environ, "EDGEMETER_HOME": str(home / "home")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    begin = time.monotonic()
    command = [sys.executable, "-m", "edgemeter.agent.cli.main", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment) as process:
        if process.stdout is None:
            raise RuntimeError("no pipe")
        process.stdout.readline()
        first_s = time.monotonic() - begin
        process.stdout.read()
    return first_s, time.monotonic() - begin


if __name__ == "__main__":
    for one in comparisons():
        print(f"{one.name}: {one.ours:.3g} {one.unit}, goal {one.peer_value:g} {one.unit}: {'met' if one.met else 'missed'}")
