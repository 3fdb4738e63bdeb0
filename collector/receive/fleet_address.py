"""The broker of the fleet in the folder of `edgemeter fleet init`.

It has the collector's certificate, for `collector up --folder`.
"""

from pathlib import Path

import msgspec

from edgemeter.agent.base.broker_address import BrokerAddress, parse_address
from edgemeter.agent.base.tls import TlsFiles
from edgemeter.agent.base.toml import read_toml


class _FleetServer(msgspec.Struct, frozen=True):
    broker: str
    broker_port: int = 8883


class _FleetFile(msgspec.Struct, frozen=True):
    server: _FleetServer


def fleet_address(folder: Path) -> BrokerAddress:
    """Return the broker of the fleet in `folder`.

    It raises ConfigError if there is none, or the collector's certificate is missing.
    """
    server = read_toml(
        folder / "fleet.toml", _FleetFile, "fleet file", "`edgemeter fleet init` writes one"
    ).server
    return parse_address(
        f"mqtts://{server.broker}:{server.broker_port}",
        tls=TlsFiles(folder / "ca.crt", folder / "collector.crt", folder / "collector.key"),
    )
