"""Fuzzes the collector's decoder in several processes.

Usage: `python -m tools.fuzz --inputs 10000000`. The last line is JSON.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections import Counter

from tools.fuzz.decoder import work


def main() -> int:
    """Run it; return 0 when nothing was found."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.fuzz", description="Fuzz what reads messages; a new seed each time."
    )
    parser.add_argument("--inputs", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    began = time.monotonic()
    share = -(-args.inputs // args.processes)
    jobs = [(args.seed + number, share, began + args.seconds) for number in range(args.processes)]
    with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
        result = pool.starmap(work, jobs)
    flaws = [result for result in result if isinstance(result, str)]
    for flaw in flaws:
        print(flaw)
    counts = sum((result for result in result if isinstance(result, Counter)), Counter[str]())
    seconds = time.monotonic() - began
    rate = counts["inputs"] / seconds
    print(
        json.dumps(
            {
                "seed": args.seed,
                **counts,
                "flaws": len(flaws),
                "seconds": round(seconds, 1),
                "inputs_per_s": round(rate),
            }
        )
    )
    return 1 if flaws else 0


if __name__ == "__main__":
    sys.exit(main())
