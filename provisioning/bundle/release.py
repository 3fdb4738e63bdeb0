"""Builds a bundle: collects its files, checks them under emulation where that can be, writes the manifest and signs it."""

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from edgemeter.agent.errors import ConfigError
from edgemeter.provisioning.bundle import manifest, own_wheel, smoke, wheels
from edgemeter.provisioning.bundle.boards import Target
from edgemeter.provisioning.bundle.install import MANIFEST, SIGNATURE, FileEntry, Manifest
from edgemeter.provisioning.bundle.signing import sign

# What lies in a bundle beside the wheels, by the package that it comes from.
SCRIPTS = {"install.py": "edgemeter.provisioning.bundle", "supervisor.py": "edgemeter.provisioning.update"}
UNIT_SUFFIXES = (".service", ".rules")


@dataclass(frozen=True, slots=True)
class Wish:
    """What a bundle is to be: for which target, with which extras, of which wheel, signed by which key, checked in which root."""

    target: Target
    extras: tuple[str, ...]
    key: Path
    wheel: Path | None = None
    root: Path | None = None


@dataclass(frozen=True, slots=True)
class Built:
    """A bundle that was built; after a rehearsal its file is not there."""

    path: Path
    manifest: Manifest
    size_bytes: int


def build(wish: Wish, out: Path | None, tell: Callable[[str], None], *, is_rehearsal: bool = False) -> Built:
    """Build a bundle; `out` is its file, by default named for what it is, in the current folder; a rehearsal leaves no file.

    Raises:
        ConfigError: there is no such bundle: wheels are missing, one dies on the board's processor, or it cannot be written.
        UnavailableError: pip, the index or openssl cannot be reached.
    """
    with tempfile.TemporaryDirectory(prefix="edgemeter-bundle-") as made:
        folder = Path(made) / "bundle"
        (folder / "wheels").mkdir(parents=True)
        tell("making edgemeter's wheel" if wish.wheel is None else f"taking {wish.wheel.name}")
        wheel = _own_wheel(wish.wheel, Path(made))
        tell(f"collecting wheels for {wish.target.words}")
        wheels.collect(wheel, wish.extras, wish.target, folder / "wheels")
        add_scripts(folder)
        tell("importing every native package as on the board")
        checked = smoke.check(folder / "wheels", wish.target.arch, wish.target.python_text, wish.target.core, wish.root)
        smoke.refuse_dead(checked)
        return _seal(wish, folder, checked.words, out, is_rehearsal=is_rehearsal)


def seal(wish: Wish, folder: Path, checked: str, version: str) -> Manifest:
    """Write manifest and signature into the folder of a bundle's files."""
    target = wish.target
    made = Manifest(
        version=version,
        board=target.board,
        arch=target.arch,
        python=target.python_text,
        glibc=target.glibc_text,
        files=manifest.entries(folder),
        checked=checked,
        built_ns=_now_ns(),
    )
    document = manifest.encode(made)
    (folder / MANIFEST).write_bytes(document)
    (folder / SIGNATURE).write_bytes(sign(document, wish.key))
    return made


def add_scripts(folder: Path) -> None:
    """Put the installer, the supervisor and the units into the folder of a bundle."""
    for name, package in SCRIPTS.items():
        with as_file(files(package).joinpath(name)) as source:
            shutil.copyfile(source, folder / name)
    (folder / "units").mkdir()
    for unit in files("edgemeter.provisioning").joinpath("units").iterdir():
        if unit.name.endswith(UNIT_SUFFIXES):
            (folder / "units" / unit.name).write_bytes(unit.read_bytes())


def version(own: str, entries: Sequence[FileEntry]) -> str:
    """Return edgemeter's version with 8 digits of what the bundle holds: the same release with another runtime is another one."""
    listed = "".join(f"{file.path} {file.sha256}\n" for file in entries)
    return f"{own}{'.' if '+' in own else '+'}{hashlib.sha256(listed.encode()).hexdigest()[:8]}"


def _seal(wish: Wish, folder: Path, checked: str, out: Path | None, *, is_rehearsal: bool) -> Built:
    own = next((folder / "wheels").glob("edgemeter-*.whl")).name.split("-")[1]
    made = seal(wish, folder, checked, version(own, manifest.entries(folder)))
    path = out or Path(f"edgemeter-{made.version}-{made.board}-py{made.python.replace('.', '')}.tar")
    if is_rehearsal and not path.parent.is_dir():
        message = f"cannot write the bundle {str(path)!r}: there is no folder {str(path.parent)!r}: name another file, or make it"
        raise ConfigError(message)
    packed = folder.with_suffix(".tar") if is_rehearsal else path
    manifest.pack(folder, packed)
    return Built(path, made, packed.stat().st_size)


def _own_wheel(given: Path | None, folder: Path) -> Path:
    if given is None:
        return own_wheel.make(folder)
    if not (given.is_file() and given.name.startswith("edgemeter-") and given.name.endswith(".whl")):
        message = f"{str(given)!r} is no wheel of edgemeter: leave out --wheel to take what is installed here"
        raise ConfigError(message)
    return given


def _now_ns() -> int:
    said = os.environ.get("SOURCE_DATE_EPOCH")
    return int(said) * 10**9 if said and said.isdecimal() else time.time_ns()
