"""The file of a model that is named: shipped, fetched, or the user's own."""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.suite import FORMATS
from edgemeter.models.catalogue.catalogue import all_entries
from edgemeter.models.catalogue.catalogue_entry import FETCHED, CatalogueEntry
from edgemeter.models.catalogue.shipped_models import shipped_language, shipped_models
from edgemeter.models.fetch.cache import ModelCache, cache_folder


def named_model(name: str) -> Path:
    """Return the file of the shipped model or catalogue entry of this name; the name itself where it can only be meant as a path.

    Raises:
        ConfigError: no model has that name (the message names similar ones), or its file is not on this machine (it says how to get it).
    """
    shipped = {model.path.name: model.path for model in shipped_models()} | {one.name: one.path for one in shipped_language()}
    if name in shipped:
        return shipped[name]
    known = all_entries()
    if name in known:
        return _file_of(known[name])
    near = _near(name, known, list(shipped))
    if not near and Path(name).suffix.lower() in FORMATS:
        return Path(name)
    hint = f"did you mean {' or '.join(near)}?" if near else "correct the path, or see `edgemeter models list`"
    raise ConfigError(f"there is no model {name!r}, neither as a file nor in the catalogue: {hint}")


def known_names() -> list[str]:
    """Return the names that `named_model` knows: shipped files, then the entries of the catalogue."""
    return [*(model.path.name for model in shipped_models()), *(one.name for one in shipped_language()), *all_entries()]


def _near(name: str, known: Mapping[str, CatalogueEntry], shipped: Sequence[str]) -> list[str]:
    """Return names that may have been meant; of a file name only those of shipped files: suffixes alone are alike."""
    if Path(name).suffix.lower() in FORMATS:
        stems = {Path(file).stem: file for file in shipped if Path(file).suffix == Path(name).suffix}
        return [stems[stem] for stem in difflib.get_close_matches(Path(name).stem, stems, n=3)]
    names = [entry.name for entry in known.values() if name in (entry.model, entry.file)]
    names = names or sorted(one for one in (*known, *shipped) if len(name) > 2 and name in one)[:3]
    return names or difflib.get_close_matches(name, [*known, *shipped], n=3)


def _file_of(entry: CatalogueEntry) -> Path:
    cached = ModelCache(cache_folder()).find(entry.name)
    path = cached[0] if cached else Path(entry.path) if entry.path else None
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
