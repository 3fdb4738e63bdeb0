"""Installs a release of the agent on this device: `python3 install.py --release DIR|TAR --root /opt/edgemeter`.

It stays one file with the standard library only, because it is copied to boards and runs outside of every release, with Python >= 3.8 and
`openssl`. An installed release is a virtual environment built in place, `ROOT/releases/<version>`; it is complete once its `manifest.json`
exists, and runs once the link `ROOT/current` names it. Nothing below ROOT changes before signature, target and all hashes are verified; a
power cut at any moment leaves the release that ran. A refused release ends with one line on stderr and status 1.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MANIFEST, SIGNATURE = "manifest.json", "manifest.sig"
# The keys that devices trust from this release on; the file on the device is `release.pub`.
KEYS = "release.keys"
PUBLIC_KEY = re.compile(rb"-----BEGIN PUBLIC KEY-----[^-]{1,4096}-----END PUBLIC KEY-----\r?\n?")
LOWEST = re.compile(rb"# edgemeter release keys, [^\n]*, lowest ([0-9][A-Za-z0-9.+]{0,63})\n")
MOST_MANIFEST_BYTES, MOST_SIGNATURE_BYTES = 1 << 20, 1 << 10
FORMS = {
    "name": r"edgemeter",
    "version": r"[0-9][A-Za-z0-9.+]{0,63}",
    "board": r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}",
    "arch": r"aarch64|x86_64",
    "python": r"3\.[0-9]{1,2}",
    "glibc": r"2\.[0-9]{1,2}",
    "sha256": r"[0-9a-f]{64}",
    # One folder deep at most: nothing that could lead out of the release.
    "path": r"(?:(?:wheels|units)/)?[A-Za-z0-9_][A-Za-z0-9._+-]{0,199}",
}
# PEP 440, without what we never publish: epochs.
VERSION = re.compile(r"(\d+(?:\.\d+)*)(?:(a|b|rc)(\d+))?(?:\.post(\d+))?(?:\.dev(\d+))?(?:\+[A-Za-z0-9.]+)?\Z")
# What pip writes beside the files of the wheels, compiled modules, and spare room.
SPARE_BYTES, COMPILED_RATIO = 32 << 20, 1.3
WAIT_S, STEP_S = 1200.0, 3600.0
PIECE_BYTES = 1 << 20
# Options of pip for wheels that are here.
OFFLINE = ("--no-index", "--no-compile", "--no-cache-dir", "--no-warn-script-location", "--quiet")
# Tests that wheels carry: half of numpy's modules.
NEVER_IMPORTED = r"/lib/python3[.][0-9]+/(.*/)?tests?/"
# A part of Python that this system omits (tkinter) is not the wheel's fault.
IMPORT = """
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if str(error.name).split(".")[0] not in sys.stdlib_module_names:
            raise
