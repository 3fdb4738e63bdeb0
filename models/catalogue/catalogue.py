"""The catalogue: `catalogue.toml` here, and the user's own, whose entries replace those of the same name.

An entry is one model file, what it takes and gives, where it comes from, and what of this was verified.
"""

import fcntl
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec

from edgemeter.agent.base import config
from edgemeter.agent.base.errors import ConfigError, os_error_as
from edgemeter.agent.base.suggestions import did_you_mean
from edgemeter.agent.base.toml import read_toml, toml_document, write_toml
from edgemeter.agent.base.types import Name, Sha256
from edgemeter.agent.contract.model_card import Card, CardInput, CardOutput

# How to get the file: downloaded, downloaded in an archive, made by another tool (`how` names it), or the user's own.
Form = Literal["download", "in an archive", "exported", "compiled", "built on the device", "own"]
FETCHED: tuple[Form, ...] = ("download", "in an archive")
GENERATION = "generation"
Status = Literal["verified", "unverified"]
# A name becomes a folder in the cache; a file name has no path and is not hidden.
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z"
EntryName = Annotated[str, msgspec.Meta(pattern=NAME_PATTERN)]
FileName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][^/\\\x00-\x1f]{0,199}\Z")]


class CatalogueTensor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An input or output as the file declares it; an open dimension is `?`."""

    name: str
    shape: tuple[int | Literal["?"], ...]
    dtype: str
    scale: float | None = None
    zero_point: int | None = None


class Published(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A published accuracy: of which file, on which data, where; `verified` if we have read it there."""

    metric: str
    value: Annotated[float, msgspec.Meta(gt=0)]
    data: str
    of: Literal["this file", "the original weights"]
    source: str
    status: Status


class MeasuredScore(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A score of ours, of a file with the entry's sha256: over which data, by which runtime, on which day."""

    metric: str
    value: float
    data: str
    runtime: str
    day: str


class CatalogueEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model file.

    `model` is the name that all forms of one model share; `labels` names a label map; `dtype` is the input's. A language model (task
    `generation`) has no `input` and no card: its file describes itself. `sha256` is that of the model file, even if it lies in an archive
    under `member`. `why` is what was not verified; `how`, how to make a form that has no download.
    """

    name: EntryName
    model: Name
    task: str
    family: str
    file: FileName
    precision: str
    form: Form
    runtimes: tuple[str, ...]
    accelerators: tuple[str, ...]
    dtype: str
    input: CardInput | None = None
    output: CardOutput = CardOutput()
    output_form: str
    labels: str
    licence: str
    status: Status
    why: str | None = None
    source: str | None = None
    addresses: tuple[str, ...] = ()
    member: str | None = None
    sha256: Sha256 | None = None
    sha256_of: str | None = None
    size_bytes: Annotated[int, msgspec.Meta(gt=0)] | None = None
    how: str | None = None
    accuracy: tuple[Published, ...] = ()
    scored: MeasuredScore | None = None
    inputs: tuple[CatalogueTensor, ...] = ()
    outputs: tuple[CatalogueTensor, ...] = ()
    path: str | None = None

    def __post_init__(self) -> None:
        """Refuse an incomplete entry; msgspec adds its place in the file."""
        if self.form in FETCHED and not self.addresses:
            raise ValueError(f"{self.name}: form {self.form!r} needs addresses")
        if (self.form == "in an archive") != (self.member is not None):
            raise ValueError(f"{self.name}: member belongs to form 'in an archive', and only there")
        if self.form not in (*FETCHED, "own") and not self.how:
            raise ValueError(f"{self.name}: form {self.form!r} needs how, a sentence on how to make it")
        if (self.input is None) != (self.task == GENERATION):
            raise ValueError(f"{self.name}: a model needs an input, and a language model (task {GENERATION!r}) has none")
        if self.status == "unverified" and not self.why:
            raise ValueError(f"{self.name}: unverified needs why")
        if self.scored is not None and self.sha256 is None:
            raise ValueError(f"{self.name}: scored needs the sha256 of the file")
        for address in self.addresses:
            if not is_address(address):
                raise ValueError(f"{self.name}: {address!r} is not an http or https address (without user and password)")


def is_address(text: str) -> bool:
    """Return whether `text` is an http or https address with a host, and without user and password."""
    try:
        parts = urlsplit(text)
        is_plain = "@" not in parts.netloc and not re.search(r"[\s\x00-\x1f]", text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and is_plain
    except ValueError:
        return False


CATALOGUE_FILE = Path(__file__).parent / "catalogue.toml"
LABEL_MAPS = Path(__file__).parent / "label_maps.toml"


class LabelMap(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The names of a model's classes in class order (an unused class has an empty name); empty if the model file holds them."""

    about: str
    labels: tuple[str, ...] = ()


