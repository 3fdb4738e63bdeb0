"""Compare two models on this device, and draw their latencies run by run.

python docs/examples/compare_two.py A B [RUNS]
"""

import sys

import edgemeter

WIDTH = 50


def main(a: str, b: str, runs: str = "5") -> None:
    """Measure A and B in turn; the sentence says what differs, and how sure that is."""
    comparison = edgemeter.compare(a, b, runs=int(runs), mode="rapid")
    (contrast,) = comparison.contrasts
    print(f"{contrast.sentence}.")
    for difference in contrast.differences:
        if difference.change is None:
            print(f"no {difference.figure}: {difference.note}")
    slowest_ms = max(value for side in comparison.sides for value in side.p50_ms)
    for side in comparison.sides:
        print(f"{side.name}: {side.label}")
        for value in side.p50_ms:
            print(f"  {'#' * round(WIDTH * value / slowest_ms):{WIDTH}} {value:.3f} ms")


if __name__ == "__main__":
    main(*sys.argv[1:])