"""


class RefusedError(Exception):
    """The release is refused; the message states why in one line."""


class FileEntry(NamedTuple):
    """A file of the release."""

    path: str
    sha256: str
    size_bytes: int


class Manifest(NamedTuple):
    """The contents of `manifest.json`: the release, its target, and its files."""

    version: str
    board: str
    arch: str
    python: str
    glibc: str
    files: tuple[FileEntry, ...]
    built_ns: int


def parse_manifest(document: bytes) -> Manifest:
    """Return the manifest; raise RefusedError if it has a wrong, missing or unknown field."""
    try:
        fields = json.loads(document.decode())
    except (ValueError, RecursionError) as error:
        refuse(f"the manifest is not JSON: {error}")
    _exactly("the manifest", fields, ("schema", "name", *Manifest._fields))
    if fields["schema"] != 1 or type(fields["schema"]) is not int:
        refuse(f"the manifest is of schema {fields['schema']!r}, this installer supports 1: use the installer of that release")
    for field in ("name", "version", "board", "arch", "python", "glibc"):
        _formed(field, fields[field])
    _natural("built_ns", fields["built_ns"])
    if not isinstance(fields["files"], list):
        refuse("the manifest's files are not a list")
    files = tuple(_file_entry(entry) for entry in fields["files"])
    paths = [file.path.lower() for file in files]
    if len(set(paths)) != len(paths) or MANIFEST in paths or SIGNATURE in paths:
        refuse("the manifest names a file twice, or itself")
    return Manifest(files=files, **{field: fields[field] for field in Manifest._fields if field != "files"})


def refuse(message: str) -> NoReturn:
    """Raise RefusedError with the message."""
    raise RefusedError(message)


def _exactly(subject: str, value: object, fields: Sequence[str]) -> None:
    if not isinstance(value, dict):
        refuse(f"{subject} is not a table")
    wrong = sorted(set(value) ^ set(fields))
    if wrong:
        refuse(f"{subject} has unknown or missing fields: {', '.join(map(repr, wrong))[:200]}")


def _formed(field: str, value: object) -> None:
    if not isinstance(value, str) or not re.fullmatch(FORMS[field], value):
        refuse(f"the manifest's {field} {str(value)[:100]!r} is invalid")


def _natural(field: str, value: object) -> None:
    if type(value) is not int or not 0 <= value < 1 << 63:
        refuse(f"the manifest's {field} {str(value)[:100]!r} is not a natural number")


def _file_entry(entry: dict[str, str | int]) -> FileEntry:
    _exactly("a file of the manifest", entry, FileEntry._fields)
    _formed("path", entry["path"])
    _formed("sha256", entry["sha256"])
    _natural("size_bytes", entry["size_bytes"])
    return FileEntry(str(entry["path"]), str(entry["sha256"]), int(entry["size_bytes"]))


class UnverifiedRelease:
    """A release in a folder or an uncompressed `.tar`, read without trust: links are not followed, only plain files are read."""

    def __init__(self, path: Path) -> None:
        """Read its index; raise RefusedError if it is not a release."""
        self.path = path
        self.members: dict[str, tarfile.TarInfo] = {}
        self.tar: tarfile.TarFile | None = None
        if not (path / MANIFEST if path.is_dir() else path).exists():
            refuse(
                f"there is no release {str(path)!r}: name the .tar, or its unpacked folder, that `edgemeter fleet release build` has built"
            )
        try:
            if not path.is_dir():
                self.tar = tarfile.open(str(path), "r:")  # noqa: SIM115 - closed with the release
                self._index(self.tar)
        except (OSError, tarfile.TarError, ValueError, EOFError, RefusedError) as error:
            self.close()
            if isinstance(error, RefusedError):
                raise
            refuse(f"cannot read the release {str(path)!r} ({error}): copy it again, whole")

    def _index(self, tar: tarfile.TarFile) -> None:
        for member in tar:
            if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
                refuse(f"the release holds {member.name[:100]!r}, which is not a plain file")
            if not re.fullmatch(FORMS["path"], member.name) or member.name in self.members:
                refuse(f"the release holds {member.name[:100]!r}, which is outside of it or duplicate")
            self.members[member.name] = member

    def close(self) -> None:
        """Close the file."""
        if self.tar is not None:
            self.tar.close()

    def open(self, name: str) -> IO[bytes]:
        """Return a file of the release for reading."""
        try:
            if self.tar is None:
                descriptor = os.open(str(self.path / name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                if os.path.isfile(descriptor):  # noqa: PTH113 - of the descriptor, not of the name
                    return os.fdopen(descriptor, "rb")
                os.close(descriptor)
            elif name in self.members and (file := self.tar.extractfile(self.members[name])):
                return file
        except (OSError, tarfile.TarError) as error:
            refuse(f"cannot read {name!r} in the release ({getattr(error, 'strerror', None) or error}): copy the release again, whole")
        refuse(f"the release lacks {name!r}, or it is not a plain file")

    def small(self, name: str, most_bytes: int) -> bytes:
        """Return a whole small file."""
        with self.open(name) as file:
            text = file.read(most_bytes + 1)
        if len(text) > most_bytes:
            refuse(f"{name!r} in the release is larger than {most_bytes} bytes")
        return text

    def copy(self, entry: FileEntry, target: IO[bytes] | None) -> None:
        """Write a file to `target`, if any; raise RefusedError if it differs from the manifest."""
        digest, size_bytes = hashlib.sha256(), 0
        with self.open(entry.path) as source:
            while size_bytes <= entry.size_bytes:
                try:
                    chunk = source.read(PIECE_BYTES)
                except (OSError, tarfile.TarError) as error:
                    refuse(f"cannot read {entry.path!r} in the release: {error}")
                if not chunk:
                    break
                size_bytes += len(chunk)
                digest.update(chunk)
                if target is not None:
                    target.write(chunk)
        if size_bytes != entry.size_bytes or digest.hexdigest() != entry.sha256:
            refuse(f"{entry.path!r} in the release is not what the manifest says: copy the release again")

    def strangers(self, manifest: Manifest) -> list[str]:
        """Return the files of the release that are not in its manifest; a folder may hold other files, but no other wheels."""
        listed = {file.path for file in manifest.files} | {MANIFEST, SIGNATURE}
        if self.tar is not None:
            return sorted(set(self.members) - listed)
        return sorted(name for path in self.path.glob("wheels/*.whl") if (name := "wheels/" + path.name) not in listed)


def verify(source: UnverifiedRelease, public_key: Path) -> tuple[bytes, Manifest]:
    """Return the manifest, as bytes and parsed, once its signature is verified; else raise RefusedError."""
    document, signed = source.small(MANIFEST, MOST_MANIFEST_BYTES), source.small(SIGNATURE, MOST_SIGNATURE_BYTES)
    if not public_key.is_file():
        refuse(f"there is no public key {str(public_key)!r} to verify the release with: give --public-key FILE, the fleet's release.pub")
    if not any(_is_signed_by(key, document, signed) for key in public_keys(public_key.read_bytes())):
        refuse(f"the release {str(source.path)!r} is not signed by the key in {str(public_key)!r}")
    return document, parse_manifest(document)


def public_keys(text: bytes) -> list[bytes]:
    """Return the public keys in a `release.pub`, PEM, the newest first: more than one while the fleet's key is rotated."""
    return [match.group(0) for match in PUBLIC_KEY.finditer(text)]