class Catalogue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A catalogue file. `seen`: the first hashes of files whose entry has none, entry name -> sha256."""

    entry: tuple[CatalogueEntry, ...] = ()
    seen: dict[EntryName, Sha256] = {}


def own_file() -> Path:
    """Return the path of the user's own catalogue: $EDGEMETER_CATALOGUE, else in the agent's home."""
    return Path(os.environ.get("EDGEMETER_CATALOGUE") or config.home() / "catalogue.toml").expanduser()


def read_catalogue(path: Path) -> Catalogue:
    """Return the catalogue in `path`.

    Raises:
        ConfigError: it cannot be read, has a wrong or unknown key (named with its path), or a duplicate name.
    """
    catalogue = read_toml(path, Catalogue, "catalogue")
    names = [entry.name for entry in catalogue.entry]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"catalogue {str(path)!r}: duplicate entry {', '.join(doubled)}: remove one")
    return catalogue


def own_catalogue(path: Path | None = None) -> Catalogue:
    """Return the user's own catalogue, an empty one if there is none; raises ConfigError as `read_catalogue`."""
    path = path or own_file()
    return read_catalogue(path) if path.exists() else Catalogue()


def all_entries(path: Path | None = None) -> Mapping[str, CatalogueEntry]:
    """Return all entries by name, the user's before ours, with the recorded hash if an entry has none.

    Raises:
        ConfigError: as `read_catalogue`, or an entry names an unknown label map.
    """
    users, maps = own_catalogue(path), label_maps()
    merged = {entry.name: entry for entry in (*read_catalogue(CATALOGUE_FILE).entry, *users.entry)}
    for entry in merged.values():
        if entry.labels not in ("embedded", "none", *maps):
            raise ConfigError(f"entry {entry.name!r}: unknown label map {entry.labels!r}: choose one of embedded, none, {', '.join(maps)}")
    for name, digest in users.seen.items():
        if name in merged and merged[name].sha256 is None:
            merged[name] = msgspec.structs.replace(merged[name], sha256=digest, sha256_of="as first fetched here")
    return merged


def find_entry(name: str, path: Path | None = None) -> CatalogueEntry:
    """Return the entry of this name; raises ConfigError as `all_entries`, or if there is none (similar ones are named)."""
    entries = all_entries(path)
    if name in entries:
        return entries[name]
    of_file = [entry.name for entry in entries.values() if name in (entry.model, entry.file)]
    hint = f"did you mean {' or '.join(of_file)}?" if of_file else did_you_mean(name, entries, limit=3, alike=0.5)
    raise ConfigError(f"the catalogue has no model {name!r}: {hint or 'see `edgemeter models list`'}")


def label_maps() -> Mapping[str, LabelMap]:
    """Return the label maps by name."""
    return msgspec.toml.decode(LABEL_MAPS.read_bytes(), type=dict[str, LabelMap])


def card_of(entry: CatalogueEntry, sha256: str, source: str | None) -> Card:
    """Return the card for a file of this entry.

    It leaves out the published accuracy, which belongs to another data set: a card's accuracy is what a run here must reach.

    Raises:
        ConfigError: it is a language model, whose file describes itself.
    """
    if entry.input is None:
        raise ConfigError(f"{entry.name!r} is a language model: its file describes itself, there is no card")
    label_map = label_maps().get(entry.labels)
    output = msgspec.structs.replace(entry.output, labels=label_map.labels) if label_map and label_map.labels else entry.output
    return Card(
        name=entry.model,
        task=entry.task,
        family=entry.family,
        precision=entry.precision,
        sha256=sha256,
        licence=entry.licence,
        source=source or entry.source,
        input=entry.input,
        output=output,
        made={"entry": entry.name},
    )


def change_catalogue(path: Path, entry: CatalogueEntry | None = None, hashes: Mapping[str, str] | None = None) -> None:
    """Put an entry into the user's own catalogue, in place of one of its name, and hashes (by entry) of files whose entry has none.

    A lock keeps concurrent changes apart.

    Raises:
        ConfigError: it cannot be read or written.
    """
    with os_error_as(ConfigError, f"cannot write the catalogue {str(path)!r}", "choose another file with --catalogue"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_name(f".{path.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            catalogue = own_catalogue(path)
            entries = catalogue.entry if entry is None else (*(other for other in catalogue.entry if other.name != entry.name), entry)
            changed = Catalogue(entry=entries, seen={**catalogue.seen, **(hashes or {})})
            write_toml(path, toml_document(msgspec.to_builtins(changed)))
