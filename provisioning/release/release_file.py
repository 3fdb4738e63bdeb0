"""Releases as files: built from wheels, signed, packed and read.

A device reads them with `install.py` alone.
"""

import hashlib
import json
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from edgemeter.agent.base.durable_file import replacing, sha256_of
from edgemeter.agent.base.errors import ConfigError, UnavailableError, os_error_as
from edgemeter.agent.base.openssl import run_openssl
from edgemeter.provisioning.release import install, wheels
from edgemeter.provisioning.release.boards import ReleaseTarget
from edgemeter.provisioning.release.install import KEYS, MANIFEST, SIGNATURE, FileEntry, Manifest

# First in the tar: a device decides by these.
FIRST = (MANIFEST, SIGNATURE)


@dataclass(frozen=True, slots=True)
class ReleaseFile:
    """A release: its file, and its manifest, parsed and as the signed bytes."""

    path: Path
    manifest: Manifest
    document: bytes


def build_release(
    target: ReleaseTarget,
    extras: Sequence[str],
    out: Path | None,
    report: Callable[[str], None],
    *,
    key: Path | None = None,
    public_keys: Path | None = None,
    wheel: Path | None = None,
    further: Sequence[Path] = (),
) -> ReleaseFile:
    """Build a release; `out` is its file.

    The file is by default in the current folder, with a name of version and board. Without a `key`
    it is not signed. `public_keys` are those that devices trust after it, the key's own among them;
    None: as before. `wheel` is edgemeter's own, by default built from the local installation;
    `further` are wheels that no index has.

    Raises:
        ConfigError: wheels are missing, devices will not trust the key, or the file cannot be
            written.
        UnavailableError: pip, the index or openssl cannot be reached.
    """
    if public_keys is not None:
        with os_error_as(
            ConfigError,
            f"cannot read the release keys {str(public_keys)!r}",
            "`edgemeter fleet init` makes them",
        ):
            trusted = install.public_keys(public_keys.read_bytes())
        if key is not None and run_openssl("pkey", "-in", str(key), "-pubout").strip() not in {
            pem.strip() for pem in trusted
        }:
            raise ConfigError(
                f"the public key of {str(key)!r} is not in {str(public_keys)!r}: no device would "
                "accept its releases"
            )
    if wheel is not None and not (
        wheel.is_file() and wheel.name.startswith("edgemeter-") and wheel.name.endswith(".whl")
    ):
        raise ConfigError(
            f"{str(wheel)!r} is not a wheel of edgemeter: omit --wheel to use the installed version"
        )
    with tempfile.TemporaryDirectory(prefix="edgemeter-release-") as scratch:
        folder = Path(scratch) / "release"
        (folder / "wheels").mkdir(parents=True)
        report("making edgemeter's wheel" if wheel is None else f"using {wheel.name}")
        wheel = wheel or wheels.make_own_wheel(Path(scratch))
        report(f"collecting wheels for {target.words}")
        wheels.collect_wheels(wheel, extras, target, folder / "wheels", further)
        add_scripts(folder)
        if public_keys is not None:
            shutil.copyfile(public_keys, folder / KEYS)
        own_version = next((folder / "wheels").glob("edgemeter-*.whl")).name.split("-")[1]
        # With another runtime it is another release.
        listed = "".join(f"{file.path} {file.sha256}\n" for file in file_entries(folder))
        version = (
            f"{own_version}{'.' if '+' in own_version else '+'}"
            f"{hashlib.sha256(listed.encode()).hexdigest()[:8]}"
        )
        path = out or Path(
            f"edgemeter-{version}-{target.board}-py{target.python_text.replace('.', '')}.tar"
        )
        document, manifest = seal_release(folder, target, version, key)
        pack_release(folder, path)
        return ReleaseFile(path, manifest, document)


