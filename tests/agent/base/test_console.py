"""Facts about `edgemeter.agent.base.console` and `live_lines`.

They concern what fits on a terminal, and what stays on it.
"""

import io
import sys

import pytest

from edgemeter.agent.base.console import Console, Table, Text, wrapped
from edgemeter.agent.base.live_lines import LiveLines


class TerminalText(io.StringIO):
    """A terminal's stream that keeps the text that it was sent."""

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("a table of words", 8, ["a table", "of words"]),
        ("a word-that-is-long", 8, ["a", "word-tha", "t-is-lon", "g"]),
        ("two\nlines", 8, ["two", "lines"]),
        (
            "\N{CJK UNIFIED IDEOGRAPH-4E2D}" * 3,
            4,
            ["\N{CJK UNIFIED IDEOGRAPH-4E2D}" * 2, "\N{CJK UNIFIED IDEOGRAPH-4E2D}"],
        ),
        ("\N{CJK UNIFIED IDEOGRAPH-4E2D}", 1, ["\N{CJK UNIFIED IDEOGRAPH-4E2D}"]),
        ("", 8, [""]),
    ],
)
def test_words_stay_whole_unless_they_are_longer_than_a_line(text, width, lines):
    assert wrapped(text, width) == lines


def test_a_narrow_console_folds_the_widest_column_and_keeps_the_name_of_the_row():
    table = Table("name", "p50 ms", "why", right={"p50 ms"})
    table.add_row("model-1", "12.5", "other processes were busy")
    out = io.StringIO()
    Console(out, 30).print(table)
    assert out.getvalue().splitlines()[2:] == [
        "model-1    12.5  other",
        "                 processes",
        "                 were busy",
    ]


def test_styles_are_for_terminals(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for stream, line in ((TerminalText(), "\x1b[1;31mBAD\x1b[0m\n"), (io.StringIO(), "BAD\n")):
        Console(stream, 80).print(Text("BAD", "bold red"))
        assert stream.getvalue() == line


def test_what_is_printed_meanwhile_stays_above_the_live_lines(monkeypatch):
    stream = TerminalText()
    monkeypatch.setattr(sys, "stderr", stream)
    with LiveLines(Console(stream, 80)) as live:
        live.draw(["1 of 2", "beside"])
        sys.stderr.write("half a ")
        sys.stderr.write("line\n")
        live.draw(["2 of 2"])
    assert sys.stderr is stream
    erased = "\r\x1b[1A\x1b[J"
    assert (
        stream.getvalue()
        == f"1 of 2\nbeside{erased}half a line\n1 of 2\nbeside{erased}2 of 2\r\x1b[J"
    )
