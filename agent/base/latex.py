"""LaTeX: text that is safe in it, and tables in the style of the package booktabs."""

from collections.abc import Sequence
from typing import Literal

# What LaTeX takes for a command, and characters that its default fonts lack.
_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    "\N{PLUS-MINUS SIGN}": r"$\pm$", "\N{MULTIPLICATION SIGN}": r"$\times$", "\N{DEGREE SIGN}": r"\textdegree{}",
    "\N{MICRO SIGN}": r"\textmu{}", "\N{MIDDLE DOT}": r"\textperiodcentered{}", "\N{EN DASH}": "--", "\N{MINUS SIGN}": r"$-$",
}  # fmt: skip


def escape(text: str) -> str:
    """Return `text` as LaTeX that prints it; what no default font has becomes a question mark."""
    return "".join(_SPECIAL.get(one) or (one if one.isascii() and one.isprintable() else " " if one.isspace() else "?") for one in text)


def booktabs(head: Sequence[str], rows: Sequence[Sequence[str]], align: Sequence[Literal["l", "r", "c"]]) -> str:
    """Return a `tabular` with the rules of booktabs; the cells are text, not LaTeX."""
    lines = [" & ".join(map(escape, row)) + r" \\" for row in (head, *rows)]
    return "\n".join(
        [
            f"\\begin{{tabular}}{{@{{}}{''.join(align)}@{{}}}}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
        ]
    )
