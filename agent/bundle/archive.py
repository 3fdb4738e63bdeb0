"""The bundle as a file: a zip of a manifest, its signature, the record and the raw samples.

Its content is not trusted.

Nothing in the zip is compressed, so that the same run gives the same bytes everywhere: a reader
packs the bundle again, and refuses it if the bytes differ. So no zip program can show other files
in it.
"""

import base64
import hashlib
import io
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.foreign_text import decode_json, parse_json
from edgemeter.agent.base.types import Sha256
from edgemeter.agent.contract.model_file import BROKEN_ZIP
from edgemeter.agent.contract.record import (
    NO_SAMPLES,
    RunRecord,
    Series,
    decode,
    join_samples,
    split_samples,
)

BUNDLE_VERSION = 1
MANIFEST_FILE, SIGNATURE, SIGNER, RECORD = (
    "manifest.json",
    "manifest.sig",
    "signer.pem",
    "record.json",
)
# The manifest cannot list itself and its signature.
UNLISTED = frozenset({MANIFEST_FILE, SIGNATURE, SIGNER})
# Far above the size of a run, far below a harmful size: ten minutes of 0.1 ms queries are 72 MB.
FILE_BYTES = 256 * 1024 * 1024
# The earliest date that a zip can store: the time of writing is not part of a bundle.
ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)


class RunFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the bundle; for raw samples with the name, unit and type of the series."""

    # Although a bundle is never unpacked to disk, a name that could lead elsewhere is refused.
    file: Annotated[
        str, msgspec.Meta(pattern=r"^(record\.json|samples/[A-Za-z0-9_][A-Za-z0-9._-]{0,99})\Z")
    ]
    sha256: Sha256
    series: str | None = None
    unit: str = ""
    dtype: Literal["<u4", "<i8", "<f8"] = "<f8"


class RunManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `manifest.json`.

    `written_by` is the version of the agent that wrote the bundle.
    """

    format: Literal["edgemeter-bundle"] = "edgemeter-bundle"
    version: Annotated[int, msgspec.Meta(ge=1)] = BUNDLE_VERSION
    record: str
    written_by: str
    members: tuple[RunFile, ...]


def encode_manifest(manifest: RunManifest) -> bytes:
    """Return the signed text of `manifest.json`."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def decode_manifest(text: bytes) -> RunManifest:
    """Return the manifest in `text`.

    Raises:
        ConfigError: it is invalid, or of a newer version than this edgemeter reads.
    """
    try:
        manifest = decode_json(text, RunManifest)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{MANIFEST_FILE} is not the manifest of a bundle: {error}") from error
    if manifest.version > BUNDLE_VERSION:
        raise ConfigError(
            f"the bundle has version {manifest.version}, this edgemeter reads up to "
            f"{BUNDLE_VERSION}: update edgemeter here"
        )
    return manifest


def pack(files: Iterable[tuple[str, bytes]]) -> bytes:
    """Return a zip of the files, in order: the same bytes for the same files."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in files:
            info = zipfile.ZipInfo(name, ZIP_EPOCH)
            info.create_system = 3
            info.external_attr = 0o644 << 16
            archive.writestr(info, content)
    return target.getvalue()


def unpack(path: Path) -> Mapping[str, bytes]:
    """Return the files of a bundle by name.

    Raises:
        ConfigError: it cannot be read, or is not the zip that `pack` makes of them.
    """
    try:
        if path.stat().st_size > FILE_BYTES:
            raise ConfigError(
                f"{str(path)!r} is larger than a bundle can be ({FILE_BYTES >> 20} MiB): "
                "edgemeter did not write it"
            )
        content = path.read_bytes()
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            infos = archive.infolist()
            # Compressed or overlapping entries could expand without end.
            is_flat = all(info.compress_type == zipfile.ZIP_STORED for info in infos) and sum(
                info.file_size for info in infos
            ) < len(content)
            files = {info.filename: archive.read(info) for info in infos} if is_flat else {}
    except BROKEN_ZIP as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise ConfigError(
            f"cannot read the bundle {str(path)!r}: {reason}; copy it again from the "
            "device that wrote it"
        ) from error
    if pack(files.items()) != content:
        raise ConfigError(
            f"{str(path)!r} is not the exact zip that edgemeter writes, so other programs may "
            "show other files in it"
        )
    return files


@dataclass(frozen=True, slots=True)
class RunBundle:
    """A consistent bundle; `signature` and `signer_pem` are not verified yet."""

    manifest: RunManifest
    manifest_text: bytes
    record: RunRecord
    signature: bytes | None
    signer_pem: bytes | None


def read_bundle(path: Path) -> RunBundle:
    """Return the bundle in a file.

    Raises:
        ConfigError: it cannot be read, is damaged, or inconsistent.
    """
    files = unpack(path)
    try:
        manifest = decode_manifest(files.get(MANIFEST_FILE, b""))
        _check_members(manifest, files)
        for name in (MANIFEST_FILE, RECORD):
            # An object that repeats a name is refused: some readers use the first value, some the
            # last.
            parse_json(files[name].decode(errors="replace"))
        return RunBundle(
            manifest,
            files[MANIFEST_FILE],
            _record(manifest, files),
            files.get(SIGNATURE),
            files.get(SIGNER),
        )
    except ConfigError as error:
        raise ConfigError(f"the bundle {str(path)!r} is damaged: {error}") from error


def _check_members(manifest: RunManifest, files: Mapping[str, bytes]) -> None:
    listed = Counter(member.file for member in manifest.members)
    for name in {RECORD: 1, **listed, **files}:
        if name not in UNLISTED and (listed[name] != 1 or name not in files):
            wrong = (
                "is missing"
                if name not in files
                else "is not in the manifest"
                if name not in listed
                else "is listed twice"
            )
            raise ConfigError(f"{name} {wrong}")
    for member in manifest.members:
        if hashlib.sha256(files[member.file]).hexdigest() != member.sha256:
            raise ConfigError(f"{member.file} does not match the manifest: its sha256 differs")


def _record(manifest: RunManifest, files: Mapping[str, bytes]) -> RunRecord:
    if split_samples(files[RECORD])[1] != NO_SAMPLES:
        raise ConfigError(f"{RECORD} contains samples that the manifest does not list")
    series = [
        _series(member, files[member.file])
        for member in manifest.members
        if member.series is not None
    ]
    record = decode(join_samples(files[RECORD], msgspec.json.encode(series)))
    if record.id != manifest.record:
        raise ConfigError(
            f"its record has the id {record.id!r}, the manifest states {manifest.record!r}"
        )
    return record


def _series(member: RunFile, content: bytes) -> Series:
    count, rest_bytes = divmod(len(content), np.dtype(member.dtype).itemsize)
    if rest_bytes:
        raise ConfigError(f"{member.file} does not contain a whole number of {member.dtype} values")
    data = base64.b64encode(zlib.compress(content, 1)).decode()
    return Series(
        name=member.series or "", unit=member.unit, dtype=member.dtype, count=count, data=data
    )
