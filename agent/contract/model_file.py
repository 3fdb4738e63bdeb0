"""Inspects a model file before a library opens it, so that a broken file gives a one-line error."""

import hashlib
import struct
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

from edgemeter.agent.base import python_target
from edgemeter.agent.base.errors import ConfigError

_HEAD_BYTES = 64
_CHUNK_BYTES = 1 << 20
_WITH_WEIGHTS = (".xml", ".param")
# All errors of zipfile on a garbled archive with stored or deflated members; NotImplementedError is
# a RuntimeError.
BROKEN_ZIP = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    OSError,
    EOFError,
    RuntimeError,
    ValueError,
)


def head(model: Path) -> bytes:
    """Return the first bytes of the model file.

    Raises:
        ConfigError: it is a directory, empty, unreadable or a Git LFS pointer.
    """
    try:
        with model.open("rb") as file:
            start = file.read(_HEAD_BYTES)
    except IsADirectoryError as error:
        raise ConfigError(f"{str(model)!r} is a directory: give the model file itself") from error
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"cannot read the model {str(model)!r}: {getattr(error, 'strerror', None) or error}"
        ) from error
    if not start:
        raise ConfigError(f"the model {str(model)!r} is empty: fetch it again")
    if start.startswith(b"version https://git-lfs"):
        raise ConfigError(
            f"{str(model)!r} is a Git LFS pointer, not the model: run git lfs pull where "
            "it came from"
        )
    return start


def source_of(model: Path) -> Path:
    """Return a model's file, or the source file of a factory's address.

    Raises:
        ConfigError: there is none.
    """
    target = python_target.parse(str(model))
    return target.source if target else model


def parts(model: Path) -> tuple[Path, ...]:
    """Return the model's files in the order of hashing.

    Some formats have a second file for the weights. A factory's files are not known yet.
    """
    model = source_of(model)
    weights = model.with_suffix(".bin")
    return (
        (model, weights)
        if model.suffix.lower() in _WITH_WEIGHTS and weights.is_file()
        else (model,)
    )


def size_bytes(model: Path) -> int:
    """Return the total size of a model's files; 0 if they do not exist."""
    return sum(part.stat().st_size for part in parts(model)) if source_of(model).exists() else 0


def sha256(model: Path, further: Iterable[Path] = ()) -> str:
    """Return the hash of a model's files, and of the `further` ones, concatenated.

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
        raise ConfigError(
            f"cannot read {error.filename or str(model)!r}: {error.strerror}"
        ) from error
    return total.hexdigest()


def check_sha256(model: str, actual: str, named: str) -> None:
    """Raise ConfigError unless a model has the expected hash."""
    if actual != named:
        raise ConfigError(
            f"{model!r} has sha256 {actual}, not {named}: fetch it again, or correct the hash"
        )
