"""The files of a fleet: certificates, keys, the broker's configuration, the registry, and content for devices.

They are in one folder on the server, readable by its owner only; `edgemeter fleet init` makes it.
"""

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.base import config


class _Within:
    """A file or folder below the fleet's own."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: "FleetFolder", _kind: type) -> Path:
        return folder.path / self._name


@dataclass(frozen=True, slots=True)
class FleetFolder:
    """The files of one fleet, below `path`; `broker_address` overrides that of fleet.toml on this machine."""

    path: Path
    broker_address: str | None = None

    # The inventory, written by people.
    fleet_file = _Within("fleet.toml")
    # The service's database of devices, jobs and releases (SQLite).
    registry = _Within("registry.sqlite")
    # The certificate of the fleet's authority and its private key, which signs device certificates, PEM.
    ca_certificate = _Within("ca.crt")
    ca_key = _Within("ca.key")
    # The list of revoked certificates (CRL, PEM) that the broker reads.
    revoked = _Within("revoked.crl")
    # The folder of the broker's configuration, rules, certificate and key; the service has the same certificate.
    broker = _Within("broker")
    # The folder in which a running broker finds a newer list of revoked certificates.
    revoked_lists = _Within("broker/revoked")
    # The private key that signs releases, PEM, which may be elsewhere than on the server; and the one that follows it during a rotation.
    release_key = _Within("release.key")
    next_release_key = _Within("release.next.key")
    # The public keys by which devices check releases, PEM; more than one while a rotation is open.
    release_public_key = _Within("release.pub")
    # The files that devices may fetch, each named by its sha256: models, suites, releases.
    content = _Within("content")

    def certificate(self, name: str) -> Path:
        """Return the certificate of a server-side client: `collector`, `fleet`, `operator`."""
        return self.path / f"{name}.crt"

    def key(self, name: str) -> Path:
        """Return the private key of a server-side client."""
        return self.path / f"{name}.key"

    @property
    def command(self) -> str:
        """The beginning of commands on this fleet: `edgemeter fleet`, with the folder where it is not the default."""
        return "edgemeter fleet" if self.path == default().path else f"edgemeter fleet --folder {shlex.quote(str(self.path))}"


def default() -> FleetFolder:
    """Return the folder in $EDGEMETER_FLEET_FOLDER, else `fleet` in edgemeter's data folder."""
    folder = os.environ.get("EDGEMETER_FLEET_FOLDER")
    return at(Path(folder).expanduser() if folder else config.home() / "fleet")


def at(path: Path) -> FleetFolder:
    """Return the folder at `path`, with the broker in $EDGEMETER_BROKER if that is set."""
    return FleetFolder(path, os.environ.get("EDGEMETER_BROKER") or None)
