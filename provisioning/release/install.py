"""Installs a release of the agent on this device.

It is run by `python3 install.py --release FILE.tar --root /opt/edgemeter`. It stays one file with
the standard library only, because it is copied to boards and runs without a release, with Python >=
3.8 and `openssl`. An installed release is a virtual environment built in place,
`ROOT/releases/<version>`; it is complete once its `manifest.json` exists, and runs once the link
`ROOT/current` names it. The link `ROOT/proven` names the release whose installer and supervisor the
device uses: the one that ran healthily last. Signature and target are verified before anything is
written, and each file as it is copied to `ROOT/.incoming`; a power cut at any moment leaves the
release that ran. A refused release ends with one line on stderr and status 1.
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
import zipfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MANIFEST, SIGNATURE = "manifest.json", "manifest.sig"
# The keys that devices trust after this release, and those that this device trusts.
KEYS, TRUSTED_KEYS = "release.keys", "release.pub"
PUBLIC_KEY = re.compile(rb"-----BEGIN PUBLIC KEY-----[^-]{1,4096}-----END PUBLIC KEY-----\r?\n?")
MOST_MANIFEST_BYTES, MOST_SIGNATURE_BYTES = 1 << 20, 1 << 10
# The fields of the manifest and of each of its files, as text; these are numbers.
NUMBERS = ("schema", "built_ns", "size_bytes")
FORMS = {
    "schema": r"1",
    "name": r"edgemeter",
    "version": r"[0-9][A-Za-z0-9.+]{0,63}",
    "board": r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}",
    "arch": r"aarch64|x86_64",
    "python": r"3\.[0-9]{1,2}",
    "glibc": r"2\.[0-9]{1,2}",
    "built_ns": r"[0-9]{1,19}",
}
FILE_FORMS = {
    # At most one folder deep: nothing that could lead out of the release.
    "path": r"(?:(?:wheels|units)/)?[A-Za-z0-9_][A-Za-z0-9._+-]{0,199}",
    "sha256": r"[0-9a-f]{64}",
    "size_bytes": r"[0-9]{1,15}",
}
# PEP 440, without epochs, which we never publish.
VERSION = re.compile(
    r"(\d+(?:\.\d+)*)(?:(a|b|rc)(\d+))?(?:\.post(\d+))?(?:\.dev(\d+))?(?:\+[A-Za-z0-9.]+)?\Z"
)
# Space for pip's files, compiled modules and a reserve, besides the wheels' own.
SPARE_BYTES, COMPILED_RATIO = 32 << 20, 1.3
STEP_S = 3600.0
PIECE_BYTES = 1 << 20
OFFLINE = ("--no-index", "--no-compile", "--no-cache-dir", "--no-warn-script-location", "--quiet")
# Tests in wheels: half of numpy's modules.
NEVER_IMPORTED = r"/lib/python3[.][0-9]+/(.*/)?tests?/"


class RefusedError(Exception):
    """The release is refused; the message has the reason in one line."""


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


def refuse(message: str) -> NoReturn:
    raise RefusedError(message)


def parse_manifest(document: bytes) -> Manifest:
    """Return the manifest; raise RefusedError if it has a wrong, missing or unknown field."""
    try:
        fields = json.loads(document.decode())
    except (ValueError, RecursionError) as error:
        refuse(f"the manifest is not JSON: {error}")
    files = fields.pop("files", None) if isinstance(fields, dict) else None
    _check_fields("the manifest", fields, FORMS)
    if not isinstance(files, list):
        refuse("the manifest's files are not a list")
    for entry in files:
        _check_fields("a file of the manifest", entry, FILE_FORMS)
    paths = [entry["path"].lower() for entry in files]
    if len(set(paths)) != len(paths) or MANIFEST in paths or SIGNATURE in paths:
        refuse("the manifest names a file twice, or itself")
    del fields["schema"], fields["name"]
    return Manifest(files=tuple(FileEntry(**entry) for entry in files), **fields)


def _check_fields(subject: str, fields: Any, forms: Mapping[str, str]) -> None:
    if not isinstance(fields, dict):
        refuse(f"{subject} is not a table")
    wrong = sorted(set(fields) ^ set(forms))
    if wrong:
        refuse(f"{subject} has unknown or missing fields: {', '.join(map(repr, wrong))[:200]}")
    for name, form in forms.items():
        kind = int if name in NUMBERS else str
        if type(fields[name]) is not kind or not re.fullmatch(form, str(fields[name])):
            refuse(
                f"{subject} has the {name} {str(fields[name])[:100]!r}, which this installer "
                "does not know: use that of the release"
            )


class UnverifiedRelease:
    """A release, an uncompressed `.tar` that is not trusted.

    Each file must have the hash in the manifest.
    """

    def __init__(self, path: Path) -> None:
        """Open it; raise RefusedError if it is not a release."""
        self.path = path
        if not path.is_file():
            refuse(
                f"there is no release {str(path)!r}: name the .tar that `edgemeter fleet release "
                "build` has built"
            )
        try:
            self.tar = tarfile.open(str(path), "r:")  # noqa: SIM115 - closed with the release
        except (OSError, tarfile.TarError, ValueError, EOFError) as error:
            refuse(f"cannot read the release {str(path)!r} ({error}): copy it again, whole")

    def close(self) -> None:
        self.tar.close()

    def open(self, name: str) -> IO[bytes]:
        try:
            file = self.tar.extractfile(name)
        except (OSError, tarfile.TarError, ValueError, EOFError, KeyError) as error:
            refuse(f"cannot read {name!r} in the release ({error}): copy the release again, whole")
        return file if file is not None else refuse(f"{name!r} in the release is not a plain file")

    def small(self, name: str, most_bytes: int) -> bytes:
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
            refuse(
                f"{entry.path!r} in the release differs from the manifest: copy the release again"
            )

    def manifest(self, public_key: Path | None) -> tuple[bytes, Manifest]:
        """Return the manifest, as bytes and parsed; without a key it is not verified.

        Raises:
            RefusedError: its signature is invalid.
        """
        document = self.small(MANIFEST, MOST_MANIFEST_BYTES)
        if public_key is not None:
            self._verify(document, self.small(SIGNATURE, MOST_SIGNATURE_BYTES), public_key)
        manifest = parse_manifest(document)
        strangers = sorted(
            set(self.tar.getnames())
            - {file.path for file in manifest.files}
            - {MANIFEST, SIGNATURE}
        )
        if strangers:
            refuse(f"the release holds {strangers[0][:200]!r}, which is not in its manifest")
        return document, manifest

    def _verify(self, document: bytes, signature: bytes, public_key: Path) -> None:
        if not public_key.is_file():
            refuse(
                f"there is no public key {str(public_key)!r} to verify the release with: give "
                "--public-key FILE, the fleet's release.pub"
            )
        with tempfile.TemporaryDirectory(prefix="edgemeter-") as folder:
            key_file, signature_file = Path(folder) / "key", Path(folder) / SIGNATURE
            signature_file.write_bytes(signature)
            command = [
                "openssl",
                "dgst",
                "-sha256",
                "-verify",
                str(key_file),
                "-signature",
                str(signature_file),
            ]
            for key in public_keys(public_key.read_bytes()):
                key_file.write_bytes(key)
                try:
                    completed = subprocess.run(
                        command,
                        input=document,
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                        check=False,
                    )
                except OSError as error:
                    refuse(f"cannot check the signature with openssl ({error}): install it")
                if completed.returncode == 0:
                    return
        refuse(f"the release {str(self.path)!r} is not signed by the key in {str(public_key)!r}")


def public_keys(text: bytes) -> list[bytes]:
    """Return the public keys in a `release.pub`, PEM: two while the fleet's key is rotated."""
    return [match.group(0) for match in PUBLIC_KEY.finditer(text)]


