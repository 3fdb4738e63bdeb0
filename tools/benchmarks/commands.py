"""The first words of commands next to those of a bare interpreter.

Each is a process of its own on a terminal. A home has runs of two models in it, as a user's has:
`runs` lists them, and `compare` compares one of each. Bytecode is written, as it is where the
package is installed.
"""

import json
import os
import pty
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.fixtures.replay_case import write_replay
from tools.benchmarks.harness import Comparison, Line, at_most, compared, in_turn

SECONDS = 10.0
COMMAND = [sys.executable, "-m", "edgemeter.agent.cli.main"]
BARE = [sys.executable, "-c", "print('word')"]
RAPID = ("--mode", "rapid", "--power", "none")
CONTROL = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


def comparisons() -> Iterator[Comparison]:
    """Yield the first words of the help, of a run, of a list of runs and of a comparison of two."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = environment_of(folder / "home")
        models = [str(write_replay(folder, model)) for model in ("first", "second")]
        subprocess.run(
            [*COMMAND, "run", *models, *RAPID, "--repeats", "1"],
            env=environment,
            capture_output=True,
            check=True,
        )
        listed = subprocess.run(
            [*COMMAND, "runs", "--format", "json"], env=environment, capture_output=True, check=True
        ).stdout
        ids = [run["id"] for run in json.loads(listed)["runs"]]
        for about, goal, options in (
            ("--help", 3, ["--help"]),
            ("run MODEL", 3.5, ["run", models[0], *RAPID]),
            ("runs", 4, ["runs"]),
            ("compare RUN RUN", 4, ["compare", *ids]),
        ):
            pair = in_turn(
                partial(_first_words_ms, [*COMMAND, *options], environment),
                partial(_first_words_ms, BARE, environment),
            )
            line = Line(
                f"first words of `edgemeter {about}`", "ms", "python -c print", at_most(goal)
            )
            yield compared(line, pair, SECONDS, has_processes=True)


def environment_of(home: Path) -> dict[str, str]:
    """Return the environment of a user with this home."""
    return {
        name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
    } | {"EDGEMETER_HOME": str(home)}


def _first_words_ms(command: list[str], environment: dict[str, str]) -> float:
    """Return after how long a terminal shows the first letter of a command, which is killed then.

    Raises:
        RuntimeError: the command ended without a word, or with an error.
    """
    terminal, end_of_command = pty.openpty()
    begin_ns, screen = time.monotonic_ns(), b""
    with subprocess.Popen(
        command, stdin=end_of_command, stdout=end_of_command, stderr=end_of_command, env=environment
    ) as process:
        os.close(end_of_command)
        try:
            while not re.search(rb"\w", CONTROL.sub(b"", screen)):
                screen += os.read(terminal, 4096)
            took_ms = (time.monotonic_ns() - begin_ns) / 1e6
        except OSError as error:
            raise RuntimeError(f"{' '.join(command)} has no words") from error
        finally:
            process.kill()
            os.close(terminal)
    if screen.startswith(b"edgemeter:"):
        raise RuntimeError(screen.decode())
    return took_ms
