"""Verifies that a message comes from the service of this device's fleet.

No broker can have forged or changed it.
"""

import ssl
from pathlib import Path

import msgspec

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.openssl import certificate_facts, is_signed_by
from edgemeter.agent.contract.health import RefusedOrders
from edgemeter.agent.contract.sealed import SERVICE_NAME, SealedMessage
from edgemeter.agent.identity.identity import IdentityFiles

# In the agent's data folder, written by the check of orders and read by the health report.
REFUSED_ORDERS_FILE = "refused-orders.json"


def read_refused_orders(home: Path) -> RefusedOrders | None:
    """Return the refused orders noted in that data folder, None if there are none.

    Damage counts as none.
    """
    return durable_file.read_if_any(home / REFUSED_ORDERS_FILE, RefusedOrders)


class _NewestService(msgspec.Struct, frozen=True, kw_only=True):
    """The end (s, UTC) of the newest known certificate of the service, and its authority (PEM)."""

    authority: str
    not_after_s: int


class ServiceSignature:
    """Verifies messages of the service by the fleet's authority, which came with the join file.

    A renewed certificate of the service is trusted at once, and its earlier one no longer: the
    newest is stored on the disk.
    """

    def __init__(self, files: IdentityFiles) -> None:
        self._authority = files.ca
        self._newest_file = files.folder / "service.json"
        # The certificate verified last, and its public key: a board sees the same one for years.
        self._certificate: str | None = None
        self._key = b""

    def verified(self, sealed: SealedMessage, title: str) -> bytes:
        """Return the message in the envelope; `title` names it in errors.

        Raises:
            ConfigError: the fleet's service has not signed it, or this device belongs to no fleet.
            UnavailableError: there is no openssl, or a file cannot be written.
        """
        if not self._authority.is_file():
            raise ConfigError(
                f"{title} arrived, but this device has joined no fleet: join one "
                "with `edgemeter agent join`"
            )
        if sealed.certificate != self._certificate:
            self._key, self._certificate = (
                self._key_of(sealed.certificate, title),
                sealed.certificate,
            )
        document = bytes(sealed.message)
        if not is_signed_by(self._key, document, sealed.signature):
            raise ConfigError(f"{title} is not signed by the service of this device's fleet")
        return document

    def _key_of(self, certificate: str, title: str) -> bytes:
        facts = certificate_facts(certificate.encode(), self._authority)
        if facts is None or facts.get("subject") != f"CN={SERVICE_NAME}":
            raise ConfigError(
                f"{title} is not signed by the service of this device's fleet: its certificate "
                "is another's"
            )
        authority, not_after_s = (
            self._authority.read_text(),
            ssl.cert_time_to_seconds(facts["notAfter"]),
        )
        newest = durable_file.read_struct(
            self._newest_file, _NewestService, "note on the fleet's service", "delete it"
        )
        newest_s = newest.not_after_s if newest is not None and newest.authority == authority else 0
        if newest_s > not_after_s:
            raise ConfigError(
                f"{title} is signed with an earlier key of the fleet's service: where that is "
                "the true service, restored from a backup, "
                "delete fleet.crt and fleet.key there and run `edgemeter fleet init`"
            )
        if newest_s < not_after_s:
            durable_file.write(
                self._newest_file,
                msgspec.json.encode(_NewestService(authority=authority, not_after_s=not_after_s)),
            )
        return facts["key"].encode()
