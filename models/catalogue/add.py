"""Adds a user's model file to the catalogue, with the facts that it reports.

The facts are those of its runtime and its metadata.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from edgemeter.agent.base.errors import ConfigError, os_error_as
from edgemeter.agent.base.toml import write_toml
from edgemeter.agent.contract import model_file
from edgemeter.agent.contract.model_card import Guess, card_path, made_by_guessing
from edgemeter.agent.contract.model_formats import runtime_for
from edgemeter.agent.engine.inspection import inspect
from edgemeter.agent.recognition import recognise
from edgemeter.agent.runtimes import Loaded
from edgemeter.models.catalogue.catalogue import (
    CATALOGUE_FILE,
    NAME_PATTERN,
    CatalogueEntry,
    change_catalogue,
    own_file,
    read_catalogue,
)
from edgemeter.models.catalogue.shipped_models import card_text


class AddedModel(NamedTuple):
    """The new entry of the user's catalogue, the runtime's facts and the guesses."""

    entry: CatalogueEntry
    loaded: Loaded
    guesses: tuple[Guess, ...]


def add_model(
    model: Path,
    name: str | None,
    runtime: str | None,
    licence: str | None,
    source: str | None,
    *,
    replace: bool,
) -> AddedModel:
    """Add a model to the user's catalogue.

    A card is written next to `model` if it has none. If an argument is None, the file's own data
    are used; `replace` allows an entry of the same name to be replaced.

    Raises:
        ConfigError: it is not a model, cannot be recognised, has the card of another file, or its
            name is taken.
        UnavailableError: its runtime is not installed.
    """
    if name is not None and not re.match(NAME_PATTERN, name):
        raise ConfigError(
            f"--name {name!r}: use letters, digits, dots, dashes and underscores, and begin with "
            "a letter or digit"
        )
    model = model.resolve()
    if not model.is_file():
        raise ConfigError(f"cannot add {str(model)!r}: there is no such file")
    loaded = inspect(model, runtime or runtime_for(model))
    about, guesses = recognise.card_for(model, loaded)
    guessed = made_by_guessing(guesses)
    digest = model_file.sha256(model)
    if about.sha256 not in (None, digest):
        raise ConfigError(
            f"{str(model)!r} has sha256 {digest}, but the card next to it has {about.sha256}: "
            f"remove or correct {card_path(model).name!r}"
        )
    licence = (
        licence or about.licence or loaded.metadata.get("licence") or loaded.metadata.get("license")
    )
    built_in = {entry.name: entry for entry in read_catalogue(CATALOGUE_FILE).entry}
    entry = CatalogueEntry(
        name=name or _name(model, built_in),
        model=about.name,
        task=about.task,
        family=about.family,
        file=model.name,
        precision=about.precision,
        licence=" ".join(licence.split()) if licence else "not stated",
        path=str(model),
        source=source or about.source,
        sha256=digest,
        size_bytes=model.stat().st_size,
        input=about.input,
        output=about.output,
        # The card written now ends the guessing, so the guesses are kept here.
        note=guessed.get("guesses"),
    )
    holder = {**built_in, **{other.name: other for other in read_catalogue(own_file()).entry}}.get(
        entry.name
    )
    # The same file may be added again, as may a file that our catalogue describes how to make.
    if holder is not None and holder.how is None and holder.path != entry.path and not replace:
        problem = f"{entry.name!r} is {holder.path or holder.file!r} in the catalogue"
        raise ConfigError(f"{problem}: choose another --name, or replace it with --replace")
    if not card_path(model).exists():
        origin = {"entry": entry.name, "by": "edgemeter models add", **guessed}
        card = msgspec.structs.replace(
            about, sha256=digest, licence=entry.licence, source=entry.source, made=origin
        )
        with os_error_as(
            ConfigError,
            f"cannot write {str(card_path(model))!r}",
            "copy the model to a folder that you can write, and add it there",
        ):
            write_toml(card_path(model), card_text(card))
    change_catalogue(entry)
    return AddedModel(entry, loaded, guesses)


def _name(model: Path, built_in: Mapping[str, CatalogueEntry]) -> str:
    """Return the name of the entry for this file.

    It is that of our entry if the file is the one that it describes how to make, else the file's
    name without its suffix.
    """
    export_name = next(
        (entry.name for entry in built_in.values() if entry.file == model.name and entry.how), None
    )
    clean = "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "-"
        for letter in model.stem
    )
    return export_name or clean.lstrip("._-")[:128] or "model"
