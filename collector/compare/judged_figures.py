"""The figures that comparisons judge, limits name and choices go by; apart from how they are judged, which takes numpy."""

from collections.abc import Mapping

from edgemeter.agent.contract.figures import Figure, in_view

# What is judged by its ratio, of shares by its difference, by the name of the figure in options.
JUDGED: Mapping[str, Figure] = {
    entry.choice: entry for entry in in_view("compare") if entry.has_spread and entry.better in ("higher", "lower")
}
ACCURACY = "accuracy"
