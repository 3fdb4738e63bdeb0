"""Facts about `edgemeter.agent.base.tables`: what devices sent stays text in LaTeX, and a row in CSV."""

from rich.table import Table

from edgemeter.agent.base import tables


def test_latex_escapes_what_would_be_a_command():
    """Each letter that means something to TeX, and a bracket that would be taken for the distance of rows: no name reads a file."""
    table = Table("a_b", "c", title="50%")
    table.add_row("[1] x & y", "$5 #2 {z} ~ ^ \\ ± 3")
    table.add_row("*", "")
    title, headings, right, rows = tables.cells_of(table)
    assert tables.latex(title, headings, right, rows).splitlines() == [
        "% 50%",
        r"\begin{tabular}{ll}",
        r"\toprule",
        r"a\_b & c \\",
        r"\midrule",
        r"{[1] x \& y} & \$5 \#2 \{z\} \textasciitilde{} \textasciicircum{} \textbackslash{} $\pm$ 3 \\",
        r"{*} &  \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_csv_flattens_objects_and_leaves_lists_of_them_to_json(capsys):
    """Names are joined by an underscore; a list of texts is joined; a row without a name has an empty cell."""
    tables.print_data("csv", {"rows": [{"a": {"b": 1.5, "c": None}, "d": ["x", "y"], "e": [{"f": 1}]}, {"g": True}]})
    assert capsys.readouterr().out.splitlines() == ["a_b,a_c,d,g", "1.5,,x | y,", ",,,true"]


def test_what_no_default_font_has_becomes_a_question_mark():
    """LaTeX stops at it; Latin letters it has, and words for signs."""
    assert tables.latex_text("a\nb\x00\N{SNOWMAN}") == "a b??"
    assert tables.latex_text("K\N{LATIN SMALL LETTER O WITH DIAERESIS}ln") == "K\N{LATIN SMALL LETTER O WITH DIAERESIS}ln"
    assert tables.latex_text("1.0 \N{PLUS-MINUS SIGN} 0.1 \N{DEGREE SIGN}C") == r"1.0 $\pm$ 0.1 \textdegree{}C"


def test_markdown_shows_a_name_as_text_and_runs_nothing_of_it(capsys):
    """A model may be called like a tag, an entity or a link, in a table, its title and a line."""
    name = "<script>alert(1)</script> &lt;b&gt; [x](javascript:alert(1)) a|b & c"
    text = r"&lt;script>alert(1)&lt;/script> &amp;lt;b&amp;gt; [x]\(javascript:alert(1)) a|b & c"
    assert tables.markdown(name, ["h"], [False], [[name]]).splitlines() == [
        f"**{text}**", "", "| h |", "|---|", f"| {text.replace('|', chr(92) + '|')} |"
    ]  # fmt: skip
    tables.console_for("markdown").print(name, markup=False)
    assert capsys.readouterr().out == f"{text}\n\n"
