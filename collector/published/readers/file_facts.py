"""Facts that several readers take of a file in one way."""

from collections.abc import Mapping
from typing import Any

from edgemeter.collector.published.row import NOT_STATED


def version_fact(defaults: Mapping[str, Any], version: str | None) -> str | None:
    """Return the edition that a page states, None where the user gives one: a commit says more than a release."""
    return version if defaults.get("version", NOT_STATED) == NOT_STATED else None
