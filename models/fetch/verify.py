"""Check model files against their recorded hashes: shipped files, cached ones, and the user's own."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgemeter.agent.contract import model_file
from edgemeter.models.catalogue import shipped_models
from edgemeter.models.catalogue.catalogue import all_entries, find_entry
from edgemeter.models.catalogue.catalogue_entry import CatalogueEntry
from edgemeter.models.catalogue.shipped_models import ModelFile
from edgemeter.models.fetch.cache import ModelCache

State = Literal["ok", "changed", "absent"]


@dataclass(frozen=True, slots=True)
class VerifiedFile:
    """One file: `expected` is the hash it should have, from `by`; `actual` the one it has, None if it is absent."""

    name: str
    path: Path
    state: State
    expected: str | None
    actual: str | None
    by: str


def verify_models(names: Sequence[str], cache: ModelCache, own: Path | None = None) -> list[VerifiedFile]:
    """Return the states of the named files, or of all files that are here; a user's own file that is missing counts as absent.

    Raises:
        ConfigError: the catalogue cannot be read, or has no such name.
    """
    known = all_entries(own)
    shipped = {model.path.name: model for model in shipped_models.shipped_models()}
    if names:
        return [_shipped(shipped[name]) if name in shipped else _of(find_entry(name, own), cache) for name in names]
    return [*map(_shipped, shipped.values()), *_present(list(known.values()), cache)]


def _present(known: Sequence[CatalogueEntry], cache: ModelCache) -> Iterator[VerifiedFile]:
    for entry in known:
        if cache.find(entry.name) is not None or entry.path is not None:
            yield _of(entry, cache)
    names = {entry.name for entry in known}
    for one in cache.models():
        if one.name not in names and one.path is not None and one.note is not None:
            yield _compare(one.name, one.path, one.note.sha256, f"noted when fetched from {one.note.address}")


def _shipped(model: ModelFile) -> VerifiedFile:
    return _compare(model.path.name, model.path, model.about.sha256, "card")


def _of(entry: CatalogueEntry, cache: ModelCache) -> VerifiedFile:
    cached = cache.find(entry.name)
    if cached is None:
        return _compare(entry.name, Path(entry.path) if entry.path else cache.path(entry), entry.sha256, "catalogue")
    path, note = cached
    return _compare(
        entry.name, path, entry.sha256 or note.sha256, "catalogue" if entry.sha256 else f"noted when fetched from {note.address}"
    )


def _compare(name: str, path: Path, expected: str | None, by: str) -> VerifiedFile:
    if not path.is_file():
        return VerifiedFile(name, path, "absent", expected, None, by)
    actual = model_file.sha256(path)
    return VerifiedFile(name, path, "ok" if expected in (None, actual) else "changed", expected, actual, by)
