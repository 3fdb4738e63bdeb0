"""Facts about `edgemeter.agent.base.latex`: what devices sent stays text."""

from edgemeter.agent.base.latex import booktabs, escape


def test_what_latex_takes_for_a_command_is_escaped():
    """A name out of a record can neither end a table nor read a file."""
    assert escape(r"\input{x}_50%$&#~^") == r"\textbackslash{}input\{x\}\_50\%\$\&\#\textasciitilde{}\textasciicircum{}"
    assert escape("1.0 \N{PLUS-MINUS SIGN} 0.1 \N{DEGREE SIGN}C") == r"1.0 $\pm$ 0.1 \textdegree{}C"
    assert escape("a\nb\x00\N{SNOWMAN}") == "a b??"


def test_a_table_has_the_rules_of_booktabs():
    """And as many columns as its head."""
    assert booktabs(["a", "b"], [["1", "x & y"]], ["l", "r"]).splitlines() == [
        r"\begin{tabular}{@{}lr@{}}", r"\toprule", r"a & b \\", r"\midrule", r"1 & x \& y \\", r"\bottomrule", r"\end{tabular}",
    ]  # fmt: skip
