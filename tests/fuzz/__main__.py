"""`python -m tests.fuzz --inputs 10000000`: fuzz the collector's decoder in several processes; the last line is JSON."""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections import Counter

from tests.fuzz.decoder import work


def main() -> int:
    """Run it; return 0 when nothing was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz what reads messages; a new seed each time.")
    parser.add_argument("--inputs", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    began = time.monotonic()
    share = -(-asked.inputs // asked.processes)
    jobs = [(asked.seed + number, share, began + asked.seconds) for number in range(asked.processes)]
    with multiprocessing.get_context("spawn").Pool(asked.processes) as pool:
        done = pool.starmap(work, jobs)
    flaws = [one for one in done if isinstance(one, str)]
    for flaw in flaws:
        print(flaw)
    counts = sum((one for one in done if isinstance(one, Counter)), Counter[str]())
    seconds = time.monotonic() - began
    rate = counts["inputs"] / seconds
    print(json.dumps({"seed": asked.seed, **counts, "flaws": len(flaws), "seconds": round(seconds, 1), "inputs_per_s": round(rate)}))
    return 1 if flaws else 0


if __name__ == "__main__":
    sys.exit(main())
