"""The manifest of a release: read, verify, sign and pack one; the device does the same with `install.py` alone."""

import json
import tarfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.base.durable_file import replacing, sha256_of
from edgemeter.agent.base.errors import ConfigError, UnavailableError, os_error_as
from edgemeter.agent.base.openssl import run_openssl
from edgemeter.provisioning.release import install
from edgemeter.provisioning.release.install import MANIFEST, SIGNATURE, FileEntry, Manifest

SCHEMA = 1
# First in the tar: a device decides by these.
FIRST = (MANIFEST, SIGNATURE)


def sign(document: bytes, key: Path) -> bytes:
    """Return the signature in DER; raises ConfigError without such a key, or for another kind, or without openssl."""
    if not key.is_file():
        raise ConfigError(f"there is no release key {str(key)!r} to sign the release with: `edgemeter fleet init` makes one")
    try:
        facts = run_openssl("pkey", "-in", str(key), "-noout", "-text")
        if b"prime256v1" not in facts:
            raise ConfigError(f"the release key {str(key)!r} is not an ECDSA key on P-256: `edgemeter fleet init` makes one")
        return run_openssl("dgst", "-sha256", "-sign", str(key), document=document)
    except UnavailableError as error:
        raise ConfigError(f"cannot sign by the release key {str(key)!r}, which is PEM without a passphrase: {error}") from error


@dataclass(frozen=True, slots=True)
class VerifiedRelease:
    """A release with valid signature and files: its manifest, parsed and as the signed bytes."""

    path: Path
    manifest: Manifest
    document: bytes


def read_release(path: Path, public_key: Path | None) -> VerifiedRelease:
    """Return the release in a `.tar`, verified; without a key only its files are, and nobody vouches for it.

    Raises ConfigError if it is none, not signed by the key, or altered.
    """
    if public_key is not None and not public_key.is_file():
        raise ConfigError(
            f"there is no release key {str(public_key)!r} to verify the release with: name the fleet's folder with --folder; "
            "`edgemeter fleet init` makes both"
        )
    try:
        with closing(install.UnverifiedRelease(path)) as source:
            document, manifest = source.manifest(public_key)
            for entry in manifest.files:
                source.copy(entry, None)
    except install.RefusedError as error:
        raise ConfigError(str(error)) from error
    return VerifiedRelease(path, manifest, document)


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the bytes that are signed, equal for equal manifests; raises ConfigError if installers do not accept a field."""
    fields = {**manifest._asdict(), "schema": SCHEMA, "name": "edgemeter", "files": [file._asdict() for file in manifest.files]}
    document = (json.dumps(fields, indent=1, sort_keys=True) + "\n").encode()
    try:
        install.parse_manifest(document)
    except install.RefusedError as error:
        raise ConfigError(str(error)) from error
    return document


def file_entries(folder: Path) -> tuple[FileEntry, ...]:
    """Return the files below `folder` as a manifest lists them, by name."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    names = [(path, path.relative_to(folder).as_posix()) for path in paths]
    return tuple(FileEntry(name, sha256_of(path), path.stat().st_size) for path, name in names if name not in FIRST)


def pack_release(folder: Path, target: Path) -> None:
    """Write a release as an uncompressed tar, whole or not at all, equal files as equal bytes; raises ConfigError if that fails."""
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    with (
        os_error_as(ConfigError, f"cannot write the release {str(target)!r}", "choose another file, or make room"),
        replacing(target, 0o644) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        for name in sorted(names, key=lambda name: (name not in FIRST, name)):
            # No time and no owner: the bytes depend on the contents only.
            info = tarfile.TarInfo(name)
            info.size, info.mode = (folder / name).stat().st_size, 0o644
            with (folder / name).open("rb") as content:
                tar.addfile(info, content)
