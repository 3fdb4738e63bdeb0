"""What a bundle says of itself, and the way to read, verify and pack one; the device does the same with `install.py` alone."""

import json
import tarfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.errors import ConfigError
from edgemeter.provisioning.bundle import install
from edgemeter.provisioning.bundle.install import MANIFEST, SIGNATURE, FileEntry, Manifest

SCHEMA = 1
# The order in which a device wants them: what decides comes first.
FIRST = (MANIFEST, SIGNATURE)


@dataclass(frozen=True, slots=True)
class Verified:
    """A bundle whose signature and files are right: its manifest, parsed and as the bytes that were signed."""

    path: Path
    manifest: Manifest
    document: bytes

    @property
    def size_bytes(self) -> int:
        """The size of all its files."""
        return sum(file.size_bytes for file in self.manifest.files)

    def unpack(self, folder: Path) -> None:
        """Write all files below `folder`, each checked while it is written.

        Raises:
            ConfigError: a file changed since it was verified, or cannot be written.
        """
        try:
            with closing(install.Bundle(self.path)) as bundle:
                for entry in self.manifest.files:
                    target = folder / entry.path
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with target.open("wb") as file:
                        bundle.copy(entry, file)
                (folder / SIGNATURE).write_bytes(bundle.small(SIGNATURE, install.MOST_SIGNATURE_BYTES))
                (folder / MANIFEST).write_bytes(self.document)
        except install.RefusedError as error:
            raise ConfigError(str(error)) from error
        except OSError as error:
            message = f"cannot unpack the bundle {str(self.path)!r} in {str(folder)!r}: {error.strerror}"
            raise ConfigError(message) from error


def read(path: Path, public_key: Path) -> Verified:
    """Return the bundle in a folder or `.tar` once its signature and every file are found right.

    Raises:
        ConfigError: it is none, is not signed by the key, or differs from its manifest.
    """
    try:
        with closing(install.Bundle(path)) as bundle:
            document, manifest = install.verify(bundle, public_key)
            install.verify_files(bundle, manifest)
    except install.RefusedError as error:
        raise ConfigError(str(error)) from error
    return Verified(path, manifest, document)


def encode(manifest: Manifest) -> bytes:
    """Return the text that is signed; the same manifest gives the same bytes.

    Raises:
        ConfigError: a field does not have the form that installers take.
    """
    said = {**manifest._asdict(), "schema": SCHEMA, "name": "edgemeter", "files": [file._asdict() for file in manifest.files]}
    document = (json.dumps(said, indent=1, sort_keys=True) + "\n").encode()
    try:
        install.parse_manifest(document)
    except install.RefusedError as error:
        raise ConfigError(str(error)) from error
    return document


def entries(folder: Path) -> tuple[FileEntry, ...]:
    """Return the files below `folder` as a manifest lists them, by name."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    names = [(path, path.relative_to(folder).as_posix()) for path in found]
    return tuple(FileEntry(name, install.sha256(path), path.stat().st_size) for path, name in names if name not in FIRST)


def pack(folder: Path, target: Path) -> None:
    """Write a bundle's files as one uncompressed tar; the same files give the same bytes. It is there whole or not at all.

    Raises:
        ConfigError: it cannot be written.
    """
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    part = target.with_name(f".{target.name}.part")
    try:
        with part.open("wb") as file, tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for name in sorted(names, key=lambda name: (name not in FIRST, name)):
                _add(tar, name, folder / name)
        part.replace(target)
    except OSError as error:
        part.unlink(missing_ok=True)
        message = f"cannot write the bundle {str(target)!r}: {error.strerror}: name another file, or make room"
        raise ConfigError(message) from error


def _add(tar: tarfile.TarFile, name: str, path: Path) -> None:
    with path.open("rb") as file:
        tar.addfile(_info(name, path.stat().st_size), file)


def _info(name: str, size_bytes: int) -> tarfile.TarInfo:
    # No time, no owner: what is in the bundle decides its bytes.
    info = tarfile.TarInfo(name)
    info.size = size_bytes
    info.mode = 0o644
    return info
