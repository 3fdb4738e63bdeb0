"""The model files on this machine: shipped, fetched and the user's own.

They are found by name, and verified by their recorded hashes.
"""

from collections.abc import Sequence
from pathlib import Path

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.suggestions import did_you_mean
from edgemeter.agent.contract import model_file
from edgemeter.agent.contract.model_formats import FORMATS
from edgemeter.models.catalogue.catalogue import all_entries, find_entry
from edgemeter.models.catalogue.shipped_models import shipped_files, shipped_models
from edgemeter.models.fetch.fetching import local_file


def named_model(name: str) -> Path:
    """Return the file of the shipped model or entry of this name.

    If the name can only be a path, the name itself is returned.

    Raises:
        ConfigError: no model has that name (similar names are listed), or its file is not on this
            machine (with the command to get it).
    """
    shipped = shipped_files()
    if name in shipped:
        return shipped[name]
    if Path(name).suffix.lower() in FORMATS and name not in all_entries():
        # Suffixes alone are no similarity.
        if hint := did_you_mean(name, shipped, alike=0.8):
            raise ConfigError(
                f"there is no model {name!r}, neither as a file nor among those that ship: {hint}"
            )
        return Path(name)
    entry = find_entry(name)
    if not local_file(entry).is_file():
        raise ConfigError(entry.how_to_get)
    return local_file(entry)


def known_names() -> list[str]:
    """Return the names that `named_model` knows.

    They are those of shipped files, then of the entries of the catalogue.
    """
    return [*shipped_files(), *all_entries()]


def verify_models(names: Sequence[str]) -> list[dict[str, str | None]]:
    """Return name, path, state, expected and actual hash of the files on this machine.

    They are those of the named files, or of all. A state is ok, changed or absent. A user's own
    file that is missing counts as absent.

    Raises:
        ConfigError: the catalogue cannot be read, or has no such name.
    """
    shipped = {model.path.name: (model.path, model.about.sha256) for model in shipped_models()}
    entries = (
        {name: find_entry(name) for name in names if name not in shipped}
        if names
        else all_entries()
    )
    files = shipped | {name: (local_file(entry), entry.sha256) for name, entry in entries.items()}
    rows = []
    for name in names or [
        name
        for name, (path, _) in files.items()
        if path.is_file() or (name in entries and entries[name].path)
    ]:
        path, expected = files[name]
        actual = model_file.sha256(path) if path.is_file() else None
        state = "absent" if actual is None else "ok" if expected in (None, actual) else "changed"
        rows.append(
            {
                "name": name,
                "path": str(path),
                "state": state,
                "expected": expected,
                "actual": actual,
            }
        )
    return rows
