"""One entry of the catalogue: a model file, what it takes and gives, where it comes from, and what of this was verified."""

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec

from edgemeter.agent.recognition import card
from edgemeter.agent.records import Name, Sha256

# How one gets the file: fetched as it is, fetched inside an archive, made by somebody else's tool (`how` says which), or the user's own.
Form = Literal["download", "in an archive", "exported", "compiled", "built on the device", "own"]
FETCHED: tuple[Form, ...] = ("download", "in an archive")
Status = Literal["verified", "unverified"]
# A name becomes a folder in the cache; a file name is one, without a path, and not hidden.
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z"
EntryName = Annotated[str, msgspec.Meta(pattern=NAME_PATTERN)]
FileName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][^/\\\x00-\x1f]{0,199}\Z")]


class Tensor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An input or output as the file declares it; a side that it leaves open is `?`."""

    name: str
    shape: tuple[int | Literal["?"], ...]
    dtype: str
    scale: float | None = None
    zero_point: int | None = None


class Published(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An accuracy that somebody published: of which file, on which data, where; `verified` when we have read it there."""

    metric: Literal["coco_ap", "top1"]
    value: Annotated[float, msgspec.Meta(gt=0, le=1)]
    data: str
    of: Literal["this file", "the original weights"]
    source: str
    status: Status


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model file.

    `model` is the name that all forms of one model share; `labels` names a label map; `dtype` is the input's. `sha256` is that of the
    model file, also where it lies in an archive under `member`. `why` says what was not verified; `how`, how a form is made that is
    nowhere to be downloaded.
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
    input: card.Input
    output: card.Output = card.Output()
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
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    path: str | None = None

    def __post_init__(self) -> None:
        """Refuse an entry that nobody could act on; msgspec adds where in the file it stands."""
        if self.form in FETCHED and not self.addresses:
            message = f"{self.name}: form {self.form!r} needs addresses"
            raise ValueError(message)
        if (self.form == "in an archive") != (self.member is not None):
            message = f"{self.name}: member belongs to form 'in an archive', and only there"
            raise ValueError(message)
        if self.form not in (*FETCHED, "own") and not self.how:
            message = f"{self.name}: form {self.form!r} needs how, a sentence that says how it is made"
            raise ValueError(message)
        if self.status == "unverified" and not self.why:
            message = f"{self.name}: unverified needs why"
            raise ValueError(message)
        for address in self.addresses:
            if not is_address(address):
                message = f"{self.name}: {address!r} is no http or https address (without user and password)"
                raise ValueError(message)

    @property
    def format(self) -> str:
        """The file's suffix without the dot, the record's word for its format."""
        return self.file.rpartition(".")[2].lower()


def is_address(text: str) -> bool:
    """Return whether `text` is an http or https address with a host, and without a password, which has no place in a catalogue."""
    try:
        parts = urlsplit(text)
        is_plain = "@" not in parts.netloc and not re.search(r"[\s\x00-\x1f]", text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and is_plain
    except ValueError:
        return False
