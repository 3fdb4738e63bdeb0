"""The shell: the page around a view, served or in a file of its own, and what it may load."""

import base64
import hashlib
from importlib.metadata import version
from importlib.resources import files

from edgemeter.collector.show.markup import Markup, element, join, raw

SERVED_POLICY = (
    "default-src 'none'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; script-src 'self'; base-uri 'none';"
    " form-action 'self'; frame-ancestors 'none'"
)


def styles() -> str:
    """Return the style sheet: the report's, and what the page has beside it."""
    return _part("edgemeter.collector.show", "report.css") + _part("edgemeter.collector.web", "page.css")


def script() -> str:
    """Return the script: everything reads without it."""
    return _part("edgemeter.collector.web", "page.js")


def served(title: str, inside: Markup, remark: str) -> str:
    """Return a page that loads its style and its script from where it came from."""
    links = [element("link", {"rel": "stylesheet", "href": "/page.css"}), element("script", {"src": "/page.js", "defer": "defer"})]
    return _page(title, links, [inside, _footer(remark)])


def one_file(title: str, inside: Markup, held: list[Markup], remark: str) -> str:
    """Return a page that loads nothing: it shows `inside`, and holds the other views as templates."""
    code = script()
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    allowed = f"img-src data: blob:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    policy = f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"
    head = [element("meta", {"http-equiv": "Content-Security-Policy", "content": policy}), element("style", None, raw(styles()))]
    without = element("noscript", None, element("p", {"class": "caution"}, "Without a script this file shows its overview only."))
    body = [without, element("div", {"id": "shown"}, inside), *held, _footer(remark), element("script", None, raw(code))]
    return _page(title, head, body)


def _page(title: str, head: list[Markup], body: list[Markup]) -> str:
    whole = element(
        "head",
        None,
        element("meta", {"charset": "utf-8"}),
        element("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        element("meta", {"name": "color-scheme", "content": "light dark"}),
        element("meta", {"name": "referrer", "content": "no-referrer"}),
        element("title", None, f"{title} - Edgemeter"),
        # A browser asks for an icon otherwise, and there is none.
        element("link", {"rel": "icon", "href": "data:,"}),
        *head,
    )
    skip = element("a", {"class": "skip", "href": "#content"}, "Skip to the content")
    page = element("html", {"lang": "en"}, whole, element("body", None, skip, join(body)))
    return f"<!doctype html>\n{page}\n"


def _footer(remark: str) -> Markup:
    return element("footer", None, f"Made by edgemeter {version('edgemeter')}. {remark}")


def _part(package: str, name: str) -> str:
    return files(package).joinpath(name).read_text(encoding="utf-8")
