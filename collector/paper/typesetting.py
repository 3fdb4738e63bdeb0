"""A table in LaTeX that fits: in parts where it is too wide, over both columns of a page where one is too narrow, notes by letters."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from edgemeter.agent.base.tables import latex_text
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.show.wording import Notes

ABSENT = "--"
# In points: the text of a page of one column (article, 10pt), and the narrowest column of a page of two.
PAGE_PT, COLUMN_PT = 345.0, 200.0
# The font, the same in every class, the space between two columns, and the widths of letters in ems, none too small.
# Source: cmr8.tfm; digits have 0.531 em.
FONT_PT, BETWEEN_PT = 8.0, 6.0
WIDTHS_EM = {
    "ijl|!,.:;'[]": 0.3,
    "frst()- ": 0.42,
    "0123456789aceghknoqvxyz/*?": 0.54,
    "mwMWOQ%@#": 1.06,
    "\N{PLUS-MINUS SIGN}_<>=+~^&": 0.84,
}
SMALL_EM, LARGE_EM, MARK_RATIO = 0.6, 0.84, 0.8
# A column of text is folded beyond a width between these, so that there is room for the figures.
NARROWEST_PT, WIDEST_PT = 48.0, 88.0
# Elsewhere a word is broken if it is longer: after these letters, and where a piece is longer still.
LONG_WORD_PT = 90.0
_PIECES = re.compile(r"[^-_./:@]+[-_./:@]*|[-_./:@]+")


class PaperCell(NamedTuple):
    """The text of a cell, and the letter of the note on it, empty without one."""

    text: str
    mark: str = ""


class PaperNotes:
    """Notes below a table by letters, since brackets stand around intervals."""

    def __init__(self) -> None:
        self._notes = Notes()

    def cite(self, text: str) -> str:
        """Return the letter of `text`: a to z, then aa, ab and so on."""
        return _letter(self._notes.cite(text) - 1)

    def lines(self) -> Iterator[str]:
        """Yield the notes as LaTeX."""
        for number, text in enumerate(self._notes.texts):
            yield f"\\par\\smallskip{{\\raggedright\\textsuperscript{{{_letter(number)}}} {breakable(text)}.\\par}}\n"


def _letter(number: int) -> str:
    return (chr(ord("a") + number // 26 - 1) if number >= 26 else "") + chr(ord("a") + number % 26)


@dataclass(frozen=True, slots=True)
class PaperColumn:
    """One column: its heading, its cell for a case, and its side; `notes` letters what is explained below the table."""

    heading: str
    text: Callable[[CaseSummary, PaperNotes], PaperCell]
    align: Literal["l", "r"] = "r"


class FittedColumn(NamedTuple):
    """A column with its heading in lines and its width; `folded_pt` is that of the lines of its texts, None where none is folded."""

    column: PaperColumn
    heading: Sequence[str]
    width_pt: float
    folded_pt: float | None


def typeset(cases: Sequence[CaseSummary], names: Sequence[PaperColumn], columns: Sequence[PaperColumn], caption: str, label: str) -> str:
    """Return a table, or several if its columns do not fit on a page: each with the `names` of the rows, and its own notes."""
    fitted = _fitted(cases, [*names, *columns])
    parts = _parts(fitted[: len(names)], fitted[len(names) :])
    return "\n".join(
        _table(
            cases,
            part,
            f"{caption}{f' ({number} of {len(parts)})' if len(parts) > 1 else ''}",
            f"{label}{f'-{number}' if number > 1 else ''}",
        )
        for number, part in enumerate(parts, start=1)
    )


def text_pt(text: str) -> float:
    """Return about how wide a text is, in points."""
    return FONT_PT * sum(
        next((width for letters, width in WIDTHS_EM.items() if letter in letters), LARGE_EM if letter.isupper() else SMALL_EM)
        for letter in text
    )


def breakable(text: str, longest_pt: float = LONG_WORD_PT) -> str:
    """Return text as LaTeX that may break its words wider than `longest_pt`."""
    return " ".join(
        r"\allowbreak{}".join(map(latex_text, _pieces(word, longest_pt))) if text_pt(word) > longest_pt else latex_text(word)
        for word in text.split()
    )


def _pieces(word: str, longest_pt: float) -> Iterator[str]:
    for part in _PIECES.findall(word):
        size = max(int(len(part) * min(0.9 * longest_pt / text_pt(part), 1.0)), 1)
        yield from (part[begin : begin + size] for begin in range(0, len(part), size))


def as_paragraph(text: str) -> str:
    """Return text as a paragraph that fits a narrow column."""
    return f"\\begin{{sloppypar}}\n{breakable(text)}\n\\end{{sloppypar}}\n"


def _fitted(cases: Sequence[CaseSummary], columns: Sequence[PaperColumn]) -> list[FittedColumn]:
    widths = [
        max(*(_cell_pt(column.text(case, PaperNotes())) for case in cases), *map(text_pt, column.heading.split())) for column in columns
    ]
    figures_pt = sum(width + BETWEEN_PT for column, width in zip(columns, widths, strict=True) if column.align == "r")
    texts = sum(column.align == "l" for column in columns)
    limit = WIDEST_PT if not texts else min(max((PAGE_PT - figures_pt) / texts - BETWEEN_PT, NARROWEST_PT), WIDEST_PT)
    fits = sum(width + BETWEEN_PT for width in widths) <= PAGE_PT
    fitted = []
    for column, width in zip(columns, widths, strict=True):
        folded_pt = limit if column.align == "l" and width > limit and not fits else None
        heading = _lines(column.heading, folded_pt or width)
        fitted.append(FittedColumn(column, heading, folded_pt or width, folded_pt))
    return fitted


def _cell_pt(cell: PaperCell) -> float:
    return text_pt(cell.text) + MARK_RATIO * text_pt(cell.mark)


def _lines(heading: str, width_pt: float) -> list[str]:
    """Return a heading in lines that are no wider than the cells below, but for a long word."""
    lines: list[str] = []
    for word in heading.split():
        if lines and text_pt(f"{lines[-1]} {word}") <= width_pt:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _parts(names: Sequence[FittedColumn], columns: Sequence[FittedColumn]) -> list[list[FittedColumn]]:
    """Return the columns in as few parts as fit on a page, each with the names, about equally wide."""
    parts = _filled_parts(names, columns, PAGE_PT)
    while len(parts) > 1:
        narrower = _filled_parts(names, columns, max(map(_width_pt, parts)) - 1)
        if len(narrower) > len(parts):
            break
        parts = narrower
    return parts


def _filled_parts(names: Sequence[FittedColumn], columns: Sequence[FittedColumn], width_pt: float) -> list[list[FittedColumn]]:
    parts: list[list[FittedColumn]] = []
    for column in columns:
        if not parts or _width_pt([*parts[-1], column]) > width_pt:
            parts.append(list(names))
        parts[-1].append(column)
    return parts


def _width_pt(columns: Sequence[FittedColumn]) -> float:
    return sum(column.width_pt + BETWEEN_PT for column in columns)


def _table(cases: Sequence[CaseSummary], columns: Sequence[FittedColumn], caption: str, label: str) -> str:
    notes = PaperNotes()
    rows = [" & ".join(_cell(fitted, fitted.column.text(case, notes)) for fitted in columns) for case in cases]
    headings = " & ".join(map(_heading, columns))
    environment = "table" if _width_pt(columns) <= COLUMN_PT else "table*"
    sides = "".join(fitted.column.align for fitted in columns)
    return "\n".join((
        rf"\begin{{{environment}}}", r"\centering\sloppy\fontsize{8}{9.5}\selectfont\setlength{\tabcolsep}{3pt}",
        rf"\caption{{{breakable(caption)}}}", rf"\label{{{label}}}", rf"\begin{{tabular}}{{{sides}}}", r"\toprule",
        rf"{headings} \\", r"\midrule", *(rf"{row} \\" for row in rows), r"\bottomrule", r"\end{tabular}",
        f"{''.join(notes.lines())}\\end{{{environment}}}\n",
    ))  # fmt: skip


def _heading(fitted: FittedColumn) -> str:
    lines = r"\\".join(map(latex_text, fitted.heading))
    return lines if len(fitted.heading) == 1 else rf"\begin{{tabular}}[b]{{@{{}}{fitted.column.align}@{{}}}}{lines}\end{{tabular}}"


def _cell(fitted: FittedColumn, cell: PaperCell) -> str:
    mark = rf"\textsuperscript{{{cell.mark}}}" if cell.mark else ""
    if fitted.folded_pt is None or _cell_pt(cell) <= fitted.folded_pt:
        # After the end of a row a bracket or a star would be read as a part of that end.
        return (f"{{{latex_text(cell.text)}}}" if cell.text.startswith(("[", "*")) else latex_text(cell.text)) + mark
    return rf"\parbox[t]{{{fitted.folded_pt:.0f}pt}}{{\raggedright {breakable(cell.text, fitted.folded_pt)}{mark}\strut}}"
