"""`python -m tests.fleet --boards 1000`: jobs in waves and an update through kills of all servers; the last line is JSON."""

import argparse
import json
import shutil
import signal
import sys

from tests.fleet.drill import drill
from tests.fleet.fleet_world import FleetWorld


def main() -> int:
    """Run it; return 0 when each job was executed once and everything is covered."""
    parser = argparse.ArgumentParser(prog="python -m tests.fleet", description="Order, kill, count.")
    parser.add_argument("--boards", type=int, default=1000)
    parser.add_argument("--run-s", type=float, default=2.0, help="how long a run takes, on average")
    parser.add_argument("--limit-s", type=float, default=900.0)
    parser.add_argument("--keep-logs", metavar="DIR")
    args = parser.parse_args()
    with FleetWorld(args.boards, args.run_s) as world:
        came = drill(world, args.limit_s, lambda text: print(text, file=sys.stderr, flush=True))
        for overlap in world.crowd.overlaps[:5]:
            print(overlap, file=sys.stderr)
        if args.keep_logs:
            shutil.copytree(world.path, args.keep_logs, dirs_exist_ok=True)
    print(json.dumps(came.document()))
    return 0 if came.holds else 1


if __name__ == "__main__":
    # Whoever ends it leaves no server behind.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(1))
    sys.exit(main())
