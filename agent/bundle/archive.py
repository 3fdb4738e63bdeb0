"""The bundle as a file: its manifest, the zip around it (the same bytes for the same content), and reading it without trust."""

import base64
import hashlib
import io
import os
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

import msgspec
import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.foreign_text import decode_json, parse_json
from edgemeter.agent.base.types import Count, Sha256
from edgemeter.agent.contract import samples
from edgemeter.agent.contract.model_file import BROKEN_ZIP, COMPRESSIONS
from edgemeter.agent.contract.record import NO_SAMPLES, RunRecord, Series, decode, join_samples, split_samples

BUNDLE_VERSION = 1
BUNDLE_SUFFIX = ".edgemeter"

MANIFEST_FILE, SIGNATURE, SIGNER = "manifest.json", "manifest.sig", "signer.pem"
RECORD, CASE, SUITE = "record.json", "case.json", "suite.toml"

# The manifest cannot list itself and its signature.
UNLISTED = frozenset({MANIFEST_FILE, SIGNATURE, SIGNER})

# Although a bundle is never unpacked to disk, a name that could lead elsewhere is refused.
MEMBER_NAME = re.compile(
    r"(?:manifest\.json|manifest\.sig|signer\.pem|record\.json|case\.json|suite\.toml|samples/[A-Za-z0-9_][A-Za-z0-9._-]{0,99})\Z"
)
# Far above the size of a run, far below what would harm: ten minutes of 0.1 ms queries are 72 MB.
FILE_BYTES = 256 * 1024 * 1024
TOTAL_BYTES = 512 * 1024 * 1024
TEXT_BYTES = 16 * 1024 * 1024
MOST_MEMBERS = 256
# The earliest date that a zip can hold: the time of writing is not part of a bundle.
ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)
# The fastest: a device writes between two runs, and must not get warm from it.
COMPRESSION = 1
_ENCRYPTED = 0x1
# Source: PKWARE's APPNOTE 6.3.10, 4.3.12 and 4.3.16: an entry of the directory without its name, and the end record.
_DIRECTORY_ENTRY_BYTES, _END_BYTES = 46, 22


def bundle_files(where: Sequence[Path]) -> list[Path]:
    """Return the bundles among files and within folders, each once; raises ConfigError if a path is absent, or there is no bundle."""
    bundles: dict[Path, Path] = {}
    for path in where:
        if not path.exists():
            raise ConfigError(f"{str(path)!r} does not exist: name bundles (*{BUNDLE_SUFFIX}), or folders that contain them")
        files = sorted(path.rglob(f"*{BUNDLE_SUFFIX}")) if path.is_dir() else [path]
        bundles |= {file.resolve(): file for file in files if file.is_file()}
    if not bundles:
        raise ConfigError(f"no bundle in {', '.join(map(str, where))}: `edgemeter run ... --bundle DIR --signing-key-file KEY` writes them")
    return list(bundles.values())


class RunFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the bundle."""

    file: str
    size_bytes: Count
    sha256: Sha256


class SeriesFile(msgspec.Struct, frozen=True, kw_only=True):
    """One series of raw samples: `count` numbers of `dtype` without anything between them."""

    name: str
    unit: str
    dtype: Literal["<u4", "<i8", "<f8"]
    count: Count
    file: str


class RunManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `manifest.json`; `written_by` is the version of the agent that wrote the bundle."""

    format: Literal["edgemeter-bundle"] = "edgemeter-bundle"
    version: Annotated[int, msgspec.Meta(ge=1)] = BUNDLE_VERSION
    record: str
    written_by: str
    members: tuple[RunFile, ...]
    series: tuple[SeriesFile, ...] = ()


def encode_document(content: msgspec.Struct) -> bytes:
    """Return a document of a bundle as its file's text; that of the manifest gets hashed and signed."""
    return msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"


def decode_manifest(text: bytes) -> RunManifest:
    """Return the manifest that `text` holds.

    Raises:
        ConfigError: it is not a manifest, or of a newer version than this edgemeter reads.
    """
    try:
        manifest = decode_json(text, RunManifest)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{MANIFEST_FILE} is not the manifest of a bundle: {error}") from error
    if manifest.version > BUNDLE_VERSION:
        raise ConfigError(f"the bundle has version {manifest.version}, this edgemeter reads up to {BUNDLE_VERSION}: update edgemeter here")
    return manifest


