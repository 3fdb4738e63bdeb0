"""Reads a bundle: everything in it is what its manifest says, or it is refused."""

import base64
import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from edgemeter.agent import record_parts, records
from edgemeter.agent.bundle import archive
from edgemeter.agent.bundle import manifest as contents
from edgemeter.agent.bundle.manifest import Manifest
from edgemeter.agent.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle whose parts fit together; `signature` and `signer_pem` are not looked at yet."""

    manifest: Manifest
    manifest_text: bytes
    record: records.RunRecord
    signature: bytes | None
    signer_pem: bytes | None


def read(path: Path) -> Bundle:
    """Return the bundle in a file.

    Raises:
        ConfigError: it cannot be read, is damaged, or its parts do not fit together.
    """
    files = archive.unpack(path)
    try:
        return _bundle(files)
    except ConfigError as error:
        message = f"the bundle {str(path)!r} is damaged: {error}"
        raise ConfigError(message) from error


def _bundle(files: Mapping[str, bytes]) -> Bundle:
    text = files.get(contents.MANIFEST)
    if text is None:
        message = f"it holds no {contents.MANIFEST}"
        raise ConfigError(message)
    manifest = contents.decode(text)
    _check_members(manifest, files)
    record = _record(manifest, files)
    return Bundle(manifest, text, record, files.get(contents.SIGNATURE), files.get(contents.SIGNER))


def _check_members(manifest: Manifest, files: Mapping[str, bytes]) -> None:
    listed = {member.file: member for member in manifest.members}
    for name in (contents.RECORD, *listed):
        if name not in files or name not in listed:
            message = f"{name} is missing"
            raise ConfigError(message)
    for name, content in files.items():
        if name in contents.UNLISTED:
            continue
        if name not in listed:
            message = f"{name} is not in the manifest"
            raise ConfigError(message)
        if len(content) != listed[name].size_bytes or hashlib.sha256(content).hexdigest() != listed[name].sha256:
            message = f"{name} is not what the manifest says: its sha256 differs"
            raise ConfigError(message)


def _record(manifest: Manifest, files: Mapping[str, bytes]) -> records.RunRecord:
    series = msgspec.json.encode([_series(one, files) for one in manifest.series])
    record = records.decode(record_parts.whole(files[contents.RECORD], series))
    if record.id != manifest.record:
        message = f"its record is {record.id!r}, its manifest's {manifest.record!r}"
        raise ConfigError(message)
    return record


def _series(one: contents.SeriesFile, files: Mapping[str, bytes]) -> records.Series:
    content = files.get(one.file)
    if content is None or len(content) != one.count * np.dtype(one.dtype).itemsize:
        message = f"{one.file} does not hold the {one.count} values of {one.name!r} that the manifest says"
        raise ConfigError(message)
    data = base64.b64encode(zlib.compress(content, 1)).decode()
    return records.Series(name=one.name, unit=one.unit, dtype=one.dtype, count=one.count, data=data)
