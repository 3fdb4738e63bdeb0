"""A bundle as `apply` offers it to devices: its manifest, its files on this machine, and whether it fits a device."""

import hashlib
import tempfile
import zipfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.errors import ConfigError, UnavailableError
from edgemeter.provisioning.apply.found import Found, Python
from edgemeter.provisioning.bundle import install
from edgemeter.provisioning.bundle.install import FileEntry, Manifest

OLDEST_PYTHON = (3, 10)


@dataclass(frozen=True, slots=True)
class Offer:
    """A bundle in a folder of this machine."""

    folder: Path
    manifest: Manifest
    sha256: str

    @property
    def glibc(self) -> tuple[int, int]:
        """The oldest glibc on which it runs."""
        major, _, minor = self.manifest.glibc.partition(".")
        return int(major), int(minor)

    @property
    def words(self) -> str:
        """Return the bundle in a few words."""
        manifest = self.manifest
        return f"{manifest.version} for {manifest.board} ({manifest.arch}, Python {manifest.python}, glibc >= {manifest.glibc})"

    def files(self) -> list[FileEntry]:
        """Return all files to copy: those of the manifest, the manifest and its signature."""
        return [*self.manifest.files, *(entry(self.folder, name) for name in (install.MANIFEST, install.SIGNATURE))]

    def unpacked_bytes(self) -> int:
        """Return the room that installing it takes below /opt: a second copy of its files, then what is in the wheels, compiled."""
        unpacked_bytes = 0
        for file in self.manifest.files:
            if file.path.endswith(".whl"):
                with zipfile.ZipFile(self.folder / file.path) as wheel:
                    unpacked_bytes += sum(part.file_size for part in wheel.infolist())
        copied_bytes = sum(file.size_bytes for file in self.manifest.files)
        return copied_bytes + int(unpacked_bytes * install.COMPILED_RATIO) + install.SPARE_BYTES


def entry(folder: Path, name: str) -> FileEntry:
    """Return a file of `folder` with its size and hash."""
    path = folder / name
    return FileEntry(name, sha256(path), path.stat().st_size)


def sha256(path: Path) -> str:
    """Return the hash of a file."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            found.update(piece)
    return found.hexdigest()


def read(path: Path, public_key: Path, scratch: Path) -> Offer:
    """Return the bundle in a folder or `.tar`, which is unpacked below `scratch`; signature and hashes are checked here already.

    Raises:
        ConfigError: it is none, is not signed by the fleet's release key, or a file of it is not as the manifest says.
    """
    if not public_key.is_file():
        message = f"the fleet has no release key ({str(public_key)!r} is not there): `edgemeter fleet init` makes one"
        raise ConfigError(message)
    try:
        bundle = install.Bundle(path)
        with closing(bundle):
            document, manifest = install.verify(bundle, public_key)
            install.verify_files(bundle, manifest)
            folder = path if path.is_dir() else _unpacked(bundle, manifest, Path(tempfile.mkdtemp(dir=scratch)))
    except install.RefusedError as error:
        message = f"bundle {str(path)!r}: {error}: `edgemeter fleet bundle` makes one"
        raise ConfigError(message) from error
    except OSError as error:
        message = f"cannot unpack the bundle {str(path)!r} in {str(scratch)!r}: {error.strerror}: make room there, or set TMPDIR"
        raise ConfigError(message) from error
    return Offer(folder, manifest, hashlib.sha256(document).hexdigest())


def _unpacked(bundle: install.Bundle, manifest: Manifest, folder: Path) -> Path:
    for file in manifest.files:
        target = folder / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as unpacked:
            bundle.copy(file, unpacked)
    for name, most_bytes in ((install.MANIFEST, install.MOST_MANIFEST_BYTES), (install.SIGNATURE, install.MOST_SIGNATURE_BYTES)):
        (folder / name).write_bytes(bundle.small(name, most_bytes))
    return folder


def choose(offers: Sequence[Offer], found: Found) -> tuple[Offer, Python]:
    """Return the newest fitting bundle, as they were given, and the interpreter that it is for.

    Raises:
        UnavailableError: none fits; the message says why, and what to build or bring.
    """
    for offer in offers:
        if offer.manifest.arch == found.arch and found.glibc is not None and found.glibc >= offer.glibc:
            for python in found.pythons:
                if python.version == offer.manifest.python:
                    return offer, python
    raise UnavailableError(_why_none(offers, found))


def _why_none(offers: Sequence[Offer], found: Found) -> str:
    given = "; ".join(offer.words for offer in offers)
    if found.glibc is None:
        return f"no bundle fits {found.words}: only systems with glibc are supported"
    if found.arch not in {"aarch64", "x86_64"}:
        return f"no bundle fits {found.words}: runtimes exist for 64-bit systems only: put a 64-bit system on it"
    if not any(tuple(map(int, python.version.split("."))) >= OLDEST_PYTHON for python in found.pythons):
        return (
            f"no Python >= 3.10 in {found.system}: bring one: --python-tar FILE, a relocatable CPython for {found.arch} "
            f"(python-build-standalone, `install_only`), with a bundle for its version and glibc <= {_dotted(found.glibc)}"
        )
    fitting = next((python for python in found.pythons if tuple(map(int, python.version.split("."))) >= OLDEST_PYTHON), None)
    wanted = f"`edgemeter fleet bundle` for {found.arch}, Python {fitting.version if fitting else '3.11'}, glibc <= {_dotted(found.glibc)}"
    return f"no bundle given fits {found.words} (given: {given}): build one: {wanted}"


def _dotted(glibc: tuple[int, int]) -> str:
    return f"{glibc[0]}.{glibc[1]}"
