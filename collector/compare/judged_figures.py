"""The figures that comparisons judge, limits name and choices go by; apart from how they are judged, which takes numpy."""

from collections.abc import Mapping

from edgemeter.agent.contract.figures import Figure, in_view

# What is judged by its ratio, of shares by its difference, by the name of the figure in options.
JUDGED: Mapping[str, Figure] = {
    entry.choice: entry for entry in in_view("compare") if entry.has_spread and entry.better in ("higher", "lower")
}
ACCURACY = "accuracy"
# What may be limited, and chosen by: what is compared, whose scatter between runs is known.
LIMITED: tuple[Figure, ...] = (*JUDGED.values(), *(entry for entry in in_view("compare") if entry.choice == ACCURACY))
OBJECTIVES: Mapping[str, Figure] = {entry.choice: entry for entry in LIMITED}
# How limits are written.
EXAMPLE = "p99<=33ms, ap>=.74, energy<=60mJ, memory<=500MB, board=Raspberry Pi 5"
