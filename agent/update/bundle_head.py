"""The head of a bundle, its signed manifest: which version it is, and whether it fits this device."""

import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import msgspec

from edgemeter.agent.errors import ConfigError, UnavailableError
from edgemeter.agent.update.place import Release

LARGEST_MANIFEST_BYTES, LARGEST_SIGNATURE_BYTES = 1 << 20, 1 << 10
OPENSSL_TIMEOUT_S = 60.0


class FileEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of the bundle; the installer looks at it."""

    path: str
    sha256: str
    size_bytes: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `manifest.json` says."""

    schema: int
    name: str
    version: str
    board: str
    arch: str
    python: str
    glibc: str
    files: tuple[FileEntry, ...]
    checked: str
    built_ns: int


def read(bundle: Path, release: Release) -> Manifest:
    """Return the manifest of the bundle once its signature is found right.

    Raises:
        ConfigError: it is no bundle, or not signed by the key of this device's fleet.
        UnavailableError: the key or openssl is not here.
    """
    document, signature = _parts(bundle)
    _verify(bundle, document, signature, release.public_key)
    try:
        return msgspec.json.decode(document, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        message = f"the manifest of {bundle.name!r} has another form than this agent knows ({error}): build the bundle anew"
        raise ConfigError(message) from error


def refuse_unfit(manifest: Manifest, root: Path) -> None:
    """Find out whether it runs here.

    Raises:
        ConfigError: it is for another processor, another Python or a newer C library.
    """
    if manifest.arch != platform.machine():
        message = f"the bundle is for {manifest.arch}, this device is {platform.machine()}: order the bundle for it"
        raise ConfigError(message)
    has_python = f"{sys.version_info.major}.{sys.version_info.minor}" == manifest.python or shutil.which(f"python{manifest.python}")
    if not has_python and not any(root.glob(f"pythons/*/bin/python{manifest.python}")):
        message = f"the bundle is for Python {manifest.python}, this device has {platform.python_version()}: order the bundle for it"
        raise ConfigError(message)
    library, version = platform.libc_ver()
    if library != "glibc" or _numbers(version) < _numbers(manifest.glibc):
        message = f"the bundle needs glibc {manifest.glibc}, this device has {version or 'none'}: order the bundle for it"
        raise ConfigError(message)


def _parts(bundle: Path) -> tuple[bytes, bytes]:
    found: dict[str, bytes] = {}
    wanted = {"manifest.json": LARGEST_MANIFEST_BYTES, "manifest.sig": LARGEST_SIGNATURE_BYTES}
    try:
        with tarfile.open(bundle, "r:") as tar:
            for member in tar:
                file = tar.extractfile(member) if member.isreg() and member.name in wanted and member.name not in found else None
                if file is not None:
                    found[member.name] = file.read(wanted[member.name] + 1)
    except (OSError, tarfile.TarError, ValueError, EOFError) as error:
        message = f"{bundle.name!r} is no bundle ({error}): order one that `edgemeter fleet bundle` has made"
        raise ConfigError(message) from error
    for name, most_bytes in wanted.items():
        if not 0 < len(found.get(name, b"")) <= most_bytes:
            message = f"{bundle.name!r} is no bundle (no usable {name}): order one that `edgemeter fleet bundle` has made"
            raise ConfigError(message)
    return found["manifest.json"], found["manifest.sig"]


def _verify(bundle: Path, document: bytes, signature: bytes, public_key: Path) -> None:
    with tempfile.NamedTemporaryFile(prefix="edgemeter-") as file:
        file.write(signature)
        file.flush()
        command = ["openssl", "dgst", "-sha256", "-verify", str(public_key), "-signature", file.name]
        try:
            done = subprocess.run(command, input=document, capture_output=True, timeout=OPENSSL_TIMEOUT_S, check=False)
        except (OSError, subprocess.SubprocessError) as error:
            message = f"cannot check the bundle's signature by openssl ({error}): install the package openssl"
            raise UnavailableError(message) from error
    if not public_key.is_file():
        message = f"there is no key {str(public_key)!r} to check bundles by: apply the fleet to this device again"
        raise UnavailableError(message)
    if done.returncode != 0:
        message = f"the bundle {bundle.name!r} is not signed by this device's fleet ({str(public_key)!r}): nothing of it is used"
        raise ConfigError(message)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
