"""The files of a fleet: certificates, keys, the broker's configuration, the registry, and content for devices.

They are in one folder on the server, readable by its owner only; `edgemeter fleet init` makes it.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.base import config


@dataclass(frozen=True, slots=True)
class FleetFolder:
    """The files of one fleet, below `path`; `broker_address` overrides that of fleet.toml on this machine."""

    path: Path
    broker_address: str | None = None

    @property
    def fleet_file(self) -> Path:
        """The inventory, written by people: `fleet.toml`."""
        return self.path / "fleet.toml"

    @property
    def registry(self) -> Path:
        """The service's database of devices, jobs, campaigns and releases (SQLite)."""
        return self.path / "registry.sqlite"

    @property
    def ca_certificate(self) -> Path:
        """The certificate of the fleet's authority, PEM."""
        return self.path / "ca.crt"

    @property
    def ca_key(self) -> Path:
        """The private key of the fleet's authority, PEM; it signs device certificates."""
        return self.path / "ca.key"

    @property
    def revoked(self) -> Path:
        """The list of revoked certificates (CRL, PEM) that the broker reads."""
        return self.path / "revoked.crl"

    @property
    def broker_access(self) -> Path:
        """The file of mosquitto's dynamic-security plug-in: tokens and revoked devices. A running broker writes it itself."""
        return self.broker / "access.json"

    @property
    def revoked_lists(self) -> Path:
        """The folder in which a running broker finds a newer list of revoked certificates."""
        return self.broker / "revoked"

    @property
    def release_key(self) -> Path:
        """The private key that signs releases, PEM; it may be elsewhere than on the server."""
        return self.path / "release.key"

    @property
    def next_release_key(self) -> Path:
        """The private key that follows it, while a rotation is open."""
        return self.path / "release.next.key"

    @property
    def release_public_key(self) -> Path:
        """The public keys by which devices check releases, PEM; more than one while a rotation is open."""
        return self.path / "release.pub"

    @property
    def broker(self) -> Path:
        """The folder of the broker's configuration, ACL, access, certificate and key."""
        return self.path / "broker"

    @property
    def restored(self) -> Path:
        """The note that the folder comes from a backup (JSON), there until people have settled what happened since."""
        return self.path / "restored.json"

    @property
    def status(self) -> Path:
        """How the broker and the collector are, as the service last saw them (JSON)."""
        return self.path / "status.json"

    @property
    def content(self) -> Path:
        """The files that devices may fetch, each named by its sha256: models, suites, releases."""
        return self.path / "content"

    def certificate(self, name: str) -> Path:
        """Return the certificate of a server-side client: `collector`, `fleet`, `operator`."""
        return self.path / f"{name}.crt"

    def key(self, name: str) -> Path:
        """Return the private key of a server-side client."""
        return self.path / f"{name}.key"


def default() -> FleetFolder:
    """Return the folder in $EDGEMETER_FLEET_FOLDER, else `fleet` in edgemeter's data folder."""
    folder = os.environ.get("EDGEMETER_FLEET_FOLDER")
    return at(Path(folder).expanduser() if folder else config.home() / "fleet")


def at(path: Path) -> FleetFolder:
    """Return the folder at `path`, with the broker in $EDGEMETER_BROKER if that is set."""
    return FleetFolder(path, os.environ.get("EDGEMETER_BROKER") or None)
