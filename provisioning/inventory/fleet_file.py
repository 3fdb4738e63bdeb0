"""`fleet.toml`: the devices and the server of a fleet as people write them.

`sample_fleet.toml` next to this file shows every key.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from edgemeter.agent.base import broker_address
from edgemeter.agent.base.broker_address import BrokerAddress
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.tls import TlsFiles
from edgemeter.agent.base.toml import read_toml
from edgemeter.agent.base.types import Name
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry.registry import Registry

SAMPLE = Path(__file__).with_name("sample_fleet.toml")
# A label that a selection can name: `board=pi5 & coral`.
Tag = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")]


class DeviceEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One device: its type, and its address for SSH (`host`, `user`, `port`)."""

    board: Tag | None = None
    serial: str | None = None
    tags: tuple[Tag, ...] = ()
    host: str | None = None
    user: str | None = None
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] | None = None


class ServerEntry(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """The addresses for devices: the broker, and the fleet's service over HTTPS.

    The service has certificates and content. `service` is the service's host if it differs from the
    broker's; `names` are further ones of both. `accept`: `token` is enough to join, or approval by
    `hand` is required.
    """

    broker: str
    broker_port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 8883
    service: str | None = None
    https_port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 8443
    names: tuple[str, ...] = ()
    accept: Literal["token", "hand"] = "token"

    @property
    def broker_url(self) -> str:
        return f"mqtts://{_in_url(self.broker)}:{self.broker_port}"

    @property
    def service_host(self) -> str:
        return self.service or self.broker

    @property
    def service_url(self) -> str:
        return f"https://{_in_url(self.service_host)}:{self.https_port}"


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class FleetFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    fleet: Name
    server: ServerEntry
    device: dict[Name, DeviceEntry] = {}


def read(path: Path) -> FleetFile:
    """Return the fleet file at `path`.

    Raises:
        ConfigError: it cannot be read, has a wrong or unknown key, or two devices have one serial.
    """
    fleet_file = read_toml(path, FleetFile, "fleet file", "`edgemeter fleet init` writes one")
    for fault in faults(fleet_file):
        raise ConfigError(f"fleet file {str(path)!r}: {fault}")
    return fleet_file


def faults(fleet_file: FleetFile, _path: Path | None = None) -> Iterator[str]:
    """Yield the faults of a file with valid keys: two devices with one serial."""
    serials: dict[str, str] = {}
    for name, device in fleet_file.device.items():
        if device.serial is not None and serials.setdefault(device.serial, name) != name:
            yield f"{serials[device.serial]!r} and {name!r} have the same serial {device.serial!r}"


def read_if_present(folder: FleetFolder) -> FleetFile | None:
    """Return fleet.toml, None if it is absent.

    Raises:
        ConfigError: it has a wrong or unknown key.
    """
    return read(folder.fleet_file) if folder.fleet_file.exists() else None


def fleet_broker_address(folder: FleetFolder, client: str = "fleet") -> BrokerAddress:
    """Return the broker's address of the folder, else of fleet.toml.

    It is used with `client`'s certificate.

    Raises:
        ConfigError: there is no address.
    """
    broker = folder.broker_address
    if broker is None:
        broker = read(folder.fleet_file).server.broker_url
    files = (
        TlsFiles(folder.ca_certificate, folder.certificate(client), folder.key(client))
        if broker.startswith("mqtts://")
        else None
    )
    remedy = (
        "start the fleet's broker (`sudo systemctl start edgemeter-broker`), or correct `broker` "
        "in fleet.toml"
    )
    return replace(broker_address.parse_address(broker, tls=files), if_silent=remedy)


def open_registry(folder: FleetFolder, *, read_only: bool = False) -> Registry:
    """Return a fleet's registry, a context manager.

    Raises:
        ConfigError: it is absent or damaged.
    """
    return Registry(folder.registry, "read" if read_only else "write")