def lowest_version(keys: bytes) -> str | None:
    """Return the earliest version that a `release.pub` allows, None for any."""
    match = LOWEST.match(keys)
    return match[1].decode() if match else None


def _is_signed_by(key: bytes, document: bytes, signed: bytes) -> bool:
    with tempfile.TemporaryDirectory(prefix="edgemeter-") as folder:
        signature, public = Path(folder) / SIGNATURE, Path(folder) / "key"
        signature.write_bytes(signed)
        public.write_bytes(key)
        command = ["openssl", "dgst", "-sha256", "-verify", str(public), "-signature", str(signature)]
        try:
            completed = subprocess.run(command, input=document, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False)
        except (OSError, subprocess.SubprocessError) as error:
            refuse(f"cannot check the signature with openssl ({error}): install it")
    return completed.returncode == 0


def verify_files(source: UnverifiedRelease, manifest: Manifest) -> None:
    """Raise RefusedError if a file differs from the manifest or is not in it."""
    strangers = source.strangers(manifest)
    if strangers:
        refuse(f"the release holds {strangers[0][:200]!r}, which is not in its manifest")
    for entry in manifest.files:
        source.copy(entry, None)


def sha256(path: Path) -> str:
    """Return the hash of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(PIECE_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def extension_modules(wheel: Path) -> list[str]:
    """Return the names of the extension modules in a wheel: shared libraries with Python's entry point for their name."""
    modules = []
    with zipfile.ZipFile(str(wheel)) as archive:
        for name in archive.namelist():
            parts = name.split("/")
            stem = parts[-1].split(".")[0]
            if name.endswith(".so") and all(part.isidentifier() for part in [*parts[:-1], stem]):
                with archive.open(name) as file:
                    if _holds(file, b"PyInit_" + stem.encode() + b"\0"):
                        modules.append(".".join([*parts[:-1], stem]))
    return modules


