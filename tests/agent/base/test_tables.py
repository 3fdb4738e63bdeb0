"""Facts about `edgemeter.agent.base.cli.tables`.

What devices sent stays text in Markdown, and a row in CSV.
"""

import pytest

from edgemeter.agent.base.cli import tables


def test_csv_flattens_objects_and_leaves_lists_of_them_to_json(capsys):
    """The names of nested keys are joined by an underscore, and a list of texts is joined.

    A row that lacks a key has an empty cell.
    """
    tables.print_data(
        "csv",
        {"rows": [{"a": {"b": 1.5, "c": None}, "d": ["x", "y"], "e": [{"f": 1}]}, {"g": True}]},
    )
    assert capsys.readouterr().out.splitlines() == ["a_b,a_c,d,g", "1.5,,x | y,", ",,,true"]


def test_markdown_shows_a_name_as_text_and_runs_nothing_of_it(capsys):
    """A model's name may look like a tag, an entity or a link, wherever it is printed."""
    name = "<script>alert(1)</script> &lt;b&gt; [x](javascript:alert(1)) a|b & c"
    text = r"&lt;script>alert(1)&lt;/script> &amp;lt;b&amp;gt; [x]\(javascript:alert(1)) a|b & c"
    assert tables.markdown(name, ["h"], [False], [[name]]).splitlines() == [
        f"**{text}**", "", "| h |", "|---|", f"| {text.replace('|', chr(92) + '|')} |"
    ]  # fmt: skip
    tables.console_for("markdown").print(name)
    assert capsys.readouterr().out == f"{text}\n\n"


@pytest.mark.parametrize("form", ["table", "markdown"])
def test_a_table_without_rows_prints_nothing(capsys, form):
    """Neither the headings nor the name of an object is printed."""
    tables.print_table(form, "changes", [], {"at": "time"})
    assert capsys.readouterr().out == ""
