import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.published import create
from edgemeter.collector.published.readers.mapped_table import column
from edgemeter.collector.published.row import KINDS, PublishedRow
from tests.fixtures.published_pages import facts, page, read_page
from tests.fixtures.rows import table_row

COLUMNS = ("Model=model", "Board=device", "Latency (ms)=latency:ms", "tok/s=tokens", "First token=ttft", "Batch=batch")
GIVEN = {"source": "A blog", "version": "1", "conditions": "not stated"}


def read(text, columns=COLUMNS, **user_facts):
    """Return what is read of a text by a mapping."""
    return read_page("table", text, columns=tuple(map(column, columns)), **GIVEN | user_facts)


def test_each_figure_of_a_row_is_read_in_the_users_terms():
    """In the mapping's unit, in the only one that there is, or in the cell's."""
    rows = read(page("table.md")).rows
    assert [facts(row, "figure", "canonical") for row in rows if row.model == "One"] == [
        ("latency", (12.5, "ms")), ("tokens", (20.5, "tokens/s")), ("ttft", (1250, "ms")),
    ]  # fmt: skip
    assert [facts(row, "figure", "canonical") for row in rows if row.model == "Two"] == [("tokens", (6, "tokens/s")), ("ttft", (300, "ms"))]
    assert facts(rows[0], "device", "batch", "source", "date") == ("Board A", 1, "A blog", "2026-11-26")


def test_what_cannot_be_read_is_left_out_and_named():
    """Estimates, doubtful commas, absent figures, figures without a unit, columns and tables that the mapping does not have."""
    assert read(page("table.md")).left_out == (
        "table at line 3: columns without a mapping: Remark",
        "line 6, Latency (ms): '~35' is not a number",
        "line 7, Latency (ms): '1,234' may be a thousand or a decimal",
        "line 7, tok/s: '-' is not a number",
        "line 7, First token: '300' has no unit: map the column as ttft:ms, or another unit",
        "table at line 9: it has the columns Name, Price",
    )


def test_a_cell_in_another_unit_than_the_mappings_is_left_out():
    """One of the two is wrong; an unknown unit is named."""
    table = read("|Model|t|\n|-|-|\n|a|3 s|\n|b|3 parsec|\n|c|3 ms|\n", ("Model=model", "t=latency:ms"), device="x")
    assert [row.model for row in table.rows] == ["c"]
    assert table.left_out == ("line 3, t: '3 s' is not in ms", "line 4, t: '3 parsec' is not in ms")
    (why,) = read("|Model|t|\n|-|-|\n|b|3 parsec|\n", ("Model=model", "t=latency"), device="x").left_out
    assert "unit 'parsec' is not one of latency" in why


def test_csv_is_read_by_the_separator_that_gives_the_columns():
    """Comma, semicolon, tab; quoted cells keep theirs."""
    for separator in ",;\t":
        text = f'Model{separator}"FPS"\n"a, b; c"{separator}30.5\n\nd{separator}-\n'
        with table_row(separator):
            table = read(text, ("Model=model", "FPS=throughput:fps"), device="x")
            assert [facts(row, "model", "value", "unit") for row in table.rows] == [("a, b; c", 30.5, "fps")]
            assert table.left_out == ("line 4, FPS: '-' is not a number",)


def test_a_field_that_does_not_fit_leaves_the_row_out():
    """A batch of two and a half, no model."""
    table = read("|Model|FPS|Batch|\n|-|-|-|\n|a|30|2.5|\n||30|1|\n", ("Model=model", "FPS=throughput", "Batch=batch"), device="x")
    assert table.rows == ()
    assert [why.split(":")[0] for why in table.left_out] == ["line 3, FPS", "line 4, FPS"]


def test_a_mapping_without_sense_is_refused():
    """With what there is to choose."""
    for text, why in (
        ("Model", "HEADING=FIELD"),
        ("=model", "HEADING=FIELD"),
        ("Model=modell", "fields: accuracy_metric"),
        ("Value=value", "figures: latency"),
        ("t=latency:parsec", "'parsec' is not a unit of latency"),
        ("Model=model:ms", "the field model has no unit"),
    ):
        with table_row(text), pytest.raises(ConfigError, match=why):
            column(text)
    heading = column("a = b=latency:us")
    assert facts(heading, "heading", "target", "unit") == ("a = b", "latency", "us")


def test_a_table_without_the_columns_is_refused():
    """The error names those that it has; a mapping without a figure makes no row; a cell longer than CSV's limit is damage."""
    for text, columns, why in (
        (page("table.md"), ("Modell=model", "tok/s=tokens"), "no table has the columns Modell, tok/s.*Model, Board"),
        ("", ("Model=model", "tok/s=tokens"), "those of the file are none"),
        ("x" * 200_000, ("a=model", "b=tokens"), "line 1: not a CSV table"),
        (page("table.md"), ("Model=model",), "a table needs its columns, one of them a figure"),
        (page("table.md"), (), "a table needs its columns"),
    ):
        with table_row(columns), pytest.raises(ConfigError, match=why):
            read(text, columns)


def test_a_target_is_a_field_or_a_figure():
    """No name is both."""
    assert set(KINDS).isdisjoint(PublishedRow.__struct_fields__)


def test_no_table_is_recognised_without_a_mapping():
    """Which column is which is not guessed."""
    assert not create("table").recognises("table.md", page("table.md"))
