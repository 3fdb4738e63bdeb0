"""Facts about `edgemeter.agent.base.terminal`: what of a table is on a narrow terminal."""

import io

from rich.console import Console

from edgemeter.agent.base.terminal import REDUNDANT, TableColumn, fitted_table

NAME = "simulated-detector-07"


def lines_of(table, width):
    """Return what a console of this width prints."""
    out = io.StringIO()
    Console(file=out, width=width).print(table)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_redundant_column_goes_before_a_name_is_folded_and_the_last_of_a_rank_first():
    """At no width is a cell cut."""
    columns = [
        TableColumn("device", ["pi-1"], "left", REDUNDANT),
        TableColumn("model", [NAME], "left", folds=True),
        TableColumn("p50 ms", ["1.234"], rank=1),
        TableColumn("AP", ["0.7495"], rank=1),
    ]
    headings = {width: lines_of(fitted_table(columns, width), width)[0].split() for width in (50, 40, 20)}
    assert headings == {50: ["device", "model", "p50", "ms", "AP"], 40: ["model", "p50", "ms", "AP"], 20: ["model", "p50", "ms"]}
    for width in (50, 40):
        assert NAME in "".join(lines_of(fitted_table(columns, width), width))
    narrow = fitted_table(columns, 20)
    assert narrow.caption == "not shown on so narrow a terminal: AP"
    narrow.caption = None
    assert "".join(line.split()[0] for line in lines_of(narrow, 20)[2:]) == NAME
