"""One file out of a .zip or .tar archive: by its exact name, a plain file, and no larger than expected."""

import os
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import IO

from edgemeter.agent.errors import UnavailableError
from edgemeter.models.fetch.part import Part


def take_out(archive: Path, member: str, out: Part, limit_bytes: int) -> None:
    """Write the file `member` of the archive to `out`; nothing else of it is written anywhere.

    Raises:
        UnavailableError: it is no archive, is broken, or has no such file of at most `limit_bytes`.
        TransientError: the disk is full.
    """
    try:
        if zipfile.is_zipfile(archive):
            _from_zip(archive, member, out, limit_bytes)
        else:
            _from_tar(archive, member, out, limit_bytes)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, NotImplementedError, RuntimeError) as error:
        message = f"the archive with {member!r} cannot be read: {' '.join(str(error).split())}"
        raise UnavailableError(message) from error


def copy(source: IO[bytes], out: Part, limit_bytes: int, what: str) -> None:
    """Write `source` to `out`, on disk when this returns.

    Raises:
        UnavailableError: it is longer than `limit_bytes`; a compressed one may say it is short.
        TransientError: the disk is full.
    """
    done = 0
    try:
        with out.path.open("wb") as file:
            while chunk := source.read(1 << 16):
                done += len(chunk)
                if done > limit_bytes:
                    break
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise out.unwritable(error) from error
    if done > limit_bytes:
        out.drop()
        message = f"{what} is larger than the {limit_bytes} bytes it may have: not taken"
        raise UnavailableError(message)


def _from_zip(archive: Path, member: str, out: Part, limit_bytes: int) -> None:
    with zipfile.ZipFile(archive) as opened:
        if member not in opened.namelist():
            raise _absent(member, opened.namelist())
        with opened.open(member) as source:
            copy(source, out, limit_bytes, repr(member))


def _from_tar(archive: Path, member: str, out: Part, limit_bytes: int) -> None:
    with tarfile.open(archive) as opened:
        # Many are packed with `tar czf x.tgz .`, which puts ./ before every name.
        found = {info.name.removeprefix("./"): info for info in opened if info.isfile()}
        source = opened.extractfile(found[member]) if member in found else None
        if source is None:
            raise _absent(member, list(found))
        with source:
            copy(source, out, limit_bytes, repr(member))


def _absent(member: str, names: list[str]) -> UnavailableError:
    listed = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return UnavailableError(f"the archive has no file {member!r}, but {listed or 'none at all'}")
