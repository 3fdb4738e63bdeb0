"""Build a release (collect its files, test-import them, write and sign the manifest), and check a built one."""

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Literal

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.release import additions, boards, manifest, smoke, wheels
from edgemeter.provisioning.release.additions import AddedFile
from edgemeter.provisioning.release.boards import ReleaseTarget
from edgemeter.provisioning.release.install import KEYS, MANIFEST, SIGNATURE, FileEntry, Manifest
from edgemeter.provisioning.release.manifest import VerifiedRelease, sign
from edgemeter.provisioning.release.smoke import ImportCheck
from edgemeter.provisioning.release.wheels import make_own_wheel

# The files of a release beside the wheels, and their packages.
SCRIPTS = {"install.py": "edgemeter.provisioning.release", "supervisor.py": "edgemeter.provisioning.update"}
UNIT_SUFFIXES = (".service", ".rules")


@dataclass(frozen=True, slots=True)
class ReleaseRequest:
    """A requested release: its target and extras, the key that signs it, our wheel, and the arm64 system to test it in.

    `wheels` of others are preferred to those of the index, `find_links` and `indexes` are further places to find some, `packages` are
    Debian packages and hooks for the system; with `site_packages` of the system, the release sees the system's Python packages too.
    Without a `key` it is not signed. `public_keys` are those that devices trust from it on; None: as before.
    """

    target: ReleaseTarget
    extras: tuple[str, ...]
    key: Path | None
    wheel: Path | None = None
    root: Path | None = None
    wheels: tuple[AddedFile, ...] = ()
    find_links: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()
    packages: tuple[AddedFile, ...] = ()
    site_packages: Literal["own", "system"] = "own"
    public_keys: Path | None = None


@dataclass(frozen=True, slots=True)
class BuiltRelease:
    """A built release, and what its runtimes use besides the CPU; after a dry run there is no file."""

    path: Path
    manifest: Manifest
    size_bytes: int
    accelerators: tuple[str, ...]


def build_release(request: ReleaseRequest, out: Path | None, report: Callable[[str], None], *, is_dry: bool = False) -> BuiltRelease:
    """Build a release; `out` is its file, by default in the current folder with a name of version and board; a dry run writes none.

    Raises:
        ConfigError: wheels are missing, one crashes on the board's processor, or the file cannot be written.
        UnavailableError: pip, the index or openssl cannot be reached.
    """
    for added in request.wheels:
        if not added.is_requirement:
            additions.check_wheel_name(added.name, request.target)
    with tempfile.TemporaryDirectory(prefix="edgemeter-release-") as scratch:
        folder = Path(scratch) / "release"
        (folder / "wheels").mkdir(parents=True)
        packages = additions.add_packages(request.packages, request.target, folder, request.root)
        further = {added.project: added.requirement() for added in request.wheels}
        if interpreter := additions.interpreter_for(packages, [added.project for added in request.wheels]):
            further[interpreter.partition("==")[0]] = interpreter
        report("making edgemeter's wheel" if request.wheel is None else f"using {request.wheel.name}")
        wheel = make_own_wheel(Path(scratch)) if request.wheel is None else _checked_wheel(request.wheel)
        report(f"collecting wheels for {request.target.words}")
        wheels.collect_wheels(wheel, request.extras, request.target, folder / "wheels", further, request.find_links, request.indexes)
        additions.refuse_clashes(folder / "wheels")
        add_scripts(folder)
        if request.public_keys is not None:
            shutil.copyfile(request.public_keys, folder / KEYS)
        report("importing every native package as on the board")
        checked = smoke.check_imports(folder / "wheels", request.target.arch, request.target.python_text, request.target.core, request.root)
        smoke.refuse_dead(checked)
        return _seal(request, folder, checked.words, out, is_dry=is_dry)


