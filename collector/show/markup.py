"""Markup, written so that what a device sent cannot become markup: text is escaped unless it was made here."""

from collections.abc import Iterable, Mapping
from html import escape
from math import isfinite

from edgemeter.collector.show.figures import printable

Attributes = Mapping[str, str | float | None]
VOID = frozenset({"meta", "br", "col", "input", "link"})


class Markup(str):
    """Text that is markup already; made by this module only."""

    __slots__ = ()


NOTHING = Markup("")


def element(tag: str, attributes: Attributes | None = None, *children: str) -> Markup:
    """Return one element; a child that is a plain string is escaped, an attribute that is None is left away."""
    opening = "".join(f' {name}="{_attribute(value)}"' for name, value in (attributes or {}).items() if value is not None)
    return Markup(f"<{tag}{opening}>" if tag in VOID else f"<{tag}{opening}>{join(children)}</{tag}>")


def join(parts: Iterable[str]) -> Markup:
    """Return the parts one after the other, those that are plain strings escaped."""
    return Markup("".join(part if isinstance(part, Markup) else escape(printable(part)) for part in parts))


def number(value: float) -> str:
    """Return a coordinate with one decimal.

    Raises:
        ValueError: it is NaN or infinite, which no drawing may hold.
    """
    if not isfinite(value):
        message = f"a drawing cannot hold {value!r}"
        raise ValueError(message)
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def raw(text: str) -> Markup:
    """Return our own style sheet or script as it is; never what came from outside."""
    return Markup(text)


def _attribute(value: str | float) -> str:
    return number(value) if isinstance(value, int | float) else escape(printable(value))
