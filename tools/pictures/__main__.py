"""Draws the pictures of the documentation into docs/images.

python -m tools.pictures              draws all; measures the shipped pair first if .bench/pair
                                      has no measurement of it (8 minutes)
python -m tools.pictures energy ...   draws these only: answer, latency, accuracy, energy,
                                      comparisons, ratios, trend, overview
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.fixtures.own_imports import ROOT
from tools.pictures import known_truth, measured_pair, ratios

IMAGES = ROOT / "docs" / "images"
DRAWN: Mapping[str, Callable[[], str]] = {
    "answer": measured_pair.answer,
    "latency": measured_pair.latency,
    "accuracy": measured_pair.accuracy,
    "energy": known_truth.energy,
    "comparisons": known_truth.comparisons,
    "ratios": ratios.ratios,
}
PHOTOGRAPHED: Mapping[str, Callable[[Path], None]] = {
    "trend": known_truth.trend,
    "overview": known_truth.overview,
}


def main(names: list[str]) -> None:
    if unknown := set(names) - {*DRAWN, *PHOTOGRAPHED}:
        sys.exit(
            f"no picture {', '.join(sorted(unknown))}: draw {', '.join((*DRAWN, *PHOTOGRAPHED))}"
        )
    for name, draw in DRAWN.items():
        if not names or name in names:
            (IMAGES / f"{name}.svg").write_text(draw(), encoding="utf-8")
    for name, photograph in PHOTOGRAPHED.items():
        if not names or name in names:
            photograph(IMAGES)


if __name__ == "__main__":
    main(sys.argv[1:])
