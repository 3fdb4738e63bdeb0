"""Facts about `edgemeter.agent.base.tables`: what devices sent stays text in LaTeX."""

from edgemeter.agent.base.tables import latex_text


def test_what_latex_takes_for_a_command_is_escaped():
    """A name out of a record can neither end a table nor read a file."""
    assert latex_text(r"\input{x}_50%$&#~^") == r"\textbackslash{}input\{x\}\_50\%\$\&\#\textasciitilde{}\textasciicircum{}"
    assert latex_text("1.0 \N{PLUS-MINUS SIGN} 0.1 \N{DEGREE SIGN}C") == r"1.0 $\pm$ 0.1 \textdegree{}C"


def test_what_no_default_font_has_becomes_a_question_mark():
    """LaTeX stops at it; Latin letters it has."""
    assert latex_text("a\nb\x00\N{SNOWMAN}") == "a b??"
    assert latex_text("K\N{LATIN SMALL LETTER O WITH DIAERESIS}ln") == "K\N{LATIN SMALL LETTER O WITH DIAERESIS}ln"
