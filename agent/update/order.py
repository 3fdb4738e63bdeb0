"""Carries out the order to go to a release: checks what can be checked here (its signed manifest), then asks the supervisor."""

import logging
import platform
import re
import shutil
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.base.figures import count
from edgemeter.agent.base.file_lock import is_locked
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.base.openssl import is_signed_by
from edgemeter.agent.contract.orders import Order, Update, version_key
from edgemeter.agent.update.release import RUNNING_RELEASE, UPDATE_FOLDER, InstalledRelease, bad_versions, interrupted_update, last_outcome

logger = logging.getLogger(__name__)

REQUEST_FILE, WITHDRAWN_FILE = "wanted.json", "withdrawn.json"
LARGEST_MANIFEST_BYTES, LARGEST_SIGNATURE_BYTES = 1 << 20, 1 << 10
# More than one while the fleet's key is rotated.
PUBLIC_KEY = re.compile(rb"-----BEGIN PUBLIC KEY-----[^-]{1,4096}-----END PUBLIC KEY-----\r?\n?")
_LOWEST = re.compile(rb"# edgemeter release keys, [^\n]*, lowest ([0-9][A-Za-z0-9.+]{0,63})\n")


class ReleaseFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of the release; the installer reads it."""

    path: str
    sha256: str
    size_bytes: int


class ReleaseManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of `manifest.json`."""

    schema: int
    name: str
    version: str
    board: str
    arch: str
    python: str
    glibc: str
    files: tuple[ReleaseFile, ...]
    built_ns: int


def read_manifest(archive: Path, release: InstalledRelease) -> ReleaseManifest:
    """Return the manifest of the release once its signature is found right.

    Raises:
        ConfigError: it is not a release, or not signed by the key of this device's fleet.
        UnavailableError: the key or openssl is not here.
    """
    document, signature = _parts(archive)
    _verify(archive, document, signature, release.public_key)
    try:
        return decode_json(document, ReleaseManifest)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"the manifest of {archive.name!r} has a form this agent does not know ({error}): rebuild the release") from error


def refuse_unfit(manifest: ReleaseManifest, root: Path) -> None:
    """Find out whether it runs here; raises ConfigError if it is for another processor, another Python or a newer C library."""
    if manifest.arch != platform.machine():
        raise ConfigError(f"the release is for {manifest.arch}, this device is {platform.machine()}: order the release for it")
    has_python = f"{sys.version_info.major}.{sys.version_info.minor}" == manifest.python or shutil.which(f"python{manifest.python}")
    if not has_python and not any(root.glob(f"pythons/*/bin/python{manifest.python}")):
        raise ConfigError(
            f"the release is for Python {manifest.python}, this device has {platform.python_version()}: order the release for it"
        )
    library, version = platform.libc_ver()
    if library != "glibc" or _numbers(version) < _numbers(manifest.glibc):
        raise ConfigError(f"the release needs glibc {manifest.glibc}, this device has {version or 'none'}: order the release for it")


def _parts(archive: Path) -> tuple[bytes, bytes]:
    content_by_name: dict[str, bytes] = {}
    limit_by_name = {"manifest.json": LARGEST_MANIFEST_BYTES, "manifest.sig": LARGEST_SIGNATURE_BYTES}
    try:
        with tarfile.open(archive, "r:") as tar:
            for member in tar:
                file = (
                    tar.extractfile(member)
                    if member.isreg() and member.name in limit_by_name and member.name not in content_by_name
                    else None
                )
                if file is not None:
                    content_by_name[member.name] = file.read(limit_by_name[member.name] + 1)
    except (OSError, tarfile.TarError, ValueError, EOFError) as error:
        raise ConfigError(f"{archive.name!r} is not a release ({error}): order one made by `edgemeter fleet release build`") from error
    for name, most_bytes in limit_by_name.items():
        if not 0 < len(content_by_name.get(name, b"")) <= most_bytes:
            raise ConfigError(f"{archive.name!r} is not a release (no usable {name}): order one made by `edgemeter fleet release build`")
    return content_by_name["manifest.json"], content_by_name["manifest.sig"]