def pack(files: Iterable[tuple[str, bytes]]) -> bytes:
    """Return a zip of the files, in their order: the same bytes for the same files, wherever the same zlib writes them."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in files:
            info = zipfile.ZipInfo(name, ZIP_EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.create_system = 3
            info.external_attr = 0o644 << 16
            archive.writestr(info, content, compresslevel=COMPRESSION)
    return target.getvalue()


def unpack(path: Path) -> Mapping[str, bytes]:
    """Return the files of a bundle by name.

    Raises:
        ConfigError: it cannot be read, is not a bundle, is damaged, or holds what no bundle holds.
    """
    try:
        size = path.stat().st_size
        if size > FILE_BYTES:
            raise ConfigError(f"{str(path)!r} is {size / 1e6:.0f} MB, more than a bundle can be: it was not written by edgemeter")
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            infos = archive.infolist()
            _check_zip(path, infos)
            if not _is_gapless(file, infos):
                raise ConfigError(f"{str(path)!r} holds bytes that belong to none of its files: it was not written by edgemeter")
            return {info.filename: _read_member(archive, info) for info in infos}
    except BROKEN_ZIP as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise ConfigError(f"cannot read the bundle {str(path)!r}: {reason}; copy it again from the device that wrote it") from error


def _check_zip(path: Path, infos: list[zipfile.ZipInfo]) -> None:
    (name, count), *_ = Counter(info.filename for info in infos).most_common(1) or [("", 0)]
    if len(infos) > MOST_MEMBERS:
        wrong: str | None = f"holds {len(infos)} files, a bundle has at most {MOST_MEMBERS}"
    elif count > 1:
        wrong = f"holds {name!r} more than once"
    elif sum(info.file_size for info in infos) > TOTAL_BYTES:
        wrong = f"would expand to more than {TOTAL_BYTES // 1024 // 1024} MiB"
    else:
        wrong = next(filter(None, map(_wrong_member, infos)), None)
    if wrong:
        raise ConfigError(f"{str(path)!r} {wrong}: it was not written by edgemeter")


def _is_gapless(file: BinaryIO, infos: Sequence[zipfile.ZipInfo]) -> bool:
    """Return whether the members fill the file from its first byte to the directory, which ends it, and their headers say what it says.

    Otherwise another zip program may show other files than this one.
    """
    at = 0
    for info in infos:
        header = info.FileHeader()
        file.seek(at)
        if info.header_offset != at or file.read(len(header)) != header:
            return False
        at += len(header) + info.compress_size
    directory_bytes = sum(_DIRECTORY_ENTRY_BYTES + len(info.filename) for info in infos)
    return file.seek(0, os.SEEK_END) == at + directory_bytes + _END_BYTES


def _wrong_member(info: zipfile.ZipInfo) -> str | None:
    if info.orig_filename != info.filename or not MEMBER_NAME.match(info.filename):
        return f"holds a file {info.orig_filename!r}, which no bundle has"
    if info.compress_type not in COMPRESSIONS or info.flag_bits & _ENCRYPTED:
        return f"holds {info.filename!r} encrypted, or compressed by a method that no bundle uses"
    if info.file_size > (samples.LIMIT_BYTES if info.filename.startswith("samples/") else TEXT_BYTES):
        return f"holds {info.filename!r} of {info.file_size} bytes, more than it can be"
    return None


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Return a member's content: never more than the checked size; its checksum is verified."""
    with archive.open(info) as member:
        content = member.read(info.file_size + 1)
    if len(content) != info.file_size:
        raise zipfile.BadZipFile(f"{info.filename} has {len(content)} bytes, its header states {info.file_size}")
    return content


@dataclass(frozen=True, slots=True)
class RunBundle:
    """A bundle whose parts fit together; `signature` and `signer_pem` are not verified yet."""

    manifest: RunManifest
    manifest_text: bytes
    record: RunRecord
    signature: bytes | None
    signer_pem: bytes | None


def read_bundle(path: Path) -> RunBundle:
    """Return the bundle in a file; raises ConfigError if it cannot be read, is damaged, or its parts do not fit together."""
    files = unpack(path)
    try:
        if MANIFEST_FILE not in files:
            raise ConfigError(f"it holds no {MANIFEST_FILE}")  # noqa: TRY301 - named with its bundle below
        manifest = decode_manifest(files[MANIFEST_FILE])
        _check_members(manifest, files)
        for name in (MANIFEST_FILE, RECORD, CASE):
            _check_keys(name, files.get(name, b"{}"))
        return RunBundle(manifest, files[MANIFEST_FILE], _record(manifest, files), files.get(SIGNATURE), files.get(SIGNER))
    except ConfigError as error:
        raise ConfigError(f"the bundle {str(path)!r} is damaged: {error}") from error


def _check_keys(name: str, text: bytes) -> None:
    """Refuse a name that stands twice in one object: some readers take the first, some the last."""
    try:
        parse_json(text.decode())
    except (ConfigError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name}: {error}: it was not written by edgemeter") from error


def _check_members(manifest: RunManifest, files: Mapping[str, bytes]) -> None:
    (twice, count), *_ = Counter(member.file for member in manifest.members).most_common(1) or [("", 0)]
    if count > 1:
        raise ConfigError(f"the manifest lists {twice!r} twice")
    listed = {member.file: member for member in manifest.members}
    for name in (RECORD, *listed):
        if name not in files or name not in listed:
            raise ConfigError(f"{name} is missing")
    for name, content in files.items():
        if name in UNLISTED:
            continue
        if name not in listed:
            raise ConfigError(f"{name} is not in the manifest")
        if len(content) != listed[name].size_bytes or hashlib.sha256(content).hexdigest() != listed[name].sha256:
            raise ConfigError(f"{name} does not match the manifest: its sha256 differs")


def _record(manifest: RunManifest, files: Mapping[str, bytes]) -> RunRecord:
    if split_samples(files[RECORD])[1] != NO_SAMPLES:
        raise ConfigError(f"{RECORD} holds samples of its own, beside those that the manifest lists")
    series = msgspec.json.encode([_series(described, files) for described in manifest.series])
    record = decode(join_samples(files[RECORD], series))
    if record.id != manifest.record:
        raise ConfigError(f"its record has the id {record.id!r}, the manifest states {manifest.record!r}")
    return record


def _series(described: SeriesFile, files: Mapping[str, bytes]) -> Series:
    content = files.get(described.file)
    if content is None or len(content) != described.count * np.dtype(described.dtype).itemsize:
        raise ConfigError(f"{described.file} does not hold the {described.count} values of {described.name!r} that the manifest states")
    data = base64.b64encode(zlib.compress(content, 1)).decode()
    return Series(name=described.name, unit=described.unit, dtype=described.dtype, count=described.count, data=data)
