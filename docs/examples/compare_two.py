"""Compare two models on this device and draw the latency of each run.

python docs/examples/compare_two.py A B [RUNS]
"""

import sys

import edgemeter

WIDTH = 50


def main(a: str, b: str, runs: str = "5") -> None:
    """Measure A and B in turn. The first line of the comparison is the answer."""
    comparison = edgemeter.compare(a, b, repeats=int(runs), mode="rapid")
    print(comparison)
    stored = edgemeter.load(columns=["id", "latency_p50_ms"])
    p50_ms = dict(zip(stored["id"], stored["latency_p50_ms"], strict=True))
    slowest_ms = max(
        p50_ms[run] for row in comparison.rows for run in row.case.runs.values_of("id")
    )
    for row in comparison.rows:
        print(f"{row.name}: {row.case.key.model}")
        for run in row.case.runs.values_of("id"):
            print(f"  {'#' * round(WIDTH * p50_ms[run] / slowest_ms):{WIDTH}} {p50_ms[run]:.3f} ms")


if __name__ == "__main__":
    main(*sys.argv[1:])
