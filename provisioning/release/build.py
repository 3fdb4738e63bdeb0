"""Build a release: collect its files, write and sign the manifest."""

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from edgemeter.agent.base.errors import ConfigError, os_error_as
from edgemeter.agent.base.openssl import run_openssl
from edgemeter.provisioning.release import install, manifest, wheels
from edgemeter.provisioning.release.boards import ReleaseTarget
from edgemeter.provisioning.release.install import KEYS, MANIFEST, SIGNATURE, FileEntry, Manifest
from edgemeter.provisioning.release.manifest import sign
from edgemeter.provisioning.release.wheels import make_own_wheel

# The files of a release beside the wheels.
SCRIPTS = ("install.py", "supervisor.py")
UNIT_SUFFIXES = (".service", ".rules")


@dataclass(frozen=True, slots=True)
class ReleaseRequest:
    """A requested release: its target and extras, the key that signs it, and our wheel, by default made of what is installed here.

    Without a `key` it is not signed. `public_keys` are those that devices trust from it on, the key's own among them; None: as before.
    `further` are wheels that no index has, such as a maker's runtime for its accelerator.
    """

    target: ReleaseTarget
    extras: tuple[str, ...]
    key: Path | None
    wheel: Path | None = None
    public_keys: Path | None = None
    further: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class BuiltRelease:
    """A built release: its file and manifest."""

    path: Path
    manifest: Manifest


def build_release(request: ReleaseRequest, out: Path | None, report: Callable[[str], None]) -> BuiltRelease:
    """Build a release; `out` is its file, by default in the current folder with a name of version and board.

    Raises:
        ConfigError: wheels are missing, devices will not trust the key, or the file cannot be written.
        UnavailableError: pip, the index or openssl cannot be reached.
    """
    if request.public_keys is not None:
        _check_keys(request.public_keys, request.key)
    with tempfile.TemporaryDirectory(prefix="edgemeter-release-") as scratch:
        folder = Path(scratch) / "release"
        (folder / "wheels").mkdir(parents=True)
        report("making edgemeter's wheel" if request.wheel is None else f"using {request.wheel.name}")
        wheel = make_own_wheel(Path(scratch)) if request.wheel is None else _checked_wheel(request.wheel)
        report(f"collecting wheels for {request.target.words}")
        wheels.collect_wheels(wheel, request.extras, request.target, folder / "wheels", request.further)
        add_scripts(folder)
        if request.public_keys is not None:
            shutil.copyfile(request.public_keys, folder / KEYS)
        own_version = next((folder / "wheels").glob("edgemeter-*.whl")).name.split("-")[1]
        sealed = seal_release(request, folder, release_version(own_version, manifest.file_entries(folder)))
        path = out or Path(f"edgemeter-{sealed.version}-{sealed.board}-py{sealed.python.replace('.', '')}.tar")
        manifest.pack_release(folder, path)
        return BuiltRelease(path, sealed)


def _check_keys(public_keys: Path, key: Path | None) -> None:
    with os_error_as(ConfigError, f"cannot read the release keys {str(public_keys)!r}", "`edgemeter fleet init` makes them"):
        trusted = install.public_keys(public_keys.read_bytes())
    if key is not None and run_openssl("pkey", "-in", str(key), "-pubout").strip() not in {pem.strip() for pem in trusted}:
        raise ConfigError(f"the public key of {str(key)!r} is not in {str(public_keys)!r}: no device would take what it signs")


def _checked_wheel(wheel: Path) -> Path:
    if not (wheel.is_file() and wheel.name.startswith("edgemeter-") and wheel.name.endswith(".whl")):
        raise ConfigError(f"{str(wheel)!r} is not a wheel of edgemeter: omit --wheel to use the installed version")
    return wheel


def add_scripts(folder: Path) -> None:
    """Put the installer, the supervisor and the units into the folder of a release."""
    for name in SCRIPTS:
        (folder / name).write_bytes(files(__package__).joinpath(name).read_bytes())
    (folder / "units").mkdir()
    for unit in files("edgemeter.provisioning").joinpath("units").iterdir():
        if unit.name.endswith(UNIT_SUFFIXES):
            (folder / "units" / unit.name).write_bytes(unit.read_bytes())


def seal_release(request: ReleaseRequest, folder: Path, version: str) -> Manifest:
    """Write manifest and signature into the folder of a release's files."""
    target, epoch_s = request.target, os.environ.get("SOURCE_DATE_EPOCH", "")
    sealed = Manifest(
        version=version,
        board=target.board,
        arch=target.arch,
        python=target.python_text,
        glibc=target.glibc_text,
        files=manifest.file_entries(folder),
        built_ns=int(epoch_s) * 10**9 if epoch_s.isdecimal() else time.time_ns(),
    )
    document = manifest.encode_manifest(sealed)
    (folder / MANIFEST).write_bytes(document)
    if request.key is not None:
        (folder / SIGNATURE).write_bytes(sign(document, request.key))
    return sealed


def release_version(own_version: str, entries: Sequence[FileEntry]) -> str:
    """Return edgemeter's version with 8 digits of the hash of the contents: with another runtime it is another release."""
    listed = "".join(f"{file.path} {file.sha256}\n" for file in entries)
    return f"{own_version}{'.' if '+' in own_version else '+'}{hashlib.sha256(listed.encode()).hexdigest()[:8]}"
