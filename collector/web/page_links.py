"""Addresses within the page of the runs."""

from collections.abc import Mapping
from urllib.parse import urlencode


def address(view: str, fields: Mapping[str, str]) -> str:
    """Return view and fields as text; fields that are empty are left away."""
    filled_fields = sorted((name, value) for name, value in fields.items() if value)
    return f"{view}?{urlencode(filled_fields)}" if filled_fields else view
