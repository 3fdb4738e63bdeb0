"""Output for machines: indented JSON, and CSV (RFC 4180, header first)."""

import csv
import io
import re
from collections.abc import Iterable, Sequence

import msgspec

JOINT = " | "
Plain = str | int | float | bool | list[str] | None
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def json_document(content: object) -> str:
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode()


def csv_document(header: Sequence[str], rows: Iterable[Iterable[Plain]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(header)
    writer.writerows(map(csv_cell, row) for row in rows)
    return text.getvalue()


def csv_cell(value: Plain) -> Plain:
    """Return a value for CSV: None is empty, a boolean `true` or `false`, a list joined by ` | `.

    A text that a spreadsheet would run as a formula gets an apostrophe in front; a number, also in
    text form, does not.
    Source: OWASP, CSV injection. The page's script (`csvOf` in `web/page.js`) does the same.
    """
    if isinstance(value, bool):
        return str(value).lower()
    text = JOINT.join(value) if isinstance(value, list) else value
    if not isinstance(text, str):
        return text
    # RFC 4180 has no NUL, and Python 3.10 neither writes nor reads one.
    text = text.replace("\0", "\ufffd")
    is_formula = text.startswith(_FORMULA_STARTS) and not _NUMBER.fullmatch(text)
    return f"'{text}" if is_formula else text
