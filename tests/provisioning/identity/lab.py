"""A whole fleet on loopback.

It has the folder that `fleet init` makes, the real mosquitto with its configuration, the service,
and devices.
"""

import functools
import time
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path

from edgemeter.agent.base.broker_address import BrokerAddress, parse_address
from edgemeter.agent.base.tls import TlsFiles
from edgemeter.agent.identity import joining
from edgemeter.agent.identity.identity import IdentityFiles
from edgemeter.agent.machine.machine import recorded
from edgemeter.provisioning.identity.fleet_server import FleetServer
from edgemeter.provisioning.inventory import fleet_file
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve.service import FleetService
from tests.fixtures.fleet_command import run_fleet
from tests.fixtures.mqtt_peer import Peer
from tests.fixtures.servers import LOOPBACK, Server, free_port, mosquitto_binary

FLEET = "lab"


def open_tokens(registry: Registry) -> dict[str, str]:
    """Return the ids of the tokens that were not closed, by device."""
    return dict(map(tuple, registry.query("SELECT device, token_id FROM tokens")))


class Lab:
    """One fleet; everything that it starts ends with `stack`."""

    def __init__(
        self, folder: Path, stack: ExitStack, ports: tuple[int, int] | None = None
    ) -> None:
        self.path = folder
        self.stack = stack
        self.folder = FleetFolder(folder / "fleet")
        self.port, self.https_port = ports or (free_port(), free_port())
        ports = ["--port", str(self.port), "--https-port", str(self.https_port)]
        self.run(
            "init", "--broker", LOOPBACK, "--broker-name", "localhost", "--fleet", FLEET, *ports
        )
        self.registry = Registry(self.folder.registry)
        stack.callback(self.registry.close)

    @functools.cached_property
    def broker(self) -> Server:
        """The fleet's broker, not started: a test that uses it carries the marker `mosquitto`."""
        variable = f"OPENSSL_CONF={self.folder.broker / 'openssl.cnf'}"
        return Server(
            ["env", variable, mosquitto_binary(), "-c", str(self.folder.broker / "mosquitto.conf")],
            self.port,
        )

    def run(self, *arguments: object) -> str:
        """Return what an `edgemeter fleet` command says on stdout; raise what it raises."""
        return run_fleet(self.folder.path, *arguments).stdout

    def start(self) -> "Lab":
        self.start_broker()
        self.serve()
        return self

    def start_broker(self) -> None:
        self.broker.start()
        self.stack.callback(self.broker.kill)

    def restart_broker(self) -> None:
        """End the broker as systemd does, and start it again."""
        if self.broker.process is not None:
            self.broker.process.terminate()
            self.broker.process.wait(60)
        self.broker.start()

    def serve_boards(self) -> FleetServer:
        server = FleetServer(self.folder, fleet_file.read(self.folder.fleet_file).server)
        server.start()
        self.stack.callback(server.stop)
        return server

    def serve(self) -> FleetService:
        self.serve_boards()
        service = FleetService(self.folder, fleet_file.fleet_broker_address(self.folder))
        service.start()
        self.stack.callback(service.stop)
        return service

    def token(self, device: str, hours: float = 24.0) -> Path:
        """Return a new join file of `device`."""
        self.run("token", device, "--hours", hours, "--output", self.path / "cards")
        return self.path / "cards" / f"{device}.join.toml"

    def board(self, name: str, serial: str) -> "Board":
        return Board(self, self.path / "boards" / name, serial)

    def joined(self, device: str = "pi-1", serial: str = "100000001") -> "Board":
        board = self.board(device, serial)
        board.join(self.token(device))
        return board

    def service_client(self, name: str) -> Peer:
        """Return a client with the certificate of a service that hears all of the fleet."""
        peer = Peer(
            fleet_file.fleet_broker_address(self.folder, client=name),
            "edgemeter/v1/#",
            client_id=f"test-{name}",
        )
        self.stack.callback(peer.close)
        return peer


class Board:
    """One board: its serial number in a recorded tree, its card as a folder."""

    def __init__(self, lab: Lab, path: Path, serial: str) -> None:
        self.lab = lab
        self.home = path / "home"
        self.config = path / "config.toml"
        tree = path / "tree"
        serial_file = tree / "proc/device-tree/serial-number"
        serial_file.parent.mkdir(parents=True)
        serial_file.write_bytes(serial.encode() + b"\0")
        (tree / "proc/device-tree/model").write_text("A Board\0")
        self.machine = recorded(tree)

    @property
    def files(self) -> IdentityFiles:
        return IdentityFiles(self.home)

    def join(self, path: Path, patience_s: float = 120.0):
        return joining.join_fleet(path, self.home, self.config, self.machine, patience_s)

    def address(self) -> BrokerAddress:
        files = self.files
        return parse_address(
            f"mqtts://{LOOPBACK}:{self.lab.port}",
            tls=TlsFiles(files.ca, files.certificate, files.key),
        )

    def client(self, client_id: str, *topics: str) -> Peer:
        peer = Peer(self.address(), *topics, client_id=client_id)
        self.lab.stack.callback(peer.close)
        return peer


def now() -> datetime:
    return datetime.fromtimestamp(time.time(), timezone.utc)