def add_scripts(folder: Path) -> None:
    """Put the installer, the supervisor and the units into the folder of a release."""
    for name in ("install.py", "supervisor.py"):
        (folder / name).write_bytes(files(__package__).joinpath(name).read_bytes())
    (folder / "units").mkdir()
    for unit in files("edgemeter.provisioning").joinpath("units").iterdir():
        if unit.name.endswith((".service", ".rules")):
            (folder / "units" / unit.name).write_bytes(unit.read_bytes())


def file_entries(folder: Path) -> tuple[FileEntry, ...]:
    """Return the files below `folder` for a manifest, by name."""
    names = [
        (path, path.relative_to(folder).as_posix())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]
    return tuple(
        FileEntry(name, sha256_of(path), path.stat().st_size)
        for path, name in names
        if name not in FIRST
    )


def seal_release(
    folder: Path, target: ReleaseTarget, version: str, key: Path | None
) -> tuple[bytes, Manifest]:
    """Write manifest and signature into the folder of a release's files.

    Raises:
        ConfigError: installers do not accept a field.
    """
    epoch_s = os.environ.get("SOURCE_DATE_EPOCH", "")
    fields = {
        "schema": 1,
        "name": "edgemeter",
        "version": version,
        "board": target.board,
        "arch": target.arch,
        "python": target.python_text,
        "glibc": target.glibc_text,
        "built_ns": int(epoch_s) * 10**9 if epoch_s.isdecimal() else time.time_ns(),
        "files": [file._asdict() for file in file_entries(folder)],
    }
    document = (json.dumps(fields, indent=1, sort_keys=True) + "\n").encode()
    try:
        manifest = install.parse_manifest(document)
    except install.RefusedError as error:
        raise ConfigError(str(error)) from error
    (folder / MANIFEST).write_bytes(document)
    if key is not None:
        (folder / SIGNATURE).write_bytes(sign(document, key))
    return document, manifest


def pack_release(folder: Path, out: Path) -> None:
    """Write a release as an uncompressed tar, atomically, equal files as equal bytes.

    Raises:
        ConfigError: writing fails.
    """
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    with (
        os_error_as(
            ConfigError,
            f"cannot write the release {str(out)!r}",
            "choose another file, or make room",
        ),
        replacing(out, 0o644) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        for name in sorted(names, key=lambda name: (name not in FIRST, name)):
            # No time and no owner: the bytes depend on the contents only.
            info = tarfile.TarInfo(name)
            info.size, info.mode = (folder / name).stat().st_size, 0o644
            with (folder / name).open("rb") as content:
                tar.addfile(info, content)


def sign(document: bytes, key: Path) -> bytes:
    """Return the signature in DER.

    Raises:
        ConfigError: there is no such key, it is of another kind, or openssl is missing.
    """
    if not key.is_file():
        raise ConfigError(
            f"there is no release key {str(key)!r} to sign the release with: `edgemeter fleet "
            "init` makes one"
        )
    try:
        facts = run_openssl("pkey", "-in", str(key), "-noout", "-text")
        if b"prime256v1" not in facts:
            raise ConfigError(
                f"the release key {str(key)!r} is not an ECDSA key on P-256: `edgemeter fleet "
                "init` makes one"
            )
        return run_openssl("dgst", "-sha256", "-sign", str(key), document=document)
    except UnavailableError as error:
        raise ConfigError(
            f"cannot sign by the release key {str(key)!r}, which is PEM without "
            f"a passphrase: {error}"
        ) from error


def read_release(path: Path, public_key: Path | None) -> ReleaseFile:
    """Return the release in a `.tar`, verified; without a key only the hashes of its files are.

    Raises ConfigError if it is invalid, not signed by the key, or altered.
    """
    if public_key is not None and not public_key.is_file():
        raise ConfigError(
            f"there is no release key {str(public_key)!r} to verify the release with: name the "
            "fleet's folder with --folder; "
            "`edgemeter fleet init` makes both"
        )
    try:
        with closing(install.UnverifiedRelease(path)) as source:
            document, manifest = source.manifest(public_key)
            for entry in manifest.files:
                source.copy(entry, None)
    except install.RefusedError as error:
        raise ConfigError(str(error)) from error
    return ReleaseFile(path, manifest, document)
