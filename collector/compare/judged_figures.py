"""The figures that comparisons judge, limits name and choices go by."""

from collections.abc import Mapping

from edgemeter.agent.contract.figures import Figure, FigureView, in_view

# What is judged by its ratio, of shares and accuracies by its difference.
JUDGED: Mapping[str, Figure] = {entry.name: entry for entry in in_view(FigureView.JUDGED)}
# How limits are written.
EXAMPLE = "p99<=33ms, ap>=.74, energy<=60mJ, memory<=500MB, board=Raspberry Pi 5"
