"""Addresses within the page of the runs, and that of the page itself, to which a comment links."""

from collections.abc import Mapping
from urllib.parse import urlencode, urlsplit

from edgemeter.agent.base.errors import ConfigError


def address(view: str, fields: Mapping[str, str]) -> str:
    """Return view and fields as text; fields that are empty are left away."""
    filled_fields = sorted((name, value) for name, value in fields.items() if value)
    return f"{view}?{urlencode(filled_fields)}" if filled_fields else view


def page_address(text: str | None) -> str:
    """Return the address of the page without its last slash; raises ConfigError unless it is one that a comment can link to."""
    if not text:
        return ""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment or set(text) & set(" ()<>[]\"'`|\\"):
        raise ConfigError(f"{text!r} is not the address of a page: write https://HOST[:PORT][/PATH]")
    return text.rstrip("/")