def how_it_ended(status: int) -> str:
    if status < 0:
        with contextlib.suppress(ValueError):
            why = (
                ": it has instructions that this processor lacks"
                if -status == signal.SIGILL
                else ""
            )
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
    """One installation below `root`, from the command line."""

    def __init__(self, source: UnverifiedRelease, options: argparse.Namespace) -> None:
        """Verify the signature, unless the release came over a trusted connection (SSH).

        Nothing is changed yet.
        """
        self.source, self.options = source, options
        # Links are not resolved.
        self.root = Path(os.path.abspath(str(options.root)))  # noqa: PTH100
        self.public_key = (
            None if options.unsigned else options.public_key or self.root / TRUSTED_KEYS
        )
        self.document, self.manifest = source.manifest(self.public_key)
        self.release = self.root / "releases" / self.manifest.version
        self.staged = self.root / ".incoming"
        self.lock: int | None = None

    def install(self) -> str:
        """Install the release; return what was done in one line.

        Raises:
            RefusedError: the release is refused.
        """
        root, version, expected = self.root, self.manifest.version, self.options.expect_version
        if expected is not None and version != expected:
            refuse(f"the release has version {version!r}, but the request is for {expected!r}")
        python = self._check()
        before, actions = linked(root), []
        with self._alone():
            complete = self.release / MANIFEST
            if not (complete.is_file() and complete.read_bytes() == self.document):
                self._build(python)
                actions.append("installed")
            if self.public_key is not None and not (root / TRUSTED_KEYS).exists():
                write(root / TRUSTED_KEYS, self.public_key.read_bytes())
            if self.options.switch == "yes" and before != version:
                for name in ("proven", "current"):
                    link(root, version, name)
                actions.append("switched to")
            # The caller that switches later may still have to roll back, and prunes by itself.
            if actions and self.options.switch == "yes":
                prune(root, before, version)
        return "{} release {} in {!r}".format(
            " and ".join(actions) or "nothing to do:", version, str(root)
        )

    def _check(self) -> Path:
        """Return the interpreter for the release.

        Raises:
            RefusedError: it is for another target, or older.
        """
        manifest, current = self.manifest, linked(self.root)
        if platform.machine() != manifest.arch:
            refuse(
                f"the release is for {manifest.arch}, this is {platform.machine()}: "
                "build one for it"
            )
        glibc = platform.libc_ver()
        if glibc[0] != "glibc" or version_numbers(glibc[1]) < version_numbers(manifest.glibc):
            refuse(
                f"the release needs glibc {manifest.glibc}, here is "
                f"{' '.join(glibc).strip() or 'none'}: build one for it"
            )
        if (
            current is not None
            and version_key(manifest.version) < version_key(current)
            and not self.options.allow_downgrade
        ):
            refuse(
                f"the release is version {manifest.version}, older than {current}, which runs: "
                "add --allow-downgrade"
            )
        if "%d.%d" % sys.version_info[:2] == manifest.python:  # noqa: UP031 - Python 3.8
            return Path(sys.executable)
        # A Python that was installed on a board whose own is too old.
        brought = sorted(self.root.glob("pythons/*/bin/python" + manifest.python))
        python = str(brought[0]) if brought else shutil.which("python" + manifest.python)
        if python is None:
            refuse(
                f"the release is for Python {manifest.python}, here is "
                f"{platform.python_version()}: build one for it"
            )
        return Path(python)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock of installations, so that nothing else writes.

        Child processes of an earlier installation hold it too.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        self.lock = os.open(
            str(self.root / ".install.lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600
        )
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX)
            # Left by an interrupted installation.
            remove(self.staged)
            yield
        finally:
            remove(self.staged)
            os.close(self.lock)

    def _build(self, python: Path) -> None:
        """Build the release in place; on failure it is removed."""
        if linked(self.root) == self.manifest.version:
            refuse(
                f"release {self.manifest.version} is running and is another build of the same "
                "version: raise the version"
            )
        self._stage()
        remove(self.release)
        self.release.parent.mkdir(exist_ok=True)
        try:
            self._run(
                "the virtual environment",
                [str(python), "-m", "venv", "--without-pip", str(self.release)],
            )
            wheels = [
                str(wheel)
                for wheel in self.staged.glob("wheels/*.whl")
                if not wheel.name.startswith("pip-")
            ]
            self._pip("install", "--no-deps", *OFFLINE, *wheels)
            self._pip("check")
            self._compile()
            self._run(
                "edgemeter --version",
                [
                    str(self.release / "bin/python"),
                    str(self.release / "bin/edgemeter"),
                    "--version",
                ],
            )
            # Each in a separate process, as its agent does before it reports that it is healthy.
            self._run(
                "the import of its runtimes",
                [str(self.release / "bin/python"), "-m", "edgemeter.agent.update.imports"],
            )
            self._finish()
        except BaseException:
            remove(self.release)
            raise

    def _stage(self) -> None:
        for entry in self.manifest.files:
            target = self.staged / entry.path
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as file:
                self.source.copy(entry, file)
        wheels = self.staged.glob("wheels/*.whl")
        unpacked_bytes = sum(
            part.file_size for wheel in wheels for part in zipfile.ZipFile(str(wheel)).infolist()
        )
        needed_bytes, free_bytes = (
            int(unpacked_bytes * COMPILED_RATIO) + SPARE_BYTES,
            shutil.disk_usage(str(self.root)).free,
        )
        if free_bytes < needed_bytes:
            sizes = (
                f"the release needs {needed_bytes >> 20} MiB below {str(self.root)!r}, "
                f"{free_bytes >> 20} MiB are free"
            )
            refuse(f"no space: {sizes}: remove something there (`sudo apt-get clean`)")

    def _pip(self, *arguments: str) -> None:
        pip = sorted(self.staged.glob("wheels/pip-*.whl"))
        if not pip:
            refuse("the release has no wheel of pip")
        command = [
            str(self.release / "bin/python"),
            "-m",
            "pip",
            "--disable-pip-version-check",
            *arguments,
        ]
        self._run(
            "pip " + arguments[0], command, PYTHONPATH=str(pip[0]), PIP_CONFIG_FILE=os.devnull
        )

    def _compile(self) -> None:
        """Write the bytecode of every module, so that boards are comparable.

        The agent's user may not write it, and boards are comparable only if all start from
        bytecode. It is valid whatever the times of the files become: nobody edits a release.
        """
        options = ["-q", "-q", "--invalidation-mode", "unchecked-hash", "-x", NEVER_IMPORTED]
        # Status 1: a wheel has a template or a file for another Python, which nothing imports.
        self._run(
            "compileall",
            [
                str(self.release / "bin/python"),
                "-m",
                "compileall",
                *options,
                str(self.release / "lib"),
            ],
            (0, 1),
        )

    def _run(
        self, task: str, command: list[str], fine: tuple[int, ...] = (0,), **variables: str
    ) -> None:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PIP_", "PYTHON", "EDGEMETER_"))
        }
        environment = {
            **inherited,
            "PYTHONNOUSERSITE": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            **variables,
        }
        try:
            completed = subprocess.run(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, timeout=STEP_S, check=False,
                pass_fds=() if self.lock is None else (self.lock,), cwd=str(self.root),
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            refuse(f"{task}: {error}")
        lines = [
            line.strip()
            for line in completed.stdout.decode(errors="replace").split("\n")
            if line.strip()
        ]
        if completed.returncode not in fine:
            refuse(
                f"{task} "
                f"{how_it_ended(completed.returncode)}{': ' + lines[-1][:400] if lines else ''}"
            )

    def _finish(self) -> None:
        for name in ("install.py", "supervisor.py", KEYS, "units"):
            source, target = self.staged / name, self.release / name
            if source.is_dir():
                shutil.copytree(str(source), str(target))
            elif source.exists():
                shutil.copyfile(str(source), str(target))
        # By the device's Python: it has to run if the environment of a release does not.
        self._run("its supervisor", [sys.executable, str(self.release / "supervisor.py"), "--help"])
        # All of it is on the disk before the manifest completes it: one file system only; glibc >=
        # 2.14.
        descriptor = os.open(str(self.root), os.O_RDONLY)
        failed = ctypes.CDLL(None, use_errno=True).syncfs(descriptor)
        os.close(descriptor)
        if failed:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(self.root))
        write(self.release / MANIFEST, self.document)


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the first two numbers in a text, fewer if it has fewer."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def linked(root: Path, name: str = "current") -> str | None:
    """Return the version that the link names.

    `current` is the running one, `proven` the one of the supervisor.
    """
    try:
        return Path(os.readlink(str(root / name))).name  # noqa: PTH115 - Python 3.8
    except OSError:
        return None


