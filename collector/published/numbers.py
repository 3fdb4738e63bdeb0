"""Numbers as people write them, in the cells of tables and in claims: strict, nothing is guessed."""

import math
import re

# A group of three digits after a comma is a thousand only where nothing else can be meant: 1,234 is also how half the world writes 1.234.
_NUMBER = re.compile(r"-?(?:[0-9]+|[0-9]{1,3}(?:,[0-9]{3})+(?=\.)|[0-9]{1,3}(?:,[0-9]{3}){2,})(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")


def quantity(cell: str) -> tuple[float, str]:
    """Return the number in a cell and the unit behind it, if any; raises ValueError, which says why, if it holds anything else."""
    matched = re.fullmatch(rf"({_NUMBER.pattern})\s*([^\W\d_][\w/ ]*|%)?", cell.strip())
    if matched is None:
        is_ambiguous = re.fullmatch(r"\d{1,3},\d{3}", cell.strip())
        raise ValueError(f"{cell!r} may be a thousand or a decimal" if is_ambiguous else f"{cell!r} is not a number")
    value = float(matched[1].replace(",", ""))
    if not math.isfinite(value):
        raise ValueError(f"{cell!r} is too large")
    return value, matched[2] or ""


def number(cell: str) -> float:
    """Return the number in a cell that holds nothing else; raises ValueError, which says why."""
    value, unit = quantity(cell)
    if unit:
        raise ValueError(f"{cell!r} is not a number alone")
    return value
