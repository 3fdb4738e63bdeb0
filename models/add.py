"""A user's own model file into his catalogue: what it is, as its runtime and its own metadata tell."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from edgemeter.agent import runtimes
from edgemeter.agent.engine import suites
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.recognition import card, recognise
from edgemeter.agent.runtimes import Loaded, TensorInfo, model_file
from edgemeter.models import card_file, entries, toml_text
from edgemeter.models.catalogue_entry import FETCHED, Entry, Tensor

# Runtimes that run on something else than the processor.
_ACCELERATORS = {"edgetpu": "edgetpu", "tensorrt": "tensorrt"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user says of the file; None where it is left to the file."""

    name: str | None = None
    runtime: str | None = None
    licence: str | None = None
    source: str | None = None
    replace: bool = False


def add(model: Path, wanted: Wanted, catalogue: Path) -> tuple[Entry, tuple[str, ...]]:
    """Return the entry made of `model`, written to `catalogue`, and what was guessed; a card is written beside the file if it has none.

    Raises:
        ConfigError: it is no model, cannot be recognised, has a card of another file, or its name is taken.
        UnavailableError: its runtime is not installed.
    """
    model = model.resolve()
    if not model.is_file():
        message = f"cannot add {str(model)!r}: there is no such file"
        raise ConfigError(message)
    name = wanted.runtime or suites.runtime_for(model)
    loaded = _load(name, model)
    about, guesses = recognise.card_for(model, loaded)
    digest = model_file.sha256(model)
    if about.sha256 not in (None, digest):
        message = (
            f"{str(model)!r} has sha256 {digest}, the card beside it is of {about.sha256}: remove or correct {card.beside(model).name!r}"
        )
        raise ConfigError(message)
    ours = {one.name: one for one in entries.read(entries.FILE).entry}
    entry = _entry(model, digest, about, loaded, name, wanted)
    entry = msgspec.structs.replace(entry, name=wanted.name or _name(model, ours.values()))
    if guesses:
        # The card that is written now ends the guessing: what was guessed has to stand somewhere.
        entry = msgspec.structs.replace(entry, status="unverified", why=" | ".join(guess.partition("; ")[2] or guess for guess in guesses))
    if not wanted.replace:
        _check_name(entry, ours, entries.own(catalogue).entry)
    if not card.beside(model).exists():
        made = {"entry": entry.name, "by": "edgemeter models add", **({"guesses": entry.why} if entry.why else {})}
        _write_card(model, msgspec.structs.replace(entries.card_of(entry, digest, entry.source), made=made))
    entries.change(catalogue, lambda there: entries.with_entry(there, entry))
    return entry, guesses


def _load(name: str, model: Path) -> Loaded:
    runtime = runtimes.create(name)
    try:
        return runtime.load(model, runtimes.Options())
    finally:
        runtime.close()


def _entry(model: Path, digest: str, about: card.Card, loaded: Loaded, runtime: str, wanted: Wanted) -> Entry:
    licence = wanted.licence or about.licence or loaded.metadata.get("licence") or loaded.metadata.get("license")
    inputs, outputs = (tuple(_tensor(info) for info in infos) for infos in (loaded.inputs, loaded.outputs))
    return Entry(
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
        output_form="; ".join(f"{one.name} {list(one.shape)} {one.dtype}" for one in outputs) or "not declared in the file",
        labels="embedded" if about.output.labels else "none",
        licence=" ".join(licence.split()) if licence else "not stated",
        status="verified",
        source=wanted.source or about.source,
        sha256=digest,
        sha256_of="the file when it was added",
        size_bytes=model.stat().st_size,
        inputs=inputs,
        outputs=outputs,
        path=str(model),
    )


def _name(model: Path, ours: Iterable[Entry]) -> str:
    """Return the name of our entry that waits for this file to be made, else the file's own without its suffix."""
    waiting = next((entry.name for entry in ours if entry.file == model.name and entry.form not in FETCHED), None)
    clean = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "-" for letter in model.stem)
    return waiting or clean.lstrip("._-")[:128] or "model"


def _tensor(info: TensorInfo) -> Tensor:
    shape: tuple[int | Literal["?"], ...] = tuple("?" if side is None else side for side in info.shape)
    return Tensor(name=info.name, shape=shape, dtype=info.dtype, scale=info.scale, zero_point=info.zero_point)


def _check_name(entry: Entry, ours: Mapping[str, Entry], theirs: Iterable[Entry]) -> None:
    """Refuse a name that stands for another file; the same file added again is no conflict.

    Raises:
        ConfigError: it does.
    """
    other = next((one for one in theirs if one.name == entry.name and one.path != entry.path), None)
    if other is None and entry.name in ours and ours[entry.name].form in FETCHED and entry.name not in [one.name for one in theirs]:
        other = ours[entry.name]
    if other is not None:
        message = (
            f"{entry.name!r} is {other.path or other.file!r} in the catalogue: choose another --name, or put yours above it with --replace"
        )
        raise ConfigError(message)


def _write_card(model: Path, about: card.Card) -> None:
    try:
        toml_text.write(card.beside(model), card_file.text(about))
    except OSError as error:
        message = f"cannot write {str(card.beside(model))!r}: {error.strerror}; copy the model to a folder of yours and add it there"
        raise ConfigError(message) from error
