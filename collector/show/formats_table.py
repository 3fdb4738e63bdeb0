"""The formats of one model on a terminal, and the recommended one.

Each has a row with size, accuracy, latency and energy.
"""

from collections.abc import Mapping

from edgemeter.agent.base.console import Console
from edgemeter.agent.base.terminal import (
    TableColumn,
    fitted_table,
    print_text,
    table_width,
)
from edgemeter.agent.contract.figures import ACCURACY, ENERGY, LATENCY
from edgemeter.collector.compare.comparison import Comparison
from edgemeter.collector.show import words
from edgemeter.collector.show.compare_table import figure_cells, notes_on, shown_figures


def show_formats(comparison: Comparison, sizes_mb: Mapping[str, float], console: Console) -> None:
    """Print the table of the formats, the choice, and notes on the runs.

    `sizes_mb` are by the names of the cases.
    """
    names, cases = [row.name for row in comparison.rows], [row.case for row in comparison.rows]
    columns = [
        TableColumn("format", names, "left", always=True),
        TableColumn("MB", [f"{sizes_mb[name]:.3g}" for name in names], always=True),
    ]
    entries = {entry.name: entry for entry in shown_figures(cases)}
    columns += [
        TableColumn(heading, cells)
        for heading, *cells in (
            figure_cells(entries[name], cases, console)
            for name in (ACCURACY, LATENCY, ENERGY)
            if name in entries
        )
    ]
    if choice := comparison.choice:
        recommended = choice.recommended.name if choice.recommended else ""
        marks = {entry.name: "similar" for entry in choice.similar} | {recommended: "recommended"}
        out = {entry.name: entry.outcome for entry in choice.candidates if entry.outcome != "met"}
        columns.append(
            TableColumn(
                "", [marks.get(name, out.get(name, "")) for name in names], "left", always=True
            )
        )
    console.print(fitted_table(columns, table_width(console)))
    print_text(console, "")
    for line in (
        *(words.choice_lines(choice) if choice else ()),
        *(f"left out: {entry.reason}" for entry in comparison.left_out),
    ):
        print_text(console, line)
    for line in notes_on(comparison):
        print_text(console, line)