def _holds(file: IO[bytes], text: bytes) -> bool:
    tail = b""
    while chunk := file.read(PIECE_BYTES):
        if text in tail + chunk:
            return True
        tail = chunk[-len(text) :]
    return False


def how_it_ended(status: int) -> str:
    """Return how a process ended, as text."""
    if status < 0:
        with contextlib.suppress(ValueError):
            why = ": it has instructions that this processor lacks" if -status == signal.SIGILL else ""
            return f"died of {signal.Signals(-status).name}{why}"
    return f"ended with status {status}"


def version_key(version: str) -> tuple[object, ...]:
    """Return the sort key of a version; a local part (`+...`) does not count."""
    parts = VERSION.match(version)
    if parts is None:
        refuse(f"{version!r} is not a version that can be compared")
    release = [int(part) for part in parts[1].split(".")]
    while release and release[-1] == 0:
        release.pop()
    is_dev_only = parts[5] is not None and parts[2] is None and parts[4] is None
    stage = -1 if is_dev_only else {"a": 0, "b": 1, "rc": 2, None: 3}[parts[2]]
    dev = float("inf") if parts[5] is None else int(parts[5])
    return (release, stage, int(parts[3] or 0), -1 if parts[4] is None else int(parts[4]), dev)


class Installation:
    """One installation below `root`."""

    def __init__(self, source: UnverifiedRelease, root: Path, document: bytes, manifest: Manifest, added: Sequence[Path] = ()) -> None:
        """Take what `verify` returned, and further wheels; nothing happens yet."""
        self.source, self.root, self.document, self.manifest = source, root, document, manifest
        self.release = root / "releases" / manifest.version
        self.staged = root / ".incoming"
        self.added = added
        self.lock: int | None = None

    def current(self) -> str | None:
        """Return the running version."""
        try:
            return Path(os.readlink(str(self.root / "current"))).name  # noqa: PTH115 - Python 3.8
        except OSError:
            return None

    def check(self, downgrade: str) -> Path:
        """Return the interpreter for the release; raise RefusedError if it is for another target, or older."""
        manifest, current = self.manifest, self.current()
        if platform.machine() != manifest.arch:
            refuse(f"the release is for {manifest.arch}, this is {platform.machine()}: build one for it")
        glibc = platform.libc_ver()
        if glibc[0] != "glibc" or _numbers(glibc[1]) < _numbers(manifest.glibc):
            refuse(f"the release needs glibc {manifest.glibc}, here is {' '.join(glibc).strip() or 'none'}: build one for it")
        if current is not None and version_key(manifest.version) < version_key(current) and downgrade != "allowed":
            refuse(f"the release is version {manifest.version}, older than {current}, which runs: add --allow-downgrade")
        trusted = self.root / "release.pub"
        lowest = lowest_version(trusted.read_bytes()) if trusted.is_file() else None
        if lowest is not None and version_key(manifest.version) < version_key(lowest):
            refuse(f"the release is version {manifest.version}, and the fleet's release keys allow none before {lowest}: install that one")
        return self._interpreter()

    def _interpreter(self) -> Path:
        version = self.manifest.python
        if "%d.%d" % sys.version_info[:2] == version:  # noqa: UP031 - Python 3.8
            return Path(sys.executable)
        # A Python that was installed on a board whose own is too old.
        brought = sorted(self.root.glob("pythons/*/bin/python" + version))
        candidates = [str(candidate) for candidate in brought] or [
            candidate for candidate in [shutil.which("python" + version)] if candidate
        ]
        if not candidates:
            refuse(f"the release is for Python {version}, here is {platform.python_version()}: build one for it")
        return Path(candidates[0])

    def is_finished(self) -> bool:
        """Return whether this release is installed."""
        try:
            return (self.release / MANIFEST).read_bytes() == self.document
        except OSError:
            return False

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock of installations; leftovers of an earlier one hold it too, so that nothing else writes."""
        self.root.mkdir(parents=True, exist_ok=True)
        self.lock = os.open(str(self.root / ".install.lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        until_s = time.monotonic() + WAIT_S
        try:
            while not self._has_locked():
                if time.monotonic() > until_s:
                    refuse(f"another installation has been running for {WAIT_S / 60:.0f} min: end it")
                time.sleep(0.2)
            # What an interrupted installation left behind.
            _remove(self.staged)
            yield
        finally:
            os.close(self.lock)

    def _has_locked(self) -> bool:
        try:
            fcntl.flock(self.lock or 0, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def build(self, python: Path) -> None:
        """Build the release in place; on failure it is removed."""
        if self.current() == self.manifest.version:
            refuse(f"release {self.manifest.version} is running and is another build of the same version: raise the version")
        _remove(self.release)
        try:
            self._stage()
            self._install(python)
            self._compile()
            self._smoke()
            self._finish()
        except BaseException:
            _remove(self.release)
            raise
        finally:
            _remove(self.staged)

    def _stage(self) -> None:
        files = self.manifest.files
        free_bytes, staged_bytes = shutil.disk_usage(str(self.root)).free, sum(file.size_bytes for file in files)
        self._room(free_bytes, staged_bytes)
        for entry in files:
            target = self.staged / entry.path
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as file:
                self.source.copy(entry, file)
        unpacked_bytes = sum(part.file_size for wheel in self._wheels() for part in zipfile.ZipFile(str(wheel)).infolist())
        self._room(free_bytes, staged_bytes + int(unpacked_bytes * COMPILED_RATIO))

    def _room(self, free_bytes: int, needed_bytes: int) -> None:
        needed_bytes += SPARE_BYTES
        if free_bytes < needed_bytes:
            refuse(f"no space: the release needs {needed_bytes >> 20} MiB below {str(self.root)!r}, {free_bytes >> 20} MiB are free")

    def _wheels(self) -> list[Path]:
        return sorted(self.staged.glob("wheels/*.whl"))

    def _install(self, python: Path) -> None:
        self.release.parent.mkdir(exist_ok=True)
        self._run("the virtual environment", [str(python), "-m", "venv", "--without-pip", str(self.release)])
        wheels = [str(wheel) for wheel in self._wheels() if not wheel.name.startswith("pip-")]
        self._pip("install", "--no-deps", *OFFLINE, *wheels)
        self._install_further()
        self._pip("check")

    def lacking(self) -> list[Path]:
        """Return the further wheels of this device that the release lacks: those that it keeps, and the added ones in their place."""
        wheels = {_project(wheel): wheel for wheel in [*sorted(self.root.glob("wheels/*.whl")), *self.added]}
        return [wheel for wheel in wheels.values() if not (self.release / "further" / sha256(wheel)).exists()]

    def add(self) -> None:
        """Install the further wheels into the finished release, of which nothing changes if one is refused."""
        try:
            self._stage()
            self._install_further()
            self._compile()
        finally:
            _remove(self.staged)

    def _install_further(self) -> None:
        wheels = self.lacking()
        if not wheels:
            return
        paths = [str(wheel) for wheel in wheels]
        # Whether each fits this Python, and what it requires is there.
        self._pip("install", "--dry-run", *OFFLINE, *paths)
        unpacked = self.staged / "further"
        for wheel in wheels:
            with zipfile.ZipFile(str(wheel)) as archive:
                archive.extractall(str(unpacked))  # noqa: S202 - zipfile keeps to the folder
        for wheel in wheels:
            self._import(wheel, PYTHONPATH=str(unpacked))
        self._pip("install", "--no-deps", "--force-reinstall", *OFFLINE, *paths)
        (self.release / "further").mkdir(exist_ok=True)
        for wheel in wheels:
            _write(self.release / "further" / sha256(wheel), (wheel.name + "\n").encode())

    def keep(self) -> None:
        """Keep the added wheels on this device for the releases that follow, in place of others of their project."""
        folder = self.root / "wheels"
        for wheel in self.added:
            folder.mkdir(exist_ok=True)
            for former in folder.glob("*.whl"):
                if _project(former) == _project(wheel):
                    former.unlink()
            _write(folder / wheel.name, wheel.read_bytes())

    def _pip(self, *arguments: str, fine: tuple[int, ...] = (0,)) -> tuple[int, list[str]]:
        pip = sorted(self.staged.glob("wheels/pip-*.whl"))
        if not pip:
            refuse("the release has no wheel of pip")
        command = [str(self.release / "bin/python"), "-m", "pip", "--disable-pip-version-check", *arguments]
        environment = {"PYTHONPATH": str(pip[0]), "PIP_CONFIG_FILE": os.devnull, "PYTHONDONTWRITEBYTECODE": "1"}
        return self._run("pip " + arguments[0], command, fine, **environment)

    def _compile(self) -> None:
        """Write the bytecode of every module: the agent's user may not, and boards compare only if all of them start from bytecode.

        It is valid whatever the times of the files become: nobody edits a release.
        """
        options = ["-q", "-q", "--invalidation-mode", "unchecked-hash", "-x", NEVER_IMPORTED]
        # Status 1: a wheel holds a template or a file for another Python, which nothing imports.
        self._run("compileall", [str(self.release / "bin/python"), "-m", "compileall", *options, str(self.release / "lib")], (0, 1))

    def _smoke(self) -> None:
        for wheel in self._wheels():
            self._import(wheel)
        self._run("edgemeter --version", [str(self.release / "bin/python"), "-B", str(self.release / "bin/edgemeter"), "--version"])

    def _import(self, wheel: Path, **variables: str) -> None:
        modules = extension_modules(wheel)
        if modules:
            self._run("the import of " + wheel.name, [str(self.release / "bin/python"), "-B", "-c", IMPORT, *modules], (0,), **variables)

    def _run(self, task: str, command: list[str], fine: tuple[int, ...] = (0,), **variables: str) -> tuple[int, list[str]]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON", "EDGEMETER_"))}
        locks = () if self.lock is None else (self.lock,)
        try:
            completed = subprocess.run(
                command, env={**inherited, "PYTHONNOUSERSITE": "1", **variables}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, timeout=STEP_S, check=False, pass_fds=locks, cwd=str(self.root),
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            refuse(f"{task}: {error}")
        lines = [line.strip() for line in completed.stdout.decode(errors="replace").split("\n") if line.strip()]
        if completed.returncode not in fine:
            refuse(f"{task} {how_it_ended(completed.returncode)}{': ' + lines[-1][:400] if lines else ''}")
        return completed.returncode, lines

    def _finish(self) -> None:
        for name in ("install.py", "supervisor.py", KEYS, "units"):
            source, target = self.staged / name, self.release / name
            if source.is_dir():
                shutil.copytree(str(source), str(target))
            elif source.exists():
                shutil.copyfile(str(source), str(target))
        # All of it is on the disk before the manifest completes it.
        _sync_folder(self.root, "file system")
        _write(self.release / MANIFEST, self.document)

    def switch(self) -> None:
        """Make the release the current one, by one rename. Its installer and supervisor become those of the device."""
        for name in ("install.py", "supervisor.py"):
            if (self.release / name).exists():
                _write(self.root / name, (self.release / name).read_bytes(), 0o755)
        link = self.root / ".current"
        with contextlib.suppress(FileNotFoundError):
            link.unlink()
        link.symlink_to(Path("releases") / self.manifest.version)
        link.replace(self.root / "current")
        _sync_folder(self.root)

    def prune(self, *versions: str | None) -> None:
        """Remove all releases except these and the running one."""
        for path in self.release.parent.iterdir():
            if path.name not in (*versions, self.current()):
                _remove(path)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _project(wheel: Path) -> str:
    """Return the one form of the name of a wheel's distribution. Source: PEP 503."""
    return re.sub(r"[-_.]+", "-", wheel.name.split("-")[0]).lower()


