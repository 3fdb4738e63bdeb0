"""The catalogue: `catalogue.toml` here, and the user's own.

The user's entries replace those of the same name.
"""

import fcntl
import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from edgemeter.agent.base import config
from edgemeter.agent.base.download import redacted
from edgemeter.agent.base.errors import ConfigError, os_error_as
from edgemeter.agent.base.suggestions import did_you_mean
from edgemeter.agent.base.toml import read_toml, toml_document, write_toml
from edgemeter.agent.base.types import Name, Sha256
from edgemeter.agent.contract.model_card import Card, CardInput, CardOutput

CATALOGUE_FILE = Path(__file__).parent / "catalogue.toml"
GENERATION = "generation"
# A name becomes a folder in the cache; a file name has no path and is not hidden.
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z"
FileName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][^/\\\x00-\x1f]{0,199}\Z")]
# Without user and password.
Address = Annotated[str, msgspec.Meta(pattern=r"^https?://[^\s/@\[\]]+/\S*\Z")]


class EntryAccuracy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An accuracy, published for the original weights, or scored by us.

    One scored by us is over a number of `images` of the data, with this very file.
    """

    metric: str
    value: Annotated[float, msgspec.Meta(gt=0)]
    data: str
    source: str
    images: int | None = None


class CatalogueEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model file: fetched, made, or the user's own.

    It is fetched from `address` (as a `member` of the archive there), made as `how` describes, or
    lies at `path`. `model` is the name shared by all files of one model; `labels` names a label
    map. `input` and `output` are for the card of a fetched file; a language model has none, because
    its file describes itself. `sha256` is that of the model file, also inside an archive. Without
    one the entry is unverified, and remains so (`first_seen`) if the hash is that of the first
    downloaded file. `note` has further remarks, such as guesses.
    """

    name: Annotated[str, msgspec.Meta(pattern=NAME_PATTERN)]
    model: Name
    task: str
    family: str
    file: FileName
    precision: str
    licence: str
    address: Address | None = None
    member: str | None = None
    how: str | None = None
    path: str | None = None
    source: str | None = None
    sha256: Sha256 | None = None
    first_seen: bool = False
    size_bytes: Annotated[int, msgspec.Meta(gt=0)] | None = None
    input: CardInput | None = None
    output: CardOutput = CardOutput()
    labels: str | None = None
    accuracy: EntryAccuracy | None = None
    note: str | None = None

    def __post_init__(self) -> None:
        """Refuse an incomplete entry; msgspec adds its position in the file."""
        if [self.address, self.how, self.path].count(None) != 2:
            raise ValueError(f"{self.name}: needs one of address, how and path")
        if self.member is not None and self.address is None:
            raise ValueError(f"{self.name}: member needs the address of an archive")
        if self.address is not None and self.input is None and self.task != GENERATION:
            raise ValueError(
                f"{self.name}: a model that is fetched needs an input, unless its task is "
                f"{GENERATION!r}"
            )
        if self.labels is not None and self.labels not in label_maps():
            raise ValueError(
                f"{self.name}: unknown label map {self.labels!r}: choose one of "
                f"{', '.join(label_maps())}"
            )

    @property
    def is_verified(self) -> bool:
        """Whether the hash comes from elsewhere than the downloaded file."""
        return self.sha256 is not None and not self.first_seen

    @property
    def how_to_get(self) -> str:
        """The remedy if the file is missing."""
        if self.address is not None:
            unverified = "" if self.sha256 else "--accept-unverified "
            return (
                f"model {self.name!r} is not on this machine: fetch it with `edgemeter models "
                f"fetch {unverified}{self.name}`"
            )
        if self.how is not None:
            return f"model {self.name!r} has no download; make it: {self.how}"
        problem = f"model {self.name!r} was added from {self.path!r}, which is gone or was changed"
        return f"{problem}: add it again with `edgemeter models add FILE`"


class Catalogue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A catalogue file."""

    entry: tuple[CatalogueEntry, ...] = ()


@functools.cache
def label_maps() -> Mapping[str, tuple[str, ...]]:
    """Return the names of classes in class order, by the name of the map.

    An unused class has an empty name.
    """
    return msgspec.toml.decode(
        Path(__file__).with_name("label_maps.toml").read_bytes(), type=dict[str, tuple[str, ...]]
    )


def own_file() -> Path:
    """Return the path of the user's own catalogue.

    It is $EDGEMETER_CATALOGUE, else in the agent's home.
    """
    return Path(
        os.environ.get("EDGEMETER_CATALOGUE") or config.home() / "catalogue.toml"
    ).expanduser()


def read_catalogue(path: Path) -> Catalogue:
    """Return the catalogue in `path`, an empty one if it is absent.

    Raises:
        ConfigError: it cannot be read, has a wrong or unknown key (named with its path), or a
            duplicate name.
    """
    catalogue = read_toml(path, Catalogue, "catalogue") if path.exists() else Catalogue()
    names = [entry.name for entry in catalogue.entry]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(
            f"catalogue {str(path)!r}: duplicate entry {', '.join(doubled)}: remove one"
        )
    return catalogue


def all_entries() -> Mapping[str, CatalogueEntry]:
    """Return all entries by name, the user's before ours; raises as `read_catalogue`."""
    return {
        entry.name: entry
        for path in (CATALOGUE_FILE, own_file())
        for entry in read_catalogue(path).entry
    }


def find_entry(name: str) -> CatalogueEntry:
    """Return the entry of this name.

    Raises:
        ConfigError: as `all_entries`; or there is no such entry (similar ones are named).
    """
    entries = all_entries()
    if name in entries:
        return entries[name]
    alike = [entry.name for entry in entries.values() if name in (entry.model, entry.file)]
    hint = f"did you mean {' or '.join(alike)}?" if alike else did_you_mean(name, entries, limit=3)
    problem = f"there is no model {name!r}, neither as a file nor in the catalogue"
    raise ConfigError(f"{problem}: {hint or 'correct the path, or see `edgemeter models list`'}")


def card_of(entry: CatalogueEntry, sha256: str) -> Card:
    """Return the card for a fetched file of this entry, which is not a language model.

    The accuracy is left out: it belongs to another data set, and a card's accuracy is what a run
    here must reach.
    """
    if entry.input is None:
        raise ConfigError(
            f"{entry.name!r} is a language model: its file describes itself, there is no card"
        )
    labels = label_maps()[entry.labels] if entry.labels else entry.output.labels
    return Card(
        name=entry.model,
        task=entry.task,
        family=entry.family,
        precision=entry.precision,
        sha256=sha256,
        licence=entry.licence,
        source=redacted(entry.address or ""),
        input=entry.input,
        output=msgspec.structs.replace(entry.output, labels=labels),
        made={"entry": entry.name},
    )


def change_catalogue(entry: CatalogueEntry) -> None:
    """Put an entry into the user's own catalogue, replacing one of its name.

    A lock serialises concurrent changes.

    Raises:
        ConfigError: it cannot be read or written.
    """
    path = own_file()
    with os_error_as(
        ConfigError,
        f"cannot write the catalogue {str(path)!r}",
        "name another file in EDGEMETER_CATALOGUE",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_name(f".{path.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            entries = tuple(
                other for other in read_catalogue(path).entry if other.name != entry.name
            )
            write_toml(path, toml_document(msgspec.to_builtins(Catalogue(entry=(*entries, entry)))))
