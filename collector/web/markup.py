"""Views are rendered by Jinja2 from `templates/`.

A device's text cannot become markup, because text is escaped unless a template made it.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from edgemeter.agent.base import number_text
from edgemeter.agent.base.number_text import printable
from edgemeter.agent.base.plugins import import_extra

if TYPE_CHECKING:
    from jinja2 import Environment

# A command between backticks, and a day, which must not be broken.
_COMMAND_OR_DAY = re.compile(r"`([^`]+)`|(\b\d{4}-\d\d-\d\d\b)")
Attributes = Mapping[str, str | float | None]


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()

    def __html__(self) -> "Markup":
        """Return itself: a template does not escape it again."""
        return self


def render(template: str, **values: object) -> Markup:
    """Return a template, such as `page.html`, with values (escaped unless markup).

    It raises UnavailableError if Jinja2 is not installed.
    """
    return Markup(_environment().get_template(template).render(values))


def text_of(package_file: str) -> str:
    """Return a file of this package as text: `page.css`."""
    return files("edgemeter.collector.web").joinpath(package_file).read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def _environment() -> "Environment":
    jinja2 = import_extra("jinja2", "report", "pages need Jinja2")
    environment: Environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: text_of(f"templates/{name}")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: value if hasattr(value, "__html__") else printable(str(value)),
    )
    environment.globals["number_text"] = number_text
    environment.filters["attributes"] = _attributes
    environment.filters["prose"] = _prose
    return environment


def _prose(text: object) -> Markup:
    """Return text, escaped unless markup, with its commands marked and its days unbroken."""
    if isinstance(text, Markup):
        return text
    return Markup(
        _COMMAND_OR_DAY.sub(
            lambda match: (
                f"<code>{match[1]}</code>" if match[1] else f'<span class="whole">{match[2]}</span>'
            ),
            escape(printable(str(text))),
        )
    )


def _attributes(attributes: Attributes) -> Markup:
    """Return ` name="value"` for each attribute that is not None."""
    present = (
        (name, escape(printable(str(value))))
        for name, value in attributes.items()
        if value is not None
    )
    return Markup("".join(f' {name}="{value}"' for name, value in present))
