"""The first number: how long the help, the first words of commands, and a whole short run take, as processes."""

import json
import os
import pty
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.benchmarks.comparison import Comparison, Line, at_most, compared, figure
from tests.benchmarks.interleaving import in_turn

SECONDS, SECONDS_OF_WORDS = 10.0, 5.0
# A run as it comes takes half a minute, which hardly varies.
RUNS, RUNS_AS_IT_COMES = 3, 1
MODEL = {
    "format": "edgemeter-replay",
    "schema": 1,
    "latencies_ms": [0.2],
    "inputs": [{"name": "x", "shape": [1, 4], "dtype": "float32"}],
    "outputs": [{"name": "y", "shape": [1], "dtype": "float32"}],
}
# A plug that is read once a second.
PLUG = {"id": "plug", "scope": "wall-ac", "period_ms": 1000, "t_s": [0, 1], "power_w": [5, 6]}
COMMAND = [sys.executable, "-m", "edgemeter.agent.cli.main"]


def comparisons() -> Iterator[Comparison]:
    """Yield the help beside a bare interpreter, then the medians of a run in each mode with its parts."""
    bare = [sys.executable, "-c", "pass"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pair = in_turn(lambda: _taken_s(folder, [*COMMAND, "--help"])[1], lambda: _taken_s(folder, bare)[1])
        yield compared(Line("`edgemeter --help`", "s", "python -c pass"), pair, SECONDS)
        (folder / "plug.json").write_text(json.dumps(PLUG))
        (folder / "plug.toml").write_text(f'power = ["replay"]\n[sensors.replay]\npath = "{folder / "plug.json"}"\n')
        for about, runs, options in (
            ("in rapid", RUNS, ["--mode", "rapid", "--power", "none"]),
            ("as it comes", RUNS_AS_IT_COMES, ["--power", "none"]),
            ("in rapid with a power sensor of 1 Hz", RUNS, ["--mode", "rapid", "--config", str(folder / "plug.toml")]),
        ):
            times_s = [_taken_s(folder, replay_run(folder, *options)) for _ in range(runs)]
            yield figure(f"first words of a run of a 0.2 ms model {about}", "s", statistics.median(first for first, _ in times_s))
            yield figure(f"a run of a 0.2 ms model {about}", "s", statistics.median(total for _, total in times_s))

        bare, goal = [sys.executable, "-c", "print('word')"], at_most(4)
        for words, command in (
            ("run MODEL", replay_run(folder)),
            ("sensors read", [*COMMAND, "sensors", "read", "replay", "--config", str(folder / "plug.toml")]),
            ("runs", [*COMMAND, "runs"]),
            ("compare", [*COMMAND, "compare"]),
        ):
            pair = in_turn(partial(_first_words_s, folder, command), partial(_first_words_s, folder, bare))
            yield compared(Line(f"first words of `edgemeter {words}`", "s", "python -c print", goal), pair, SECONDS_OF_WORDS)


def replay_run(folder: Path, *options: str) -> list[str]:
    """Return the command that runs the replay model, which it writes into `folder`."""
    model = folder / "m.replay.json"
    model.write_text(json.dumps(MODEL))
    return [*COMMAND, "run", str(model), *(options or ("--mode", "rapid", "--power", "none"))]


def _first_words_s(home: Path, command: list[str]) -> float:
    """Return after how long a terminal shows something of a command, which ends then."""
    terminal, end_of_command = pty.openpty()
    begin = time.monotonic()
    with subprocess.Popen(command, stdout=end_of_command, stderr=end_of_command, env=_environment(home)) as process:
        os.read(terminal, 1)
        first_s = time.monotonic() - begin
        process.kill()
    os.close(end_of_command)
    os.close(terminal)
    return first_s


def _environment(home: Path) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | {"EDGEMETER_HOME": str(home / "home")}


def _taken_s(home: Path, command: list[str]) -> tuple[float, float]:
    """Return after how long a command's first line came, and after how long it ended."""
    begin = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=_environment(home)) as process:
        if process.stdout is None:
            raise RuntimeError("no pipe")
        process.stdout.readline()
        first_s = time.monotonic() - begin
        process.stdout.read()
    return first_s, time.monotonic() - begin
