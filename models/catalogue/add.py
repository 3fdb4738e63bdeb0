"""Adds a user's model file to the catalogue, with the facts that its runtime and its metadata report."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.toml import write_toml
from edgemeter.agent.contract import model_file
from edgemeter.agent.contract.model_card import Card, card_path
from edgemeter.agent.contract.model_formats import runtime_for
from edgemeter.agent.engine.inspection import inspect
from edgemeter.agent.recognition import recognise
from edgemeter.agent.runtimes import Loaded, TensorInfo
from edgemeter.models.catalogue.catalogue import (
    CATALOGUE_FILE,
    FETCHED,
    CatalogueEntry,
    CatalogueTensor,
    card_of,
    change_catalogue,
    own_catalogue,
    read_catalogue,
)
from edgemeter.models.catalogue.shipped_models import card_text

# Runtimes that do not run on the CPU.
_ACCELERATORS = {"edgetpu": "edgetpu", "tensorrt": "tensorrt"}


@dataclass(frozen=True, slots=True)
class NewEntry:
    """The user's data about the file; None where the file's own data are used."""

    name: str | None = None
    runtime: str | None = None
    licence: str | None = None
    source: str | None = None
    replace: bool = False


def add_model(model: Path, new_entry: NewEntry, catalogue: Path) -> tuple[CatalogueEntry, tuple[str, ...]]:
    """Return the entry made of `model`, written to `catalogue`, and the guesses; a card is written beside the file if it has none.

    Raises:
        ConfigError: it is not a model, cannot be recognised, has a card of another file, or its name is taken.
        UnavailableError: its runtime is not installed.
    """
    model = model.resolve()
    if not model.is_file():
        raise ConfigError(f"cannot add {str(model)!r}: there is no such file")
    name = new_entry.runtime or runtime_for(model)
    loaded = inspect(model, name)
    about, guesses = recognise.card_for(model, loaded)
    digest = model_file.sha256(model)
    if about.sha256 not in (None, digest):
        raise ConfigError(
            f"{str(model)!r} has sha256 {digest}, but the card beside it has {about.sha256}: remove or correct {card_path(model).name!r}"
        )
    built_in = {entry.name: entry for entry in read_catalogue(CATALOGUE_FILE).entry}
    entry = _entry(model, digest, about, loaded, name, new_entry)
    entry = msgspec.structs.replace(entry, name=new_entry.name or _name(model, built_in.values()))
    if guesses:
        # The card that is written now ends the guessing: the guesses are kept here.
        entry = msgspec.structs.replace(entry, status="unverified", why=" | ".join(guess.partition("; ")[2] or guess for guess in guesses))
    if not new_entry.replace:
        _check_name(entry, built_in, own_catalogue(catalogue).entry)
    if not card_path(model).exists():
        origin = {"entry": entry.name, "by": "edgemeter models add", **({"guesses": entry.why} if entry.why else {})}
        try:
            write_toml(card_path(model), card_text(msgspec.structs.replace(card_of(entry, digest, entry.source), made=origin)))
        except OSError as error:
            problem = f"cannot write {str(card_path(model))!r}: {error.strerror}"
            raise ConfigError(f"{problem}; copy the model to a folder that you can write and add it there") from error
    change_catalogue(catalogue, entry)
    return entry, guesses


def _entry(model: Path, digest: str, about: Card, loaded: Loaded, runtime: str, new_entry: NewEntry) -> CatalogueEntry:
    licence = new_entry.licence or about.licence or loaded.metadata.get("licence") or loaded.metadata.get("license")
    inputs, outputs = (tuple(_tensor(info) for info in infos) for infos in (loaded.inputs, loaded.outputs))
    return CatalogueEntry(
        name="unnamed",
        model=about.name,
        task=about.task,
        family=about.family,
        file=model.name,
        precision=about.precision,
        form="own",
        runtimes=(runtime,),
        accelerators=(_ACCELERATORS.get(runtime, "cpu"),),
        dtype=inputs[0].dtype if inputs else "float32",
        input=about.input,
        output=about.output,
        output_form="; ".join(f"{output.name} {list(output.shape)} {output.dtype}" for output in outputs) or "not declared in the file",
        labels="embedded" if about.output.labels else "none",
        licence=" ".join(licence.split()) if licence else "not stated",
        status="verified",
        source=new_entry.source or about.source,
        sha256=digest,
        sha256_of="the file when it was added",
        size_bytes=model.stat().st_size,
        inputs=inputs,
        outputs=outputs,
        path=str(model),
    )


def _name(model: Path, built_in: Iterable[CatalogueEntry]) -> str:
    """Return the name of our entry for a file that has to be made, if this is it, else the file's own without its suffix."""
    exported = next((entry.name for entry in built_in if entry.file == model.name and entry.form not in FETCHED), None)
    clean = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "-" for letter in model.stem)
    return exported or clean.lstrip("._-")[:128] or "model"


def _tensor(info: TensorInfo) -> CatalogueTensor:
    shape: tuple[int | Literal["?"], ...] = tuple("?" if side is None else side for side in info.shape)
    return CatalogueTensor(name=info.name, shape=shape, dtype=info.dtype, scale=info.scale, zero_point=info.zero_point)


def _check_name(entry: CatalogueEntry, built_in: Mapping[str, CatalogueEntry], own_entries: Iterable[CatalogueEntry]) -> None:
    """Raise ConfigError if the name belongs to another file; the same file may be added again."""
    other = next((own_entry for own_entry in own_entries if own_entry.name == entry.name and own_entry.path != entry.path), None)
    shipped = built_in.get(entry.name)
    if other is None and shipped and shipped.form in FETCHED and entry.name not in [own_entry.name for own_entry in own_entries]:
        other = shipped
    if other is not None:
        raise ConfigError(
            f"{entry.name!r} is {other.path or other.file!r} in the catalogue: choose another --name, or replace it with --replace"
        )
