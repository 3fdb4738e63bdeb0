"""Inspects a model file before a library does, so that a broken one ends in a one-line error."""

import hashlib
import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO

from edgemeter.agent.base import python_target
from edgemeter.agent.base.errors import ConfigError

_HEAD_BYTES = 64
_CHUNK_BYTES = 1 << 20
# What a file says of itself is labels and settings; more than this is none of it, and a zip can claim any size.
_TEXT_BYTES = 1 << 20
_TEXTS = 32
_WITH_WEIGHTS = (".xml", ".param")
# All that zipfile raises on a garbled archive with members stored or deflated; NotImplementedError is a RuntimeError.
BROKEN_ZIP = (zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError, RuntimeError, ValueError)
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def head(model: Path) -> bytes:
    """Return the first bytes of the model file.

    Raises:
        ConfigError: there is no such file, it is a directory or empty, it cannot be read, or it only points to where the model is.
    """
    try:
        with model.open("rb") as file:
            start = file.read(_HEAD_BYTES)
    except IsADirectoryError as error:
        raise ConfigError(f"{str(model)!r} is a directory: give the model file itself") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the model {str(model)!r}: {getattr(error, 'strerror', None) or error}") from error
    if not start:
        raise ConfigError(f"the model {str(model)!r} is empty: fetch it again")
    if start.startswith(b"version https://git-lfs"):
        raise ConfigError(f"{str(model)!r} is a Git LFS pointer, not the model: run git lfs pull where it came from")
    return start


def source_of(model: Path) -> Path:
    """Return the file of a model: of a factory that its address names the source; raises ConfigError if there is no such source."""
    target = python_target.parse(str(model))
    return target.source if target else model


def parts(model: Path) -> tuple[Path, ...]:
    """Return the files that make the model, in the order in which they are hashed: some formats keep the weights beside it.

    The weights of a factory's model are known where it was called only.
    """
    model = source_of(model)
    weights = model.with_suffix(".bin")
    return (model, weights) if model.suffix.lower() in _WITH_WEIGHTS and weights.is_file() else (model,)


def size_bytes(model: Path) -> int:
    """Return the size of a model's files in all; 0 where there is no such file."""
    source = source_of(model)
    return sum(part.stat().st_size for part in parts(model)) if source.exists() else 0


def sha256(model: Path, further: Iterable[Path] = ()) -> str:
    """Return the hash of a model: of its file, or of its files and the `further` ones, one after the other, where it has more than one.

    Raises:
        ConfigError: a file cannot be read.
    """
    total = hashlib.sha256()
    try:
        for part in (*parts(model), *further):
            with part.open("rb") as file:
                while chunk := file.read(_CHUNK_BYTES):
                    total.update(chunk)
    except OSError as error:
        raise ConfigError(f"cannot read {error.filename or str(model)!r}: {error.strerror}") from error
    return total.hexdigest()


def check_sha256(model: str, actual: str, named: str) -> None:
    """Raise ConfigError unless a model has the hash that was named for it."""
    if actual != named:
        raise ConfigError(f"{model!r} has sha256 {actual}, not {named}: fetch it again, or correct the hash")


def texts(archive: Path | IO[bytes], below: str = "") -> Mapping[str, str]:
    """Return the UTF-8 members of a zip (also one appended to another file) by name, those under a folder `below` only.

    What is not a zip or text, or larger than a label file can be is left out: this is what a file states about itself, not what it needs.
    """
    text_by_name: dict[str, str] = {}
    try:
        with zipfile.ZipFile(archive) as members:
            for info in members.infolist():
                name = _name_below(info.filename, below)
                is_small = info.file_size <= _TEXT_BYTES and info.compress_type in COMPRESSIONS
                if name is not None and is_small and len(text_by_name) < _TEXTS:
                    text_by_name.update(_text(members, info, name))
    except BROKEN_ZIP:
        return text_by_name
    return text_by_name


def _name_below(filename: str, below: str) -> str | None:
    """Return the member's name as it is to be called; None for a folder and for what lies elsewhere."""
    if filename.endswith("/"):
        return None
    if not below:
        return filename
    _, separator, name = f"/{filename}".partition(f"/{below}/")
    return name if separator and name else None


def _text(members: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> Mapping[str, str]:
    """Return the member's text under its name, nothing when it is not text."""
    try:
        with members.open(info) as member:
            content = member.read(_TEXT_BYTES + 1)
        return {name: content.decode("utf-8")} if len(content) <= _TEXT_BYTES else {}
    except BROKEN_ZIP:
        return {}