def _verify(archive: Path, document: bytes, signature: bytes, public_key: Path) -> None:
    try:
        keys = PUBLIC_KEY.findall(public_key.read_bytes())
    except OSError as error:
        raise UnavailableError(f"there is no key {str(public_key)!r} to check releases by: apply the fleet to this device again") from error
    if not any(is_signed_by(key, document, signature) for key in keys):
        raise ConfigError(f"the release {archive.name!r} is not signed by this device's fleet ({str(public_key)!r}): it is rejected")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def check(update: Update, home: Path, release: InstalledRelease | None = RUNNING_RELEASE) -> None:
    """Find out whether the order can be carried out, before anything is fetched.

    Raises:
        ConfigError: the version is older than the one that runs, or failed here before, and the order does not say that it may be; or it
            is older than the signed release keys allow, whatever the order says.
        UnavailableError: no supervisor runs to switch releases.
    """
    running = _supervised(home, release)
    if update.version != running.version and version_key(update.version) < version_key(running.version) and "older" not in update.even_if:
        raise ConfigError(f"version {update.version} is older than the running {running.version}: allow it with `--even-if older`")
    named = _LOWEST.match(running.public_key.read_bytes()) if running.public_key.is_file() else None
    lowest = named[1].decode() if named else update.version
    if version_key(update.version) < version_key(lowest):
        raise ConfigError(f"version {update.version} is older than {lowest}, the lowest that the fleet's release keys allow")
    why = bad_versions(home).get(update.version)
    if why is not None and "bad" not in update.even_if:
        raise ConfigError(f"version {update.version} failed here before ({why}): try it again with `--even-if bad`")


def carry_out(order: Order, archive: Path, home: Path, release: InstalledRelease | None = RUNNING_RELEASE) -> None:
    """Hand the update over to the supervisor; may be called again for the same order. `archive` is its content, whole, in `home`.

    Raises:
        ConfigError: as `check`; it is not an update, or the release is not signed by the fleet, is for another device or version.
        UnavailableError: there is no supervisor to switch releases, or the update request cannot be written.
    """
    update = order.work
    if not isinstance(update, Update):
        raise ConfigError(f"the job {order.job!r} is not an update")
    if came_of(order, home) is not None:
        return
    check(update, home, release)
    running = _supervised(home, release)
    manifest = read_manifest(archive, running)
    if manifest.version != update.version:
        raise ConfigError(f"the release holds version {manifest.version}, but {update.version} was ordered: order the release's version")
    refuse_unfit(manifest, running.root)
    request = {
        "job": order.job,
        "attempt": order.attempt,
        "version": update.version,
        "sha256": update.bundle.sha256,
        "size_bytes": update.bundle.size_bytes,
        "timeout_s": max(1, int(order.timeout_s)),
        "even_if": ",".join(sorted(set(update.even_if))),
    }
    _ask(home / UPDATE_FOLDER / REQUEST_FILE, request)


def _ask(path: Path, request: Mapping[str, object]) -> None:
    try:
        with durable_file.replacing(path, 0o644) as file:
            file.write(msgspec.json.encode(request))
    except OSError as error:
        raise UnavailableError(f"cannot write the update request {str(path)!r}: {error.strerror}") from error


def came_of(order: Order, home: Path) -> tuple[Literal["done", "failed"], str] | None:
    """Return how the update of this order ended, and why; None while it goes on."""
    outcome = last_outcome(home)
    if outcome is None or (outcome.job, outcome.attempt) != (order.job, order.attempt):
        return None
    return outcome.state, outcome.reason


def withdraw(order: Order, home: Path) -> None:
    """Withdraw the update request: the supervisor ends the update, unless it tries the release already."""
    if came_of(order, home) is None:
        try:
            _ask(home / UPDATE_FOLDER / WITHDRAWN_FILE, {"job": order.job, "attempt": order.attempt})
        except UnavailableError as error:
            logger.warning("the update of job %s goes on, because it cannot be withdrawn: %s", order.job, error)


def why_waiting(order: Order, home: Path, release: InstalledRelease | None = RUNNING_RELEASE) -> str | None:
    """Return why an update takes long: no supervisor runs, or its installation was interrupted; None where neither is so."""
    if release is None or not is_locked(release.lock):
        return "waiting for edgemeter-supervisor.service, which does not run"
    interrupted = interrupted_update(home)
    if interrupted is None or (interrupted.job, interrupted.attempt) != (order.job, order.attempt):
        return None
    return f"interrupted {count(interrupted.times, 'time')}, resuming"


def _supervised(home: Path, release: InstalledRelease | None) -> InstalledRelease:
    if release is None:
        raise UnavailableError("this agent is not a release below /opt/edgemeter: update it the way it was installed")
    if not (home / UPDATE_FOLDER).is_dir():
        raise UnavailableError(f"no supervisor ever ran for {str(release.root)!r}: start edgemeter-supervisor.service on the device")
    return release
