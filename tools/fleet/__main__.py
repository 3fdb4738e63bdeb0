"""Boards join, measure in waves and are updated through kills.

Usage: `python -m tools.fleet --boards 20`. The last line is JSON.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tools.chaos.world import end_by_signal, say
from tools.fleet.drill import run_drill


def main() -> int:
    """Run it; return 0 when nothing was lost or doubled."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.fleet", description="Join, order, update, revoke, kill; then count."
    )
    parser.add_argument("--boards", type=int, default=20)
    parser.add_argument("--kills", type=int, default=20, help="in the job, and again in the update")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", metavar="DIR", help="leave everything there")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="edgemeter-fleet-") as folder:
        outcome = run_drill(
            Path(arguments.keep or folder), arguments.boards, arguments.kills, arguments.seed, say
        )
    for fault in outcome.faults:
        say(fault)
    print(json.dumps(outcome.document()))
    return 1 if outcome.faults else 0


if __name__ == "__main__":
    end_by_signal()
    sys.exit(main())
