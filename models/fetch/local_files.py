"""The model files on this machine: shipped, fetched and the user's own, found by name, and checked against their recorded hashes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.suggestions import did_you_mean
from edgemeter.agent.contract import model_file
from edgemeter.agent.contract.model_formats import FORMATS
from edgemeter.models.catalogue.catalogue import all_entries, find_entry
from edgemeter.models.catalogue.shipped_models import shipped_files, shipped_models
from edgemeter.models.fetch.fetching import local_file


def named_model(name: str) -> Path:
    """Return the file of the shipped model or entry of this name; the name itself where it can only be meant as a path.

    Raises:
        ConfigError: no model has that name (the message names similar ones), or its file is not on this machine (it says how to get it).
    """
    shipped = shipped_files()
    if name in shipped:
        return shipped[name]
    if Path(name).suffix.lower() in FORMATS and name not in all_entries():
        # Suffixes alone are alike.
        if hint := did_you_mean(name, shipped, alike=0.8):
            raise ConfigError(f"there is no model {name!r}, neither as a file nor among those that ship: {hint}")
        return Path(name)
    entry = find_entry(name)
    if not local_file(entry).is_file():
        raise ConfigError(entry.how_to_get)
    return local_file(entry)


def known_names() -> list[str]:
    """Return the names that `named_model` knows: shipped files, then the entries of the catalogue."""
    return [*shipped_files(), *all_entries()]


@dataclass(frozen=True, slots=True)
class VerifiedFile:
    """One file: `expected` is the hash it should have; `actual` the one it has, None if it is absent."""

    name: str
    path: str
    state: Literal["ok", "changed", "absent"]
    expected: str | None
    actual: str | None


def verify_models(names: Sequence[str]) -> list[VerifiedFile]:
    """Return the states of the named files, or of all files that are here; a user's own file that is missing counts as absent.

    Raises:
        ConfigError: the catalogue cannot be read, or has no such name.
    """
    shipped = {model.path.name: (model.path, model.about.sha256) for model in shipped_models()}
    entries = {name: find_entry(name) for name in names if name not in shipped} if names else all_entries()
    files = shipped | {name: (local_file(entry), entry.sha256) for name, entry in entries.items()}
    selected = names or [name for name, (path, _) in files.items() if path.is_file() or (name in entries and entries[name].path)]
    return [_compare(name, *files[name]) for name in selected]


def _compare(name: str, path: Path, expected: str | None) -> VerifiedFile:
    if not path.is_file():
        return VerifiedFile(name, str(path), "absent", expected, None)
    actual = model_file.sha256(path)
    return VerifiedFile(name, str(path), "ok" if expected in (None, actual) else "changed", expected, actual)
