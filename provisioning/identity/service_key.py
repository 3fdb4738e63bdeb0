"""The service's own key, by which it signs what boards obey: orders, receipts for their reports, answers to their requests."""

from typing import TYPE_CHECKING

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.sealed import encode_sealed
from edgemeter.provisioning.identity import authority
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder

if TYPE_CHECKING:
    from collections.abc import Callable


class ServiceKey:
    """Signs by `fleet.key`, which is read when it is first needed; a renewed one is used after a restart of the service."""

    def __init__(self, folder: FleetFolder) -> None:
        self._folder = folder
        self._certificate = ""
        self._sign: Callable[[bytes], bytes] | None = None

    def seal(self, document: bytes) -> bytes:
        """Return the payload that carries the signed `document`, which is JSON.

        Raises:
            ConfigError: the fleet's folder has no key of the service, or no readable one.
            UnavailableError: the library for keys is not installed.
        """
        if self._sign is None:
            certificate, key = self._folder.certificate("fleet"), self._folder.key("fleet")
            try:
                self._certificate, private = certificate.read_text(), key.read_bytes()
            except OSError as error:
                raise ConfigError(
                    f"cannot sign orders: {str(error.filename)!r}: {error.strerror}: `edgemeter fleet init` makes it"
                ) from error
            self._sign = authority.signer(private)
        return encode_sealed(document, self._sign(document), self._certificate)
