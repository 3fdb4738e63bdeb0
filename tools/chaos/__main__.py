"""Kills, cuts, fills and steps at random, then counts.

Usage: `python -m tools.chaos --full`. The last line is JSON.
"""

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

from tools.chaos import faults
from tools.chaos.shared_world import SHARED_FAULTS, SharedWorld
from tools.chaos.world import Size, World, end_by_signal, say, status_of

STALLED_S = 300.0
# Faults, records and seconds between faults of `--full`: about an hour, and half an hour.
FULL = {"sqlite": (1000, 1_000_000, 1.0), "postgresql": (300, 300_000, 4.0)}
SHORT = (40, 20_000, 1.2)
KNOWN = {"sqlite": faults.FAULTS, "postgresql": SHARED_FAULTS}
NOT_LOGS = ("influx", "collector", "outboxes", "data", "wal")
ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Run it; return 0 when nothing is lost and nothing doubled."""
    arguments = _asked()
    if not Path(arguments.influxd).is_file():
        print(f"no InfluxDB 2 at {arguments.influxd!r}: set EDGEMETER_INFLUXD", file=sys.stderr)
        return 2
    began = time.monotonic()
    # As fast as the faults last, so that something is on its way whenever one strikes.
    rate_per_s = arguments.rate or 1.25 * arguments.records / (arguments.faults * arguments.gap)
    size = Size(arguments.devices, arguments.records, rate_per_s)
    with (
        SharedWorld(Path(arguments.influxd), size)
        if arguments.ledger == "postgresql"
        else World(Path(arguments.influxd), size) as world
    ):
        load = f"{arguments.devices} devices, {arguments.records} records at {rate_per_s:.0f}/s"
        say(f"seed {arguments.seed}: {load}, {arguments.faults} faults")
        if not world.disks():
            say("no file system may be mounted here: no disk is filled")
        struck = faults.strike(
            world, KNOWN[arguments.ledger], arguments.faults, arguments.gap, arguments.seed, say
        )
        say("the dust settles ...")
        in_time = world.settle(STALLED_S)
        verdict = world.verdict()
        starts = {process.name: process.starts for process in world.processes()}
        if arguments.keep_logs:
            shutil.copytree(
                world.folder,
                arguments.keep_logs,
                dirs_exist_ok=True,
                ignore=shutil.ignore_patterns(*NOT_LOGS),
            )
    print(
        f"seed {arguments.seed}, {time.monotonic() - began:.0f} "
        f"s{'' if in_time else ', CAME TO A STANDSTILL'}"
    )
    print("faults: " + ", ".join(f"{name} {count}" for name, count in sorted(struck.items())))
    print("starts: " + ", ".join(f"{name} {count}" for name, count in starts.items()))
    return status_of(verdict)


def _asked() -> argparse.Namespace:
    influxd = os.environ.get("EDGEMETER_INFLUXD") or str(ROOT.parent / "shared" / "bin" / "influxd")
    parser = argparse.ArgumentParser(
        prog="python -m tools.chaos",
        description="Break everything at random, then count every record.",
    )
    parser.add_argument(
        "--ledger",
        choices=sorted(KNOWN),
        default="sqlite",
        help="postgresql: three collectors share one",
    )
    parser.add_argument(
        "--full", action="store_true", help="as many faults and records as a release has to survive"
    )
    parser.add_argument("--faults", type=int)
    parser.add_argument("--records", type=int)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--gap", type=float, help="seconds between faults, on average")
    parser.add_argument(
        "--rate",
        type=float,
        help="records a second; default: so that they last as long as the faults",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--influxd", default=influxd)
    parser.add_argument("--keep-logs", metavar="DIR")
    arguments = parser.parse_args()
    faults_, records, gap = FULL[arguments.ledger] if arguments.full else SHORT
    arguments.faults, arguments.records, arguments.gap = (
        arguments.faults or faults_,
        arguments.records or records,
        arguments.gap or gap,
    )
    return arguments


if __name__ == "__main__":
    end_by_signal()
    sys.exit(main())
