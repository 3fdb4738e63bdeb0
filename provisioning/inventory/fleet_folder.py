"""The files of a fleet.

They are certificates, keys, the broker's configuration, the registry, and content for devices. They
are in one folder on the server, readable by its owner only; `edgemeter fleet init` makes it.
"""

import os
import shlex
from pathlib import Path

from edgemeter.agent.base import config


class FleetFolder:
    """The files of one fleet, below `path`.

    `broker_address` overrides that of fleet.toml on this machine.
    """

    def __init__(self, path: Path, broker_address: str | None = None) -> None:
        self.path = path
        self.broker_address = broker_address
        # The inventory, written by people.
        self.fleet_file = path / "fleet.toml"
        # The service's database of devices, jobs and releases (SQLite).
        self.registry = path / "registry.sqlite"
        # The certificate of the fleet's authority and its private key, which signs device
        # certificates, PEM.
        self.ca_certificate = path / "ca.crt"
        self.ca_key = path / "ca.key"
        # The revocation list (CRL, PEM) that the broker reads.
        self.revoked = path / "revoked.crl"
        # The folder of the broker's configuration, rules, certificate and key; the service has the
        # same certificate.
        self.broker = path / "broker"
        # The folder in which a running broker finds a newer revocation list.
        self.revoked_lists = path / "broker/revoked"
        # The private key that signs releases, PEM, which may be elsewhere than on the server.
        self.release_key = path / "release.key"
        # The public keys by which devices verify releases, PEM; two while the key is rotated.
        self.release_public_key = path / "release.pub"
        # The files that devices may download, each named by its sha256: models, suites, releases.
        self.content = path / "content"

    def certificate(self, name: str) -> Path:
        """Return the certificate of a server-side client: `collector`, `fleet`, `operator`."""
        return self.path / f"{name}.crt"

    def key(self, name: str) -> Path:
        """Return the private key of a server-side client."""
        return self.path / f"{name}.key"

    @property
    def command(self) -> str:
        """The beginning of commands on this fleet.

        It is `edgemeter fleet`, with the folder if it is not the default.
        """
        return (
            "edgemeter fleet"
            if self.path == default().path
            else f"edgemeter fleet --folder {shlex.quote(str(self.path))}"
        )


def default() -> FleetFolder:
    """Return the folder in $EDGEMETER_FLEET_FOLDER, else `fleet` in edgemeter's data folder."""
    folder = os.environ.get("EDGEMETER_FLEET_FOLDER")
    return at(Path(folder).expanduser() if folder else config.home() / "fleet")


def at(path: Path) -> FleetFolder:
    """Return the folder at `path`, with the broker in $EDGEMETER_BROKER if that is set."""
    return FleetFolder(path, os.environ.get("EDGEMETER_BROKER") or None)
