"""Releases in the registry: signed files in the fleet's content, one row each.

A version has one release for each kind of board.
"""

import time
from dataclasses import astuple, dataclass

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.orders import version_key
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.release.release_file import ReleaseFile
from edgemeter.provisioning.serve.content_store import ContentStore


@dataclass(frozen=True, slots=True)
class Release:
    """One release: its content, version and target."""

    sha256: str
    size_bytes: int
    name: str
    version: str
    board: str
    arch: str
    python: str
    glibc: str
    built_ns: int
    added_ns: int


def read_releases(registry: Registry) -> list[Release]:
    """Return every release, newest version first.

    For one version and target the latest build comes first.
    """
    releases = [
        Release(**row)
        for row in registry.query(
            "SELECT * FROM releases ORDER BY board, python, built_ns DESC, sha256"
        )
    ]
    return sorted(releases, key=lambda release: version_key(release.version), reverse=True)


def add_release(folder: FleetFolder, registry: Registry, verified: ReleaseFile) -> None:
    """Store the file, unless it exists; raises as `ContentStore.put`."""
    fields = verified.manifest
    name = f"edgemeter-{fields.version}-{fields.board}-{fields.arch}-py{fields.python}.tar".replace(
        "+", "_"
    )
    content = ContentStore(folder.content).put(verified.path, name)
    # Version, board, arch, Python and glibc come first in both.
    release = Release(
        content.sha256, content.size_bytes, name, *fields[:5], fields.built_ns, time.time_ns()
    )
    with registry.transaction() as connection:
        connection.execute(
            "INSERT INTO releases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            astuple(release),
        )


def releases_of_version(registry: Registry, version: str | None) -> list[Release]:
    """Return the releases of a version, by default of the newest.

    `1.2.0` selects all its releases, for any board; `1.2.0+1a2b3c4d` selects one of them.

    Raises:
        ConfigError: there is no release.
    """
    releases = read_releases(registry)
    if not releases:
        raise ConfigError(
            "there is no release yet: `edgemeter fleet release add FILE` adds one built by "
            "`edgemeter fleet release build`"
        )
    wanted_version = version or _public(releases[0].version)
    matching = [
        release
        for release in releases
        if wanted_version in {release.version, _public(release.version)}
    ]
    if not matching:
        versions = ", ".join(dict.fromkeys(_public(release.version) for release in releases))
        raise ConfigError(
            f"unknown release {wanted_version!r}: there are {versions}; `edgemeter fleet release "
            "add` adds one"
        )
    return matching


def _public(version: str) -> str:
    return version.partition("+")[0]
