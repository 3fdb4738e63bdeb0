"""Facts about `edgemeter.agent.base.terminal`: what of a table is on a narrow terminal."""

import io

from edgemeter.agent.base.console import Console
from edgemeter.agent.base.terminal import REDUNDANT, TableColumn, fitted_table, shortened

NAME = "simulated-detector-07"


def lines_of(table, width):
    out = io.StringIO()
    Console(file=out, width=width).print(table)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_redundant_column_goes_before_a_name_is_shortened_and_the_last_of_a_rank_first():
    """No figure is cut, and the table says which columns were left out.

    Where no other column can go, a name is shortened further.
    """
    columns = [
        TableColumn("device", ["pi-1"], "left", REDUNDANT),
        TableColumn("model", [NAME], "left", narrowed="shortens"),
        TableColumn("p50 ms", ["1.234"]),
        TableColumn("AP", ["0.7495"], rank=1),
        TableColumn("verdict", ["disturbed"], "left"),
    ]
    printed_lines = {
        width: lines_of(fitted_table(columns, width), width) for width in (60, 50, 47, 36, 30)
    }
    assert [printed_lines[width][0].split() for width in printed_lines] == [
        ["device", "model", "p50", "ms", "AP", "verdict"],
        ["model", "p50", "ms", "AP", "verdict"],
        ["model", "p50", "ms", "AP", "verdict"],
        ["model", "p50", "ms", "verdict"],
        ["model", "p50", "ms", "verdict"],
    ]
    rows = [printed_lines[width][2].split() for width in printed_lines]
    assert [row[0] for row in rows[1:]] == [
        NAME,
        "simulat...ector-07",
        "simula...tor-07",
        "sim...-07",
    ]
    assert all(row[-1] == "disturbed" for row in rows)
    assert " ".join(printed_lines[36][3:]) == "left out: AP (--format csv shows them)"


def test_names_stay_different_where_they_are_shortened():
    """The part that tells names apart is kept, and where that is impossible they are folded."""
    names = ["detector-fp32-per-channel.onnx", "detector-int8-per-channel.onnx"]
    assert shortened(names, 16) == ["detector-f...nnx", "detector-i...nnx"]
    hidden = ["a" * 20 + "1" + "b" * 20, "a" * 20 + "2" + "b" * 20]
    assert shortened(hidden, 16) == hidden
    lines = lines_of(
        fitted_table(
            [
                TableColumn("model", hidden, "left", narrowed="shortens"),
                TableColumn("p50 ms", ["1", "2"]),
            ],
            30,
        ),
        30,
    )
    assert "".join(line.split()[0] for line in lines[2:4]) == hidden[0]
