"""Pages of a long view: which one was asked for, and the way to the others."""

from edgemeter.collector.web.markup import Markup, element, join
from edgemeter.collector.web.view import Links, ViewRequest, link

LONGEST_NUMBER = 9


def page_of(request: ViewRequest, count: int, size: int) -> int:
    """Return the page that was picked, from 0, one that there is."""
    text = request.get("page")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < LONGEST_NUMBER else 1
    return min(max(number, 1), max(1, -(-count // size))) - 1


def pages_text(request: ViewRequest, place: int, count: int, size: int, links: Links) -> Markup:
    """Return what of more cases than a page holds this is, and the way to the others."""
    if count <= size:
        return join([])
    first, last = place * size + 1, min(count, (place + 1) * size)
    fields = {name: value for name, value in request.fields.items() if name != "page"}
    before = [" ", link(links.to(request.view, **fields, page=str(place) if place > 1 else ""), "Previous")] if place else []
    after = [" ", link(links.to(request.view, **fields, page=str(place + 2)), "Next")] if last < count else []
    text = f"Cases {first:,} to {last:,} of {count:,}; pick a model, a board or a device for less."
    return element("p", {"class": "caution pages"}, text, *before, *after)
