"""Compare two models on this device and draw the latency of each run.

python docs/examples/compare_two.py A B [RUNS]
"""

import sys

import edgemeter

WIDTH = 50


def main(a: str, b: str, runs: str = "5") -> None:
    """Measure A and B in turn. The first line of the comparison says what differs."""
    comparison = edgemeter.compare(a, b, repeats=int(runs), mode="rapid")
    print(comparison)
    sides = {f"{row.name}: {row.case.key.model}": [run.latency.p50_ms for run in row.case.runs] for row in comparison.rows}
    slowest_ms = max(value for values in sides.values() for value in values)
    for name, values in sides.items():
        print(name)
        for value in values:
            print(f"  {'#' * round(WIDTH * value / slowest_ms):{WIDTH}} {value:.3f} ms")


if __name__ == "__main__":
    main(*sys.argv[1:])
