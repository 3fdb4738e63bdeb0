"""The files that `edgemeter fleet apply` offers to devices: releases, and a Python for boards whose own is too old."""

import hashlib
import re
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.provisioning.apply.board import ExaminedBoard, Interpreter
from edgemeter.provisioning.apply.ssh import FileToCopy
from edgemeter.provisioning.release import install
from edgemeter.provisioning.release.install import FileEntry, Manifest
from edgemeter.provisioning.release.manifest import read_release

OLDEST_PYTHON = (3, 10)
UNPACK = Path(__file__).with_name("unpack_python.sh")


@dataclass(frozen=True, slots=True)
class Offer:
    """A verified release in a folder of this machine."""

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
        """A short description."""
        manifest = self.manifest
        return f"{manifest.version} for {manifest.board} ({manifest.arch}, Python {manifest.python}, glibc >= {manifest.glibc})"

    def files(self) -> list[FileEntry]:
        """Return all files to copy: those of the manifest, the manifest and its signature, if it has one."""
        signed = (path for name in (install.MANIFEST, install.SIGNATURE) if (path := self.folder / name).exists())
        return [*self.manifest.files, *(FileEntry(path.name, install.sha256(path), path.stat().st_size) for path in signed)]

    def unpacked_bytes(self) -> int:
        """Return the space that an installation takes below /opt: a second copy of the files, and the contents of the wheels, compiled."""
        unpacked_bytes = 0
        for file in self.manifest.files:
            if file.path.endswith(".whl"):
                with zipfile.ZipFile(self.folder / file.path) as wheel:
                    unpacked_bytes += sum(part.file_size for part in wheel.infolist())
        copied_bytes = sum(file.size_bytes for file in self.manifest.files)
        return copied_bytes + int(unpacked_bytes * install.COMPILED_RATIO) + install.SPARE_BYTES


def read_offer(path: Path, public_key: Path, scratch: Path) -> Offer:
    """Return the release in a folder or `.tar`, which is unpacked below `scratch`, verified; raises ConfigError as `read_release`."""
    if not public_key.is_file():
        raise ConfigError(f"the fleet has no release key {str(public_key)!r}: `edgemeter fleet init` makes one")
    verified = read_release(path, public_key)
    folder = path
    if not path.is_dir():
        folder = Path(tempfile.mkdtemp(dir=scratch))
        verified.unpack(folder)
    return Offer(folder, verified.manifest, hashlib.sha256(verified.document).hexdigest())


def further_wheel(path: Path) -> FileToCopy:
    """Return a wheel that is installed beside a release; raises ConfigError if it is none."""
    if path.suffix != ".whl" or not zipfile.is_zipfile(path):
        raise ConfigError(f"{str(path)!r} is not a wheel: give a .whl for the board's Python and processor (--with)")
    return FileToCopy(path, f"with/{path.name}", install.sha256(path), path.stat().st_size)


def choose_offer(offers: Sequence[Offer], board: ExaminedBoard) -> tuple[Offer, Interpreter]:
    """Return the first release that fits, and the interpreter for it; raises UnavailableError, with why and what to build, if none does."""
    for offer in offers:
        if offer.manifest.arch == board.arch and board.glibc is not None and board.glibc >= offer.glibc:
            for python in board.pythons:
                if python.version == offer.manifest.python:
                    return offer, python
    raise UnavailableError(_why_none(offers, board))


def _why_none(offers: Sequence[Offer], board: ExaminedBoard) -> str:
    if board.glibc is None:
        return f"no release fits {board.words}: only systems with glibc are supported"
    if board.arch not in {"aarch64", "x86_64"}:
        return f"no release fits {board.words}, because runtimes exist for 64-bit systems only: install one"
    glibc = f"glibc <= {board.glibc[0]}.{board.glibc[1]}"
    usable = next((python.version for python in board.pythons if tuple(map(int, python.version.split("."))) >= OLDEST_PYTHON), None)
    if usable is None:
        return (
            f"no Python >= 3.10 in {board.system}: install one with --python-tar FILE, a relocatable CPython for {board.arch} "
            f"(python-build-standalone, `install_only`), and give a release for its version and {glibc}"
        )
    offered = "; ".join(offer.words for offer in offers)
    remedy = f"`edgemeter fleet release build` for {board.arch}, Python {usable}, {glibc}"
    return f"no given release fits {board.words} (given: {offered}); build one with {remedy}"


@dataclass(frozen=True, slots=True)
class PythonTar:
    """A relocatable CPython in a tar, as python-build-standalone makes them."""

    path: Path
    version: str
    sha256: str
    unpacked_bytes: int

    def folder(self, prefix: str) -> str:
        """Return its folder on the device, which is never replaced: virtual environments point there."""
        return f"{prefix}/opt/edgemeter/pythons/{self.version}-{self.sha256[:16]}"


def read_python_tar(path: Path) -> PythonTar:
    """Return the Python in a tar; raises ConfigError if it cannot be read, or holds no `python/bin/python3.N`."""
    version, unpacked_bytes = None, 0
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                unpacked_bytes += member.size
                match = re.fullmatch(r"[^/]+/bin/python(3\.\d+)", str(PurePosixPath(member.name)))
                version = match[1] if match else version
        sha256 = install.sha256(path)
    except (OSError, tarfile.TarError, EOFError) as error:
        raise ConfigError(
            f"cannot read {str(path)!r} as a tar: {error}: give a relocatable CPython (python-build-standalone, `install_only`)"
        ) from error
    if version is None:
        raise ConfigError(
            f"{str(path)!r} holds no python/bin/python3.N: give a relocatable CPython (python-build-standalone, `install_only`)"
        )
    return PythonTar(path, version, sha256, unpacked_bytes)