def seal_release(request: ReleaseRequest, folder: Path, checked: str, version: str) -> Manifest:
    """Write manifest and signature into the folder of a release's files."""
    target, epoch_s = request.target, os.environ.get("SOURCE_DATE_EPOCH", "")
    sealed = Manifest(
        version=version,
        board=target.board,
        arch=target.arch,
        python=target.python_text,
        glibc=target.glibc_text,
        files=manifest.file_entries(folder),
        checked=checked,
        built_ns=int(epoch_s) * 10**9 if epoch_s.isdecimal() else time.time_ns(),
        site_packages=request.site_packages,
    )
    document = manifest.encode_manifest(sealed)
    (folder / MANIFEST).write_bytes(document)
    if request.key is not None:
        (folder / SIGNATURE).write_bytes(sign(document, request.key))
    return sealed


def add_scripts(folder: Path) -> None:
    """Put the installer, the supervisor and the units into the folder of a release."""
    for name, package in SCRIPTS.items():
        with as_file(files(package).joinpath(name)) as source:
            shutil.copyfile(source, folder / name)
    (folder / "units").mkdir()
    for unit in files("edgemeter.provisioning").joinpath("units").iterdir():
        if unit.name.endswith(UNIT_SUFFIXES):
            (folder / "units" / unit.name).write_bytes(unit.read_bytes())


def release_version(own_version: str, entries: Sequence[FileEntry], site_packages: str = "own") -> str:
    """Return edgemeter's version with 8 digits of the hash of the contents: with another runtime it is another release."""
    listed = "".join(f"{file.path} {file.sha256}\n" for file in entries) + ("" if site_packages == "own" else site_packages)
    return f"{own_version}{'.' if '+' in own_version else '+'}{hashlib.sha256(listed.encode()).hexdigest()[:8]}"


def _seal(request: ReleaseRequest, folder: Path, checked: str, out: Path | None, *, is_dry: bool) -> BuiltRelease:
    own_version = next((folder / "wheels").glob("edgemeter-*.whl")).name.split("-")[1]
    accelerators = additions.accelerators(folder)
    sealed = seal_release(request, folder, checked, release_version(own_version, manifest.file_entries(folder), request.site_packages))
    path = out or Path(f"edgemeter-{sealed.version}-{sealed.board}-py{sealed.python.replace('.', '')}.tar")
    if is_dry and not path.parent.is_dir():
        raise ConfigError(
            f"cannot write the release {str(path)!r}: there is no folder {str(path.parent)!r}: choose another file, or make it"
        )
    packed = folder.with_suffix(".tar") if is_dry else path
    manifest.pack_release(folder, packed)
    return BuiltRelease(path, sealed, packed.stat().st_size, accelerators)


def _checked_wheel(wheel: Path) -> Path:
    if not (wheel.is_file() and wheel.name.startswith("edgemeter-") and wheel.name.endswith(".whl")):
        raise ConfigError(f"{str(wheel)!r} is not a wheel of edgemeter: omit --wheel to use the installed version")
    return wheel


def sign_release(path: Path, key: Path, out: Path | None) -> Path:
    """Sign a release, perhaps anew; return its file, by default the same one. Raises ConfigError as `unsigned_release` and `sign`."""
    with tempfile.TemporaryDirectory(prefix="edgemeter-release-") as scratch:
        unsigned = manifest.unsigned_release(path)
        folder = Path(scratch) / "release"
        unsigned.unpack(folder)
        (folder / SIGNATURE).write_bytes(sign(unsigned.document, key))
        manifest.pack_release(folder, out or path)
    return out or path


def check_release(path: Path, public_key: Path, board: str | None, root: Path | None) -> tuple[VerifiedRelease, ImportCheck]:
    """Return the verified release, and what imports on `board`, else its own; raises as `read_release`, `find_board`, `check_imports`."""
    verified = manifest.read_release(path, public_key)
    release_manifest = verified.manifest
    core = boards.find_board(board or release_manifest.board).core
    with tempfile.TemporaryDirectory(prefix="edgemeter-release-") as scratch:
        verified.unpack(Path(scratch))
        return verified, smoke.check_imports(Path(scratch) / "wheels", release_manifest.arch, release_manifest.python, core, root)