def _remove(path: Path) -> None:
    # The manifest first: without it the release counts as incomplete.
    with contextlib.suppress(OSError):
        (path / MANIFEST).unlink()
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(str(path))


def _sync_folder(folder: Path, extent: str = "folder") -> None:
    """Wait until a folder is on the disk, or all of its file system."""
    descriptor = os.open(str(folder), os.O_RDONLY)
    try:
        if extent == "folder":
            os.fsync(descriptor)
        # One file system only; glibc >= 2.14.
        elif ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(folder))
    finally:
        os.close(descriptor)


def _write(path: Path, content: bytes, mode: int = 0o644) -> None:
    part = path.with_name("." + path.name + ".part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.chmod(mode)
    part.replace(path)
    _sync_folder(path.parent)


def install(source: UnverifiedRelease, root: Path, public_key: Path | None, switch: str, downgrade: str, added: Sequence[Path]) -> str:
    """Install the release; return in one line what was done, raise RefusedError if it is refused.

    Without a key the release came over a trusted connection (SSH), and has no signature.
    """
    if public_key is None:
        document = source.small(MANIFEST, MOST_MANIFEST_BYTES)
        manifest = parse_manifest(document)
    else:
        document, manifest = verify(source, public_key)
    installation = Installation(source, root, document, manifest, added)
    python = installation.check(downgrade)
    verify_files(source, manifest)
    before, actions = installation.current(), []
    with installation.alone():
        if not installation.is_finished():
            installation.build(python)
            actions.append("installed")
        elif installation.lacking():
            installation.add()
            actions.append("added wheels to")
        installation.keep()
        if public_key is not None and not (root / "release.pub").exists():
            _write(root / "release.pub", public_key.read_bytes())
        if switch == "yes" and before != manifest.version:
            installation.switch()
            actions.append("switched to")
        # Whoever switches later may still have to roll back, and prunes by itself.
        if actions and switch == "yes":
            installation.prune(before, manifest.version)
    return "{} release {} in {!r}".format(" and ".join(actions) or "nothing to do:", manifest.version, str(root))


def main(arguments: Sequence[str] | None = None) -> int:
    """Install as given on the command line; return the exit status."""
    parser = argparse.ArgumentParser(description="Install a release of the edgemeter agent, with no network.")
    parser.add_argument("--release", type=Path, required=True, help="folder or .tar of the release")
    parser.add_argument("--root", type=Path, default=Path("/opt/edgemeter"), help="default: %(default)s")
    parser.add_argument("--public-key", type=Path, help="key to verify it with, PEM; default: ROOT/release.pub")
    parser.add_argument("--unsigned", action="store_true", help="accept a release without a signature, from a trusted source")
    parser.add_argument("--switch", choices=("yes", "no"), default="yes", help="whether the release becomes the current one")
    parser.add_argument("--allow-downgrade", action="store_const", const="allowed", default="refused", help="allow an older version")
    parser.add_argument(
        "--with", dest="added", type=Path, action="append", default=[], metavar="FILE.whl",
        help="wheel to install in addition to those of this and later releases; may be repeated",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    os.umask(0o022)
    root = Path(os.path.abspath(str(options.root)))  # noqa: PTH100 - links are not resolved
    try:
        with contextlib.closing(UnverifiedRelease(options.release)) as source:
            public_key = None if options.unsigned else options.public_key or root / "release.pub"
            text = install(source, root, public_key, options.switch, options.allow_downgrade, options.added)
    except (RefusedError, OSError, zipfile.BadZipFile) as error:
        sys.stderr.write("install: {}\n".format(" ".join(str(error).split())))
        return 1
    sys.stdout.write(f"install: {text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
