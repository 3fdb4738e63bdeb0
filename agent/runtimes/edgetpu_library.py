"""Which libedgetpu is loaded: its version, and whether it drives a USB Coral at the standard or at the maximum clock.

The two builds carry the same file name and version. Debian's packages tell them apart (libedgetpu1-std, libedgetpu1-max), so do the folders
of Google's zip (throttled, direct); else the build does: only the throttled one holds the sentence "EdgeTpu is throttled."
On PCIe both run at the maximum clock.
Source: https://github.com/google-coral/libedgetpu (debian/rules, Makefile, tflite/edgetpu_manager_direct.cc, tflite/public/edgetpu_c.h).
"""

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgemeter.agent.errors import UnavailableError
from edgemeter.agent.runtimes.library import one_line

Clock = Literal["std", "max"]

_PACKAGES: dict[str, Clock] = {"libedgetpu1-std": "std", "libedgetpu1-max": "max"}
_FOLDERS: dict[str, Clock] = {"throttled": "std", "direct": "max"}
_THROTTLED = b"EdgeTpu is throttled."
# A build that keeps its log's words holds this one at either clock; without it, the absence of the other says nothing.
_LOGS = b"Performance expectation: "
_ENTRY = "tflite_plugin_create_delegate"


@dataclass(frozen=True, slots=True)
class EdgeTpuLibrary:
    """The loaded library. `clock` is None where nothing tells it, `package` where no Debian package holds the file."""

    clock: Clock | None
    package: str | None
    version: str | None


def load(name: str, root: Path) -> EdgeTpuLibrary:
    """Load the library into this process, and return what it is; `root` is where var/lib/dpkg lies.

    Raises:
        UnavailableError: it is not installed, cannot be loaded, or is no Edge TPU library.
    """
    try:
        handle = ctypes.CDLL(name)
    except OSError as error:
        message = (
            f"{name} cannot be loaded: {one_line(error)}; install Coral's package libedgetpu1-std, or libedgetpu1-max for the full clock"
        )
        raise UnavailableError(message) from error
    if not hasattr(handle, _ENTRY):
        message = f"{name} is no Edge TPU library: it lacks {_ENTRY}; install Coral's package libedgetpu1-std"
        raise UnavailableError(message)
    path = _path(name)
    package = _package(path, root) if path else None
    return EdgeTpuLibrary(_clock(path, package), _with_version(package, root), _version(handle))


def _version(handle: ctypes.CDLL) -> str | None:
    """Return what the library says of its build, such as `BuildLabel(N/A), RuntimeVersion(14)`."""
    if not hasattr(handle, "edgetpu_version"):
        return None
    handle.edgetpu_version.restype = ctypes.c_char_p
    said = handle.edgetpu_version()
    return said.decode(errors="replace") if said else None


def _path(name: str) -> Path | None:
    """Return the file that the loader took, links followed; only the process's own memory map tells which of several it was."""
    stem = Path(name).name.partition(".so")[0]
    for line in Path("/proc/self/maps").read_text(errors="replace").splitlines():
        mapped = line.partition("/")[2]
        if Path(mapped).name.startswith(f"{stem}.so"):
            return Path("/") / mapped
    return None


def _package(path: Path, root: Path) -> str | None:
    """Return the Debian package that installed this file."""
    for name in _PACKAGES:
        for listing in sorted((root / "var/lib/dpkg/info").glob(f"{name}*.list")):
            if any(Path(line).name == path.name and Path(line).resolve() == path for line in _text(listing).splitlines()):
                return name
    return None


def _with_version(package: str | None, root: Path) -> str | None:
    if package is None:
        return None
    for stanza in _text(root / "var/lib/dpkg/status").split("\n\n"):
        fields = dict(line.partition(": ")[::2] for line in stanza.splitlines() if not line.startswith(" "))
        if fields.get("Package") == package and "Version" in fields:
            return f"{package} {fields['Version']}"
    return package


def _clock(path: Path | None, package: str | None) -> Clock | None:
    if package is not None:
        return _PACKAGES[package]
    if path is None:
        return None
    folder = next((part for part in reversed(path.parts[:-1]) if part in _FOLDERS), None)
    if folder is not None:
        return _FOLDERS[folder]
    try:
        content = path.read_bytes()
    except OSError:
        return None
    if _THROTTLED in content:
        return "std"
    return "max" if _LOGS in content else None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
