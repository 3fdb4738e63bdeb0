"""Writes a run as one file, named for its record."""

import base64
import hashlib
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from edgemeter.agent import record_parts, records
from edgemeter.agent.bundle import archive
from edgemeter.agent.bundle import manifest as contents
from edgemeter.agent.bundle.signature import Signer
from edgemeter.agent.engine.suites import Case
from edgemeter.agent.errors import ConfigError

_SUFFIXES = {"<u4": "u4", "<i8": "i8", "<f8": "f8"}
_PATHS = ("model", "images", "annotations")


def write(folder: Path, record: records.RunRecord, case: Case, suite: bytes | None = None, signer: Signer | None = None) -> Path:
    """Write the bundle of a run into `folder` and return its path; `suite` is the text of the suite's file, where there was one.

    Raises:
        ConfigError: it cannot be written.
    """
    path = folder / f"{record.id}{contents.SUFFIX}"
    content = archive.pack(files(record, case, suite, signer))
    partial = path.with_suffix(".partial")
    try:
        partial.write_bytes(content)
        os.replace(partial, path)  # noqa: PTH105 - names what it does to a file that is there already
    except OSError as error:
        partial.unlink(missing_ok=True)
        message = f"cannot write the bundle {str(path)!r}: {error.strerror}: make room, or name another folder (--bundle)"
        raise ConfigError(message) from error
    return path


def check_folder(folder: Path) -> None:
    """Make the folder where it is missing, and find before anything is measured whether bundles can be written there.

    Raises:
        ConfigError: they cannot.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        message = f"cannot write bundles to {str(folder)!r}: {error.strerror}: name another folder (--bundle)"
        raise ConfigError(message) from error


def files(record: records.RunRecord, case: Case, suite: bytes | None, signer: Signer | None) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a bundle in their order: the manifest first, then its signature, then what it lists."""
    head, _ = record_parts.part(records.encode(record))
    listed = [(contents.RECORD, head), (contents.CASE, _case(case))]
    if suite is not None:
        listed.append((contents.SUITE, suite))
    series: list[contents.SeriesFile] = []
    for one in record.samples:
        described = _series(one, {known.file for known in series})
        series.append(described)
        listed.append((described.file, zlib.decompress(base64.b64decode(one.data))))
    members = tuple(
        contents.Member(file=name, size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest()) for name, content in listed
    )
    text = contents.encode(contents.Manifest(record=record.id, written_by=record.environment.agent, members=members, series=tuple(series)))
    yield contents.MANIFEST, text
    if signer is not None:
        yield contents.SIGNATURE, signer.sign(text)
        yield contents.SIGNER, signer.public_pem
    yield from listed


def _series(one: records.Series, taken: set[str]) -> contents.SeriesFile:
    stem = re.sub(r"[^A-Za-z0-9._-]", "_", one.name).lstrip(".-")[:80] or "series"
    names = (f"samples/{stem}{'' if count == 1 else f'-{count}'}.{_SUFFIXES[one.dtype]}" for count in range(1, len(taken) + 2))
    file = next(name for name in names if name not in taken)
    return contents.SeriesFile(name=one.name, unit=one.unit, dtype=one.dtype, count=one.count, file=file)


def _case(case: Case) -> bytes:
    """Return the case as it ran. Of paths only the last part: where files lie on a device is nobody else's business."""
    local = {key: Path(value).name for key in _PATHS if (value := getattr(case, key)) is not None}
    return msgspec.json.format(msgspec.json.encode(msgspec.structs.replace(case, **local)), indent=1) + b"\n"
