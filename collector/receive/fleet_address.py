"""The broker as the folder of `edgemeter fleet init` names it, with the collector's certificate: what `collector up --folder` takes."""

from pathlib import Path

import msgspec

from edgemeter.agent.base import broker_address
from edgemeter.agent.base.broker_address import BrokerAddress
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.tls import TlsFiles
from edgemeter.agent.base.toml import read_toml


class FleetServer(msgspec.Struct, frozen=True, kw_only=True):
    """Where the fleet's broker is."""

    broker: str
    broker_port: int = 8883


class FleetBroker(msgspec.Struct, frozen=True, kw_only=True):
    """The part of fleet.toml that a collector needs; `edgemeter fleet` checks the rest."""

    server: FleetServer | None = None


def fleet_address(folder: Path) -> BrokerAddress:
    """Return the broker of the fleet in `folder`.

    Raises:
        ConfigError: it is no fleet's folder, names no broker, or lacks the collector's certificate.
    """
    path = folder / "fleet.toml"
    server = read_toml(path, FleetBroker, "fleet file", "`edgemeter fleet init` writes one").server
    if server is None:
        raise ConfigError(f"{str(path)!r} names no broker: add [server] broker = ...")
    files = TlsFiles(folder / "ca.crt", folder / "collector.crt", folder / "collector.key")
    for file in (files.ca, files.certificate, files.key):
        if file is not None and not file.exists():
            raise ConfigError(f"{str(file)!r} is missing: `edgemeter fleet init` makes it, with that folder as its --folder")
    return broker_address.parse_address(f"mqtts://{server.broker}:{server.broker_port}", tls=files)
