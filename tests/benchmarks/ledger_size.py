"""A ledger of a million runs, and how long questions to it take.

`python -m tests.benchmarks.ledger_size PATH [DEVICES DAYS CASES]` writes the ledger where it is not there yet, asks each question twice
and prints the time and the processor time of each: the first one builds what the later ones are answered from.
"""

import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.fixtures.fleet_ledger import Fleet, write_ledger

GOAL_S = 2.0
QUESTIONS = {
    "compare": ["compare", "--reference", "reference", "--store", "{path}"],
    "compare --json": ["compare", "--reference", "reference", "--json", "--store", "{path}"],
    "compare --view pareto": ["compare", "--view", "pareto", "--store", "{path}"],
    "compare --view coverage": ["compare", "--view", "coverage", "--store", "{path}"],
    "trend": ["trend", "--store", "{path}"],
    "trend of one device": ["trend", "--device", "board-0007", "--store", "{path}"],
    "collector stats": ["collector", "stats", "--ledger", "{path}"],
}


@dataclass(frozen=True, slots=True)
class Asked:
    """One question: how long it took, and how much processor time."""

    wall_s: float
    cpu_s: float
    status: int


def ask(path: Path, words: list[str]) -> Asked:
    """Ask by the command line, in a process of its own."""
    command = [sys.executable, "-m", "edgemeter.agent.cli.main", *(word.format(path=path) for word in words)]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    wall_s, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        print(done.stderr.decode(errors="replace")[-300:], file=sys.stderr)
    return Asked(wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.returncode)


def main(arguments: list[str]) -> int:
    """Write a ledger where there is none, ask, and say how long it took; 1 where a second answer took longer than the goal."""
    path, fleet = Path(arguments[0]), Fleet(*(int(size) for size in arguments[1:]))
    if not path.exists():
        began = time.monotonic()
        write_ledger(path, fleet, lambda done: print(f"\r{done} of {fleet.runs}", end="", file=sys.stderr))
        print(f"\n{fleet.runs} runs in {time.monotonic() - began:.0f} s, {path.stat().st_size / 1e6:.0f} MB", file=sys.stderr)
    is_met = True
    for name, words in QUESTIONS.items():
        first, again = ask(path, words), ask(path, words)
        is_met = is_met and again.wall_s <= GOAL_S and not again.status
        times = ", ".join(f"{one.wall_s:.2f} s ({one.cpu_s:.2f} s of processor)" for one in (first, again))
        print(f"{name}: first and again {times}", flush=True)
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
