"""One entry of the catalogue: a model file, what it takes and gives, where it comes from, and what of this was verified."""

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec

from edgemeter.agent.base.types import Name, Sha256
from edgemeter.agent.contract.model_card import CardInput, CardOutput

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
        for address in self.addresses:
            if not is_address(address):
                raise ValueError(f"{self.name}: {address!r} is not an http or https address (without user and password)")

    @property
    def format(self) -> str:
        """The file's suffix without the dot, as in records."""
        return self.file.rpartition(".")[2].lower()


def is_address(text: str) -> bool:
    """Return whether `text` is an http or https address with a host, and without user and password."""
    try:
        parts = urlsplit(text)
        is_plain = "@" not in parts.netloc and not re.search(r"[\s\x00-\x1f]", text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and is_plain
    except ValueError:
        return False
