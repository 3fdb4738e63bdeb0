"""Facts about `edgemeter.agent.base.terminal`: what of a table is on a narrow terminal."""

import io

from rich.console import Console

from edgemeter.agent.base.terminal import REDUNDANT, TableColumn, entry_table, fitted_table, plain_table

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


def test_a_heading_is_printed_as_it_is():
    """What looks like markup or an emoji is text."""
    table = fitted_table([TableColumn("[bold] :smile:", ["1.5"])], 40)
    assert lines_of(table, 40)[0] == "[bold] :smile:"


def test_the_first_column_of_a_plain_table_is_whole_and_nothing_is_cut():
    """The other columns are folded."""
    table = plain_table("id", "text")
    table.add_row(NAME, "so many words that they do not fit beside it")
    lines = lines_of(table, 40)
    assert lines[2].startswith(f"{NAME} ")
    assert " ".join(" ".join(lines[2:]).replace(NAME, "").split()) == "so many words that they do not fit beside it"


def test_a_table_of_long_texts_is_a_list_whose_names_are_whole():
    """Folded between words, at most 100 wide in a pipe too."""
    table = entry_table("all", ("rule", "requirement"), [(NAME, "a word and " * 30)])
    for width in (50, 1000):
        lines = lines_of(table, width)
        assert lines[:2] == ["all:", NAME]
        assert 30 < max(map(len, lines)) <= min(width, 100)
        assert " ".join(" ".join(lines[2:]).split()) == f"requirement: {'a word and ' * 30}".strip()
