"""One file out of a .zip or .tar archive: by its exact name, a plain file, and no larger than expected."""

import lzma
import os
import tarfile
import zipfile
from pathlib import Path
from typing import IO

from edgemeter.agent.errors import UnavailableError
from edgemeter.agent.runtimes.model_file import BROKEN_ZIP
from edgemeter.models.fetch.part import Part

# All that reading a garbled archive raises; OSError is gzip's word for it too.
BROKEN = (*BROKEN_ZIP, tarfile.TarError, lzma.LZMAError)


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
    except BROKEN as error:
        message = f"the archive with {member!r} cannot be read: {' '.join(str(error).split())}"
        raise UnavailableError(message) from error


def copy(source: IO[bytes], out: Part, limit_bytes: int, what: str) -> None:
    """Write `source` to `out`, on disk when this returns; what reading raises is left as it is.

    Raises:
        UnavailableError: it is longer than `limit_bytes`; a compressed one may say it is short.
        TransientError: the disk is full.
    """
    out.drop()
    done = 0
    while (chunk := source.read(1 << 20)) and done + len(chunk) <= limit_bytes:
        _append(out, chunk)
        done += len(chunk)
    # The last, empty one: all of it to the disk.
    _append(out, b"")
    if chunk:
        out.drop()
        message = f"{what} is larger than the {limit_bytes} bytes it may have: not taken"
        raise UnavailableError(message)


def _append(out: Part, chunk: bytes) -> None:
    try:
        with out.path.open("ab") as file:
            file.write(chunk)
            if not chunk:
                os.fsync(file.fileno())
    except OSError as error:
        raise out.unwritable(error) from error


def _from_zip(archive: Path, member: str, out: Part, limit_bytes: int) -> None:
    with zipfile.ZipFile(archive) as opened:
        if member not in opened.namelist():
            raise _absent(member, opened.namelist())
        with opened.open(member) as source:
            copy(source, out, limit_bytes, repr(member))


def _from_tar(archive: Path, member: str, out: Part, limit_bytes: int) -> None:
    with tarfile.open(archive) as opened:
        names = []
        for info in opened:
            # Many are packed with `tar czf x.tgz .`, which puts ./ before every name.
            names.append(info.name.removeprefix("./"))
            source = opened.extractfile(info) if info.isfile() and names[-1] == member else None
            if source is not None:
                with source:
                    copy(source, out, limit_bytes, repr(member))
                return
        raise _absent(member, names)


def _absent(member: str, names: list[str]) -> UnavailableError:
    listed = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return UnavailableError(f"the archive has no file {member!r}, but {listed or 'none at all'}")
