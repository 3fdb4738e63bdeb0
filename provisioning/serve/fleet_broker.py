"""The fleet's own broker, as the server's commands reach it: with the certificate that `edgemeter fleet init` made for them."""

from edgemeter.agent.delivery import broker_address
from edgemeter.agent.delivery.broker_address import BrokerAddress
from edgemeter.agent.delivery.credentials import TlsFiles
from edgemeter.agent.errors import ConfigError
from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.inventory import fleet_file


def address(folder: FleetFolder, said: str | None = None, client: str = "fleet") -> BrokerAddress:
    """Return the address of `said`, of the folder's broker, or of the one in fleet.toml; over TLS with the certificate of `client`.

    Raises:
        ConfigError: no broker is named, or a file is missing.
    """
    said = said or folder.broker_address
    if said is None:
        server = fleet_file.read(folder.fleet_file).server
        if server is None:
            message = f"{str(folder.fleet_file)!r} names no broker: add [server] broker = ..., or give --broker HOST"
            raise ConfigError(message)
        said = f"mqtts://{server.broker}:{server.broker_port}"
    if not said.startswith("mqtts://"):
        return broker_address.parse(said)
    return broker_address.parse(said, tls=TlsFiles(folder.ca_certificate, folder.certificate(client), folder.key(client)))