def link(root: Path, version: str, name: str = "current") -> None:
    """Make the link name that version, by one rename, and sync it."""
    new = root / f".{name}"
    with contextlib.suppress(FileNotFoundError):
        new.unlink()
    new.symlink_to(Path("releases") / version)
    os.replace(str(new), str(root / name))  # noqa: PTH105 - one name for all that replaces
    _sync_folder(root)


def prune(root: Path, *versions: str | None) -> None:
    """Remove every release except these and those that a link names.

    Releases that cannot be removed stay until the next time.
    """
    with contextlib.suppress(OSError):
        for path in (root / "releases").iterdir():
            if path.name not in (*versions, linked(root), linked(root, "proven")):
                remove(path)


def remove(path: Path) -> None:
    """Remove a release or its remains, its manifest first.

    Without its manifest it counts as incomplete.
    """
    with contextlib.suppress(OSError):
        (path / MANIFEST).unlink()
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(str(path))


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(str(folder), os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file atomically, and sync it."""
    part = path.with_name("." + path.name + ".part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.chmod(mode)
    os.replace(str(part), str(path))  # noqa: PTH105 - as in `link`
    _sync_folder(path.parent)


def main(arguments: Sequence[str] | None = None) -> int:
    """Install as given on the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        description="Install a release of the edgemeter agent, with no network."
    )
    parser.add_argument("--release", type=Path, required=True, help=".tar of the release")
    parser.add_argument(
        "--root", type=Path, default=Path("/opt/edgemeter"), help="default: %(default)s"
    )
    parser.add_argument(
        "--public-key", type=Path, help="key to verify it with, PEM; default: ROOT/release.pub"
    )
    parser.add_argument(
        "--unsigned",
        action="store_true",
        help="accept a release without a signature, from a trusted source",
    )
    parser.add_argument(
        "--switch",
        choices=("yes", "no"),
        default="yes",
        help="whether the release becomes the current one",
    )
    parser.add_argument("--allow-downgrade", action="store_true", help="allow an older version")
    parser.add_argument(
        "--expect-version", metavar="VERSION", help="refuse a release of any other version"
    )
    options = parser.parse_args(arguments)
    os.umask(0o022)
    try:
        with contextlib.closing(UnverifiedRelease(options.release)) as source:
            text = Installation(source, options).install()
    except (RefusedError, OSError, zipfile.BadZipFile) as error:
        sys.stderr.write("install: {}\n".format(" ".join(str(error).split())))
        return 1
    sys.stdout.write(f"install: {text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
