import time

import pytest

from edgemeter.collector.published import RowCollector
from edgemeter.collector.published.readers import markup_tables
from tests.fixtures.rows import table_row

PAGE = """# Page

| outside | code |
|---------|------|
| a \\| b  | [text](https://example.org) **bold** `word` |

```
| not | a table |
|-----|---------|
| 1   | 2       |
```

## Section

=== "First"

    | x<br/>y | z |
    | :-- | --: |
    | 1 | 2 |
    | only one |

text

x | y
--|--
3 | 4
"""
LIST = """
Title
=====

.. _label:

-------

Set
^^^

.. list-table::
   :header-rows: 1

   * - Name
     - Value
   * - a
     - - nested
       - **list**
   * -
     - `text <https://example.org>`_
         continued

.. list-table::

   * - no header
     - row

text after
"""


def test_tables_of_markdown_are_found_with_their_section_and_tab():
    """Those in fenced code are none; links, emphasis and breaks leave their text."""
    outside, tabbed, bare = markup_tables.markdown_tables(PAGE)
    assert outside.rows == ((5, ("a | b", "text bold word")),)
    assert (outside.sections, outside.tab) == (("Page",), None)
    assert (tabbed.names, tabbed.line, tabbed.tab, tabbed.sections) == (("x y", "z"), 17, "First", ("Page", "Section"))
    assert (bare.names, bare.tab, bare.rows) == (("x", "y"), None, ((26, ("3", "4")),))


def test_a_row_of_another_width_is_left_out_and_named():
    """Markdown would fill it up: which cell is missing is not known."""
    collector = RowCollector({})
    _, table, _ = markup_tables.markdown_tables(PAGE)
    assert list(table.records(collector)) == [(19, {"x y": "1", "z": "2"})]
    assert collector.left_out == ["line 20: 1 cells under 2 column names"]


def test_two_columns_of_one_name_are_left_out():
    """Which of them is meant is not known."""
    collector = RowCollector({})
    (table,) = markup_tables.markdown_tables("|FPS|fps|\n|---|---|\n|1|2|\n")
    assert list(table.records(collector)) == []
    assert collector.left_out == ["table at line 1: two columns have one name"]


def test_list_tables_keep_what_goes_on_in_the_next_line():
    """A nested list is text of its cell, a line without a title is no section, a table without a header row is none."""
    (table,) = markup_tables.list_tables(LIST)
    assert table.names == ("Name", "Value")
    assert table.sections == ("Title", "Set")
    assert [cells for _, cells in table.rows] == [("a", "- nested - list"), ("", "text <https://example.org>_ continued")]
    assert table.rows[0][0] == 17


def test_broken_pages_have_no_tables():
    """Nothing is raised."""
    for text in ("", "|", "|\n|-|", "| a |\n| - | - |\n", ".. list-table::", ".. list-table::\n   :header-rows: 1\n\n     - a\n"):
        with table_row(text):
            tables = markup_tables.markdown_tables(text) + markup_tables.list_tables(text)
            assert [table.rows for table in tables if table.rows] == []


@pytest.mark.alone
def test_no_text_takes_the_square_of_its_length():
    """Brackets, blanks and dashes by the tens of thousands, in a cell, a heading and a delimiter."""
    for text in ("[" * 40_000, "[](" * 20_000, "`" * 40_001, "**" * 20_001):
        with table_row(text[:8]):
            started_s = time.process_time()
            markup_tables.markdown_tables(f"| {text} | b |\n|---|---|\n| 1 | 2 |\n# {text}\n# {' #' * 20_000}x\n|-{' ' * 40_000}x|")
            assert time.process_time() - started_s < 2
