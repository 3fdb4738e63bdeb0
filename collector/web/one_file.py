"""The page as one file: every view that fits, in a file that loads nothing and works without a network."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.errors import ConfigError
from edgemeter.collector.show import figures
from edgemeter.collector.show.markup import Markup, element
from edgemeter.collector.web import shell
from edgemeter.collector.web.book import REFERENCE, Book, Happenings, baselines, devices_of_role
from edgemeter.collector.web.queries import Narrowing, cases, count_cases
from edgemeter.collector.web.run_index import IndexedCase, RunIndex
from edgemeter.collector.web.series import DEFAULT_METRIC
from edgemeter.collector.web.site import Choices, content, held_exports, offered, show
from edgemeter.collector.web.view import Asked, FileLinks, read_address

# How many of each a file holds, so that it can be sent and opened; the served page has all.
BASELINES, MODELS, DEVICES, RUNS = 8, 12, 60, 40
METRICS = ("", "gross_mj", "accuracy", "throttled_ratio")


@dataclass(frozen=True, slots=True)
class Held:
    """The addresses of a file, and what there is more of than it holds."""

    addresses: tuple[str, ...]
    left_away: tuple[str, ...]


def write(
    index: RunIndex,
    happenings: Happenings,
    path: Path,
    narrowing: Narrowing,
    runs: int = RUNS,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> int:
    """Write the file and return its size in bytes; `progress` is told how many of the views are made.

    Raises:
        ConfigError: there are runs and `narrowing` picks none, or the file cannot be written.
    """
    with index.reading() as connection:
        if count_cases(connection, Narrowing()) and not count_cases(connection, narrowing):
            asked = ", ".join(f"{name} {value!r}" for name, value in _fixed(narrowing).items())
            message = f"no run is of {asked}: nothing is written; `edgemeter collector devices` lists who is there"
            raise ConfigError(message)
    text = page(index, happenings, narrowing, runs, progress)
    try:
        return path.write_bytes(text.encode())
    except OSError as error:
        message = f"cannot write the report to {str(path)!r}: {error.strerror}: name another file"
        raise ConfigError(message) from error


def page(
    index: RunIndex, happenings: Happenings, narrowing: Narrowing, runs: int = RUNS, progress: Callable[[int, int], None] = lambda *_: None
) -> str:
    """Return the file as HTML, of the cases that `narrowing` picks."""
    with index.reading() as connection:
        held = _held(Book(connection, index.source, FileLinks(()), happenings), narrowing, runs)
        book = Book(connection, index.source, FileLinks(frozenset(held.addresses)), happenings)
        choices = _choices(offered(book), held)
        made: list[tuple[str, Markup, str]] = []
        for count, text in enumerate(held.addresses, start=1):
            asked = read_address(text)
            view = show(book, Asked(asked.view, {**_fixed(narrowing), **asked.fields}))
            if view is not None:
                made.append((text, content(view, asked, choices, book.links, held_exports(view, asked)), view.title))
            progress(count, len(held.addresses))
    templates = [element("template", {"data-address": text}, inside) for text, inside, _ in made[1:]]
    more = f" Not in this file: {'; '.join(held.left_away)}." if held.left_away else ""
    remark = f"Written on {figures.stamp(time.time_ns())} UTC: {figures.count(len(made), 'view')} in one file.{more}"
    return shell.one_file(made[0][2], made[0][1], templates, remark)


def _fixed(narrowing: Narrowing) -> dict[str, str]:
    fields = {name: getattr(narrowing, name) for name in Narrowing.__slots__}
    return {name: str(value) for name, value in fields.items() if value is not None}


def _held(book: Book, narrowing: Narrowing, runs: int) -> Held:
    found = cases(book.connection, narrowing)
    models = list(dict.fromkeys(case.key.model for case in found))
    devices = list(dict.fromkeys((case.key.fleet, case.key.device) for case in found))
    ours = {REFERENCE, *(device for _, device in devices), *devices_of_role(book.connection)}
    references = [name for name in baselines(book.connection) if name in ours]
    kept_models, kept_devices, kept_references = models[:MODELS], devices[:DEVICES], references[:BASELINES]
    newest = _newest_runs(book, found, runs)
    every = [
        Asked("overview"),
        # Without a picked baseline the first one stands.
        Asked("compare"),
        *(Asked("compare", {"baseline": name}) for name in kept_references),
        *([Asked("model")] if kept_models else []),
        *(Asked("model", {"model": name}) for name in kept_models),
        Asked("trend"),
        *(Asked("trend", {"model": name, "metric": metric}) for name in kept_models for metric in METRICS),
        *([Asked("device")] if kept_devices else []),
        *(Asked("device", {"fleet": fleet, "device": device}) for fleet, device in kept_devices),
        *(Asked("run", {"id": name}) for name in newest),
    ]
    left = [
        (len(models) - len(kept_models), "model"),
        (len(devices) - len(kept_devices), "device"),
        (len(references) - len(kept_references), "baseline"),
        (sum(case.figures.runs for case in found) - len(newest), "run"),
    ]
    away = [f"{figures.count(number, f'more {noun}')}" for number, noun in left if number > 0]
    return Held(tuple(one.address for one in every), tuple(away))


def _newest_runs(book: Book, found: Sequence[IndexedCase], most: int) -> list[str]:
    """Return the newest run of each case, those that a comparison needs first: of the reference, then of the others."""
    ordered = sorted(found, key=lambda case: (case.key.role != "reference", -case.figures.last_ns))
    query = "SELECT id FROM runs WHERE case_number = ? ORDER BY started_at_ns DESC LIMIT 1"
    return [str(book.connection.execute(query, (case.number,)).fetchone()[0]) for case in ordered[:most]]


def _choices(everything: Choices, held: Held) -> Choices:
    """Return what the forms of the file offer: of the routes' fields only what it holds."""
    values = {name: dict(entries) for name, entries in everything.values.items() if name != "days"}
    addresses = [read_address(text) for text in held.addresses]
    for view, name in (("compare", "baseline"), ("trend", "metric")):
        kept = {one.get(name) for one in addresses if one.view == view} | {DEFAULT_METRIC}
        values[name] = {value: text for value, text in values[name].items() if value in kept}
    return Choices(values)
