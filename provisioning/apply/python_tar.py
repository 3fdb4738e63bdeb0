"""A Python that is brought to a board whose own is too old: a relocatable CPython in a tar, as python-build-standalone makes them."""

import re
import tarfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from edgemeter.agent.errors import ConfigError
from edgemeter.provisioning.apply import offer

# Unpacks $1 into $2, whole or not at all; what an interruption left is removed.
_UNPACK = b"""
set -e
[ -x "$2/bin/python3" ] && exit 0
rm -rf "$2.new"; mkdir -p "$2.new"
tar -xf "$1" -C "$2.new" --strip-components=1 --no-same-owner
"$2.new/bin/python3" -c 'import ssl, venv'
sync; mv "$2.new" "$2"
"""


@dataclass(frozen=True, slots=True)
class PythonTar:
    """A Python in a tar: its version, its hash, and the room it takes."""

    path: Path
    version: str
    sha256: str
    unpacked_bytes: int
    unpack: bytes = _UNPACK

    def folder(self, prefix: str) -> str:
        """Return where it stands on the device: never replaced, for virtual environments point there."""
        return f"{prefix}/opt/edgemeter/pythons/{self.version}-{self.sha256[:16]}"

    def place(self, prefix: str) -> str:
        """Return its interpreter on the device."""
        return f"{self.folder(prefix)}/bin/python3"


def read(path: Path) -> PythonTar:
    """Return the Python in a tar.

    Raises:
        ConfigError: it cannot be read, or holds no `python/bin/python3.N`.
    """
    version, unpacked_bytes = None, 0
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                unpacked_bytes += member.size
                said = re.fullmatch(r"[^/]+/bin/python(3\.\d+)", str(PurePosixPath(member.name)))
                version = said[1] if said else version
        sha256 = offer.sha256(path)
    except (OSError, tarfile.TarError, EOFError) as error:
        message = f"cannot read {str(path)!r} as a tar: {error}: give a relocatable CPython (python-build-standalone, `install_only`)"
        raise ConfigError(message) from error
    if version is None:
        message = f"{str(path)!r} holds no python/bin/python3.N: give a relocatable CPython (python-build-standalone, `install_only`)"
        raise ConfigError(message)
    return PythonTar(path, version, sha256, unpacked_bytes)
