"""Whether model files are what the catalogue says: those that ship, those in the cache, and the user's own."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgemeter.agent.runtimes import model_file
from edgemeter.models import catalogue, entries
from edgemeter.models.cache import Cache
from edgemeter.models.catalogue_entry import Entry

State = Literal["ok", "changed", "absent"]


@dataclass(frozen=True, slots=True)
class Checked:
    """One file: `expected` is the hash it should have, from `by`; `actual` what it has, None where it is absent."""

    name: str
    path: Path
    state: State
    expected: str | None
    actual: str | None
    by: str


def verify(names: Sequence[str], cache: Cache, own: Path | None = None) -> list[Checked]:
    """Return what became of the named files; of all that are here where none is named.

    Raises:
        ConfigError: the catalogue cannot be read, or knows no such name.
    """
    known = entries.entries(own)
    shipped = {model.path.name: model for model in catalogue.models()}
    if names:
        chosen = [_shipped(shipped[name]) if name in shipped else _of(entries.find(name, own), cache) for name in names]
        return [one for one in chosen if one is not None]
    return [*map(_shipped, shipped.values()), *_present(list(known.values()), cache)]


def _present(known: Sequence[Entry], cache: Cache) -> Iterator[Checked]:
    """Yield the files that were fetched or added; a user's own that is gone is missed."""
    for entry in known:
        if cache.find(entry.name) is not None or entry.path is not None:
            yield _of(entry, cache)
    strangers = {held.name for held in cache.held() if held.path} - {entry.name for entry in known}
    for name in sorted(strangers):
        if (there := cache.find(name)) is not None:
            path, note = there
            yield _compare(name, path, note.sha256, f"noted when it came from {note.address}")


def _shipped(model: catalogue.ModelFile) -> Checked:
    return _compare(model.path.name, model.path, model.about.sha256, "card")


def _of(entry: Entry, cache: Cache) -> Checked:
    there = cache.find(entry.name)
    if there is None:
        path = Path(entry.path) if entry.path else cache.path(entry)
        return _compare(entry.name, path, entry.sha256, "catalogue")
    path, note = there
    return _compare(
        entry.name, path, entry.sha256 or note.sha256, "catalogue" if entry.sha256 else f"noted when it came from {note.address}"
    )


def _compare(name: str, path: Path, expected: str | None, by: str) -> Checked:
    if not path.is_file():
        return Checked(name, path, "absent", expected, None, by)
    actual = model_file.sha256(path)
    return Checked(name, path, "ok" if expected in (None, actual) else "changed", expected, actual, by)
