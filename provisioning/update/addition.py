"""Adds a bundle to the releases: verified by the fleet's key, then kept among the content."""

import tempfile
import time
from pathlib import Path

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.update import version_order
from edgemeter.provisioning.bundle import manifest
from edgemeter.provisioning.bundle.manifest import Verified
from edgemeter.provisioning.content.store import ContentStore
from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.update import releases
from edgemeter.provisioning.update.releases import Release


def look(folder: FleetFolder, path: Path) -> Verified:
    """Return the bundle (a folder or `.tar`) once signature and files are found right.

    Raises:
        ConfigError: it is none, is not signed by the fleet's release key, or its version cannot be compared with others.
    """
    found = manifest.read(path, folder.release_public_key)
    version_order.key(found.manifest.version)
    return found


def add(folder: FleetFolder, registry: Registry, found: Verified) -> Release:
    """Keep the bundle and return the release; one that is there already stays.

    Raises:
        ConfigError: it changed since it was looked at.
        UnavailableError: the content cannot be kept.
    """
    said = found.manifest
    name = f"edgemeter-{said.version}-{said.board}-{said.arch}-py{said.python}.tar".replace("+", "_")
    with tempfile.TemporaryDirectory(prefix="edgemeter-release-") as scratch:
        # Packed anew from checked files: the same release has the same bytes, whether it came as a folder or a tar.
        unpacked, packed = Path(scratch) / "files", Path(scratch) / name
        unpacked.mkdir()
        found.unpack(unpacked)
        manifest.pack(unpacked, packed)
        content = ContentStore(folder.content).put(packed)
    release = Release(
        content.sha256,
        content.size_bytes,
        name,
        said.version,
        said.board,
        said.arch,
        said.python,
        said.glibc,
        said.checked,
        said.built_ns,
        time.time_ns(),
    )
    with registry.transaction() as connection:
        releases.put(connection, release)
    return release


def of_version(registry: Registry, version: str | None) -> list[Release]:
    """Return the releases of a version, the newest one where none is named.

    `1.2.0` are all bundles of it, for whatever boards; what follows a `+` tells them apart, and `1.2.0+1a2b3c4d` is that one alone.

    Raises:
        ConfigError: there is none.
    """
    known = releases.read(registry)
    if not known:
        message = "there is no release yet: `edgemeter fleet release add BUNDLE` adds one that `edgemeter fleet bundle` has made"
        raise ConfigError(message)
    wanted = version or _public(known[0].version)
    found = [one for one in known if wanted in {one.version, _public(one.version)}]
    if not found:
        there = ", ".join(dict.fromkeys(_public(one.version) for one in known))
        message = f"there is no release {wanted!r}: there are {there}; `edgemeter fleet release add` adds one"
        raise ConfigError(message)
    return found


def _public(version: str) -> str:
    return version.partition("+")[0]
