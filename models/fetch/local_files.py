"""The model files on this machine: shipped, fetched and the user's own, found by name, and checked against their recorded hashes."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import model_file
from edgemeter.agent.contract.model_formats import FORMATS
from edgemeter.models.catalogue.catalogue import FETCHED, CatalogueEntry, all_entries, find_entry
from edgemeter.models.catalogue.shipped_models import ModelFile, shipped_language, shipped_models
from edgemeter.models.fetch.cache import ModelCache, cache_folder

State = Literal["ok", "changed", "absent"]


def named_model(name: str, own_catalogue: Path | None = None) -> Path:
    """Return the file of the shipped model or entry of this name; the name itself where it can only be meant as a path.

    `own_catalogue` is the user's catalogue, by default that of the home.

    Raises:
        ConfigError: no model has that name (the message names similar ones), or its file is not on this machine (it says how to get it).
    """
    shipped = _shipped_files()
    if name in shipped:
        return shipped[name]
    entries = all_entries(own_catalogue)
    if name in entries:
        return _file_of(entries[name])
    near = _near(name, entries, list(shipped))
    if not near and Path(name).suffix.lower() in FORMATS:
        return Path(name)
    hint = f"did you mean {' or '.join(near)}?" if near else "correct the path, or see `edgemeter models list`"
    raise ConfigError(f"there is no model {name!r}, neither as a file nor in the catalogue: {hint}")


def known_names() -> list[str]:
    """Return the names that `named_model` knows: shipped files, then the entries of the catalogue."""
    return [*_shipped_files(), *all_entries()]


def _shipped_files() -> dict[str, Path]:
    return {model.path.name: model.path for model in shipped_models()} | {language.name: language.path for language in shipped_language()}


def _near(name: str, entries: Mapping[str, CatalogueEntry], shipped: Sequence[str]) -> list[str]:
    """Return names that may have been meant; of a file name only those of shipped files: suffixes alone are alike."""
    if Path(name).suffix.lower() in FORMATS:
        stems = {Path(file).stem: file for file in shipped if Path(file).suffix == Path(name).suffix}
        return [stems[stem] for stem in difflib.get_close_matches(Path(name).stem, stems, n=3)]
    names = [entry.name for entry in entries.values() if name in (entry.model, entry.file)]
    names = names or sorted(candidate for candidate in (*entries, *shipped) if len(name) > 2 and name in candidate)[:3]
    return names or difflib.get_close_matches(name, [*entries, *shipped], n=3)


def _file_of(entry: CatalogueEntry) -> Path:
    path, _ = ModelCache(cache_folder()).local_file(entry)
    if path is not None and path.is_file():
        return path
    if path is not None:
        raise ConfigError(
            f"model {entry.name!r} was added from {str(path)!r}, which is gone: add it again with `edgemeter models add FILE`"
        )
    if entry.form in FETCHED:
        unverified = " --accept-unverified" if entry.sha256 is None else ""
        raise ConfigError(f"model {entry.name!r} is not on this machine: fetch it with `edgemeter models fetch{unverified} {entry.name}`")
    raise ConfigError(
        f"model {entry.name!r} has no download ({entry.form}): {entry.how or 'add its file with `edgemeter models add FILE`'}"
    )


@dataclass(frozen=True, slots=True)
class VerifiedFile:
    """One file: `expected` is the hash it should have, from `by`; `actual` the one it has, None if it is absent."""

    name: str
    path: Path
    state: State
    expected: str | None
    actual: str | None
    by: str


def verify_models(names: Sequence[str], cache: ModelCache, own_catalogue: Path | None = None) -> list[VerifiedFile]:
    """Return the states of the named files, or of all files that are here; a user's own file that is missing counts as absent.

    Raises:
        ConfigError: the catalogue cannot be read, or has no such name.
    """
    entries = all_entries(own_catalogue)
    shipped = {model.path.name: model for model in shipped_models()}
    if names:
        return [_of_shipped(shipped[name]) if name in shipped else _of(find_entry(name, own_catalogue), cache) for name in names]
    return [*map(_of_shipped, shipped.values()), *_present(entries, cache)]


def _present(entries: Mapping[str, CatalogueEntry], cache: ModelCache) -> Iterator[VerifiedFile]:
    for entry in entries.values():
        if cache.local_file(entry)[0] is not None:
            yield _of(entry, cache)
    for model in cache.models():
        if model.name not in entries and model.path is not None and model.note is not None:
            yield _compare(model.name, model.path, model.note.sha256, f"noted when fetched from {model.note.address}")


def _of_shipped(model: ModelFile) -> VerifiedFile:
    return _compare(model.path.name, model.path, model.about.sha256, "card")


def _of(entry: CatalogueEntry, cache: ModelCache) -> VerifiedFile:
    path, note = cache.local_file(entry)
    by = f"noted when fetched from {note.address}" if note and not entry.sha256 else "catalogue"
    return _compare(entry.name, path or cache.path(entry), entry.sha256 or (note.sha256 if note else None), by)


def _compare(name: str, path: Path, expected: str | None, by: str) -> VerifiedFile:
    if not path.is_file():
        return VerifiedFile(name, path, "absent", expected, None, by)
    actual = model_file.sha256(path)
    return VerifiedFile(name, path, "ok" if expected in (None, actual) else "changed", expected, actual, by)
