"""A ledger of a million runs: `python -m tests.benchmarks.ledger_size PATH [DEVICES DAYS CASES]` writes one."""

import sys
import time
from pathlib import Path

from tests.fixtures.fleet_ledger import Fleet, write_ledger


def main(arguments: list[str]) -> None:
    """Write a ledger and say how long it took."""
    path, *sizes = arguments
    fleet = Fleet(*(int(size) for size in sizes))
    began = time.monotonic()
    write_ledger(Path(path), fleet, lambda done: print(f"\r{done} of {fleet.runs}", end="", file=sys.stderr))
    print(f"\n{fleet.runs} runs in {time.monotonic() - began:.0f} s, {Path(path).stat().st_size / 1e6:.0f} MB", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
