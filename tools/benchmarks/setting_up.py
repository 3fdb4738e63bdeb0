"""The waiting time of newcomers: `make demo` in a fresh clone, from nothing and again.

The clone is of this commit; with `--full`, `make test` runs in another. From nothing means with an
empty cache of pip. The times have limits in seconds, which depend on the machine and its network:
how long a bare `python -m venv` takes here is printed before them.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tools.benchmarks.harness import ROOT, Comparison, LeftOutError, at_most, figure

LIMIT_S = 3600


def comparisons() -> Iterator[Comparison]:
    """Yield the demonstration from nothing and again."""
    with _clone() as (clone, environment):
        pace_s = _taken_s(
            [sys.executable, "-m", "venv", str(clone.parent / "venv")], clone, environment
        )
        yield figure("pace of this machine: `python -m venv`", "s", pace_s)
        first_s, again_s = (_taken_s(["make", "demo"], clone, environment) for _ in range(2))
        yield figure("`make demo` from nothing", "s", first_s, at_most(75))
        yield figure(
            "`make demo` again, of the time from nothing", "times", again_s / first_s, at_most(0.4)
        )


def long_comparisons() -> Iterator[Comparison]:
    """Yield the tests that need Python alone, once their packages are installed."""
    with _clone() as (clone, environment):
        _taken_s(["make", ".venv/.dev"], clone, environment)
        yield figure(
            "`make test`", "s", _taken_s(["make", "test"], clone, environment), at_most(240)
        )


@contextmanager
def _clone() -> Iterator[tuple[Path, dict[str, str]]]:
    """Give a clone of this commit, and the environment of a user who never installed anything.

    Raises:
        LeftOutError: no package index can be reached.
    """
    with tempfile.TemporaryDirectory(dir=os.environ.get("EDGEMETER_BENCH_DIR")) as name:
        folder, environment = (
            Path(name),
            {**os.environ, "PIP_CACHE_DIR": f"{name}/pip", "EDGEMETER_HOME": f"{name}/home"},
        )
        download = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--dest",
            f"{name}/probe",
            "wheel",
        ]
        if subprocess.run(download, env=environment, capture_output=True, check=False).returncode:
            raise LeftOutError("pip reaches no package index")
        subprocess.run(["git", "clone", "--quiet", str(ROOT), f"{name}/clone"], check=True)
        yield folder / "clone", environment


def _taken_s(command: Sequence[str], folder: Path, environment: dict[str, str]) -> float:
    """Return how long a command takes.

    Raises:
        RuntimeError: it failed.
    """
    begin_s = time.monotonic()
    result = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{result.stdout[-2000:]}")
    return time.monotonic() - begin_s
