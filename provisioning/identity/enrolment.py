"""Enrolment: decides on certificates.

It decides by the token, the inventory and the known facts about the board. A name is a label and a
board's serial number the identity: the same board with a new key was flashed again and keeps its
name; the same key on another board is a copied card, which needs its own key and name.
"""

import hashlib
import logging
from dataclasses import dataclass, replace
from typing import Literal

from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.base.statements import Statements
from edgemeter.agent.contract import identity
from edgemeter.agent.contract.identity import CertificateRequest, EnrolmentAnswer
from edgemeter.provisioning.identity import authority
from edgemeter.provisioning.identity.authority import Authority, SigningRequest
from edgemeter.provisioning.inventory.fleet_file import DeviceEntry, FleetFile
from edgemeter.provisioning.registry import certificates, devices, jobs
from edgemeter.provisioning.registry.certificates import (
    Certificate,
    EnrolmentRequest,
    EnrolmentToken,
)
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.release import boards

logger = logging.getLogger(__name__)

# A board that requests in a loop does not fill the registry.
MOST_A_DAY = 10

# A board that used its new certificate may be reset to an older state of its card: the previous one
# stays valid for this long.
RENEWED_GRACE_NS = 7 * NS_PER_DAY


@dataclass(frozen=True, slots=True)
class Enrolment:
    """The rules, on one registry; every method is one transaction."""

    registry: Registry
    signing: Authority
    fleet_file: FleetFile

    def with_token(self, asking: CertificateRequest, now_ns: int) -> EnrolmentAnswer:
        """Return the answer to a board with a token; raises ConfigError if its CSR is invalid."""
        with self.registry.transaction() as statements:
            token = certificates.find_token(self.registry, identity.token_id(asking.token or ""))
            if token is None or token.expires_ns <= now_ns:
                reason = (
                    "this token was used, has expired or is another fleet's: make another with "
                    "`edgemeter fleet token`"
                )
                return EnrolmentAnswer(state="refused", now_ns=now_ns, reason=reason)
            request, enrolment = _read(asking, token.device, token.fleet, now_ns, token.token_id)
            if request.common_name not in {None, token.device}:
                return _refused(
                    enrolment,
                    f"this token is for device {token.device!r}, not for {request.common_name!r}",
                )
            if token.key_sha256 not in {None, request.key_sha256}:
                return _refused(
                    enrolment,
                    "this token was used with another key: make another with "
                    "`edgemeter fleet token`",
                )
            if (certificate := self._held(enrolment, token)) is not None:
                return _accepted(enrolment, certificate, token.fleet)
            answer = self._by_decision(statements, enrolment, request) or self._judged(
                statements, enrolment
            )
            return answer or self._issue(statements, enrolment, request, token.device)

    def with_certificate(
        self, device: str, asking: CertificateRequest, now_ns: int
    ) -> EnrolmentAnswer:
        """Return the answer to a device with a certificate.

        It is a new certificate, or pending for another board. It raises ConfigError as `_read`.
        """
        with self.registry.transaction() as statements:
            registered = devices.find(self.registry, device)
            request, enrolment = _read(
                asking, device, registered.fleet if registered else "", now_ns
            )
            if request.common_name != device:
                return _refused(
                    enrolment, f"device {device!r} cannot ask for the name {request.common_name!r}"
                )
            if registered is None or registered.trust != "accepted":
                return _refused(
                    enrolment, f"{device!r} is not an accepted device: ask the fleet's operator"
                )
            if registered.serial == asking.serial:
                return self._renewed(statements, enrolment, request)
            return self._cloned(statements, registered, enrolment, request)

    def confirmed(self, device: str, number: str, now_ns: int) -> None:
        """End the token and the earlier certificates of a device.

        The device has connected with this certificate.
        """
        with self.registry.transaction() as statements:
            used = next(
                (
                    certificate
                    for certificate in self._valid(device)
                    if certificate.number == number
                ),
                None,
            )
            if used is None:
                return
            certificates.end_token(statements, "key_sha256", used.key_sha256)
            reason = "the device uses a newer certificate"
            if certificates.revoke(
                statements, device, now_ns + RENEWED_GRACE_NS, reason, before=used
            ):
                logger.info(
                    "%r uses certificate %s: its earlier ones end in %d days",
                    device,
                    number,
                    RENEWED_GRACE_NS // NS_PER_DAY,
                )

    def _valid(self, device: str) -> list[Certificate]:
        return [
            certificate
            for certificate in certificates.of_device(self.registry, device)
            if certificate.revoked_ns is None
        ]

    def _renewed(
        self, statements: Statements, enrolment: EnrolmentRequest, request: SigningRequest
    ) -> EnrolmentAnswer:
        valid, now_ns = self._valid(enrolment.device), enrolment.asked_ns
        # A device renews at two thirds of its certificate's lifetime. A request before half of it
        # repeats one whose answer was lost.
        if (
            valid
            and valid[0].key_sha256 == request.key_sha256
            and 2 * now_ns <= valid[0].issued_ns + valid[0].not_after_ns
        ):
            return _accepted(enrolment, valid[0])
        if sum(now_ns - certificate.issued_ns < NS_PER_DAY for certificate in valid) >= MOST_A_DAY:
            reason = (
                f"{MOST_A_DAY} certificates of {enrolment.device!r} were issued within a day: "
                "check what this board does"
            )
            return _refused(enrolment, reason)
        issued = self.signing.issue_device(request, enrolment.device, enrolment.serial, now_ns)
        certificates.put(statements, issued)
        return _accepted(enrolment, issued)

    def _cloned(
        self,
        statements: Statements,
        registered: Device,
        enrolment: EnrolmentRequest,
        request: SigningRequest,
    ) -> EnrolmentAnswer:
        owners = certificates.of_key(self.registry, enrolment.key_sha256)
        if any(owner.serial != enrolment.serial for owner in owners):
            board = f"the board {registered.device!r} with serial {registered.serial!r}"
            return _answer(
                enrolment,
                "again",
                f"this key belongs to {board}; a copied card needs a key of its own",
            )
        certificate = next((owner for owner in owners if owner.revoked_ns is None), None)
        if certificate is not None:
            owner = devices.find(self.registry, certificate.device)
            return _accepted(enrolment, certificate, owner.fleet if owner else None)
        why = (
            f"a copied card: it has the key of {registered.device!r}, whose board has serial "
            f"{registered.serial!r}"
        )
        return self._by_decision(statements, enrolment, request) or self._pending(
            statements, enrolment, why
        )

    def _held(self, enrolment: EnrolmentRequest, token: EnrolmentToken) -> Certificate | None:
        """Return the certificate of this board for this key.

        It may have been accepted under another name than the token's.
        """
        for certificate in certificates.of_key(self.registry, enrolment.key_sha256):
            is_of_claim = (
                certificate.device == token.device or token.key_sha256 == enrolment.key_sha256
            )
            if (
                certificate.serial == enrolment.serial
                and is_of_claim
                and certificate.revoked_ns is None
            ):
                return certificate
        return None

    def _by_decision(
        self, statements: Statements, enrolment: EnrolmentRequest, request: SigningRequest
    ) -> EnrolmentAnswer | None:
        """Return the answer to a board that waits for a person or was decided on.

        It is None for any other board, and for another key of it.
        """
        before = certificates.find_request(self.registry, enrolment.request)
        if before is None:
            return None
        if before.decision == "rejected":
            return _refused(enrolment, "the fleet's operator rejected this board")
        if before.key_sha256 != enrolment.key_sha256:
            return None
        if before.decision is None:
            return self._pending(statements, enrolment, before.why)
        certificates.delete_request(statements, before.request)
        return self._issue(statements, enrolment, request, before.name or before.device)

    def _judged(
        self, statements: Statements, enrolment: EnrolmentRequest
    ) -> EnrolmentAnswer | None:
        """Return a refusal or a pending answer; None if the token is enough."""
        device, serial = enrolment.device, enrolment.serial
        owners = certificates.of_key(self.registry, enrolment.key_sha256)
        if owners:
            reason = (
                f"this key belongs to device {owners[0].device!r} with serial "
                f"{owners[0].serial!r}: make a new one"
            )
            return _answer(enrolment, "again", reason)
        registered = devices.find(self.registry, device)
        if registered is not None and registered.trust == "revoked":
            return _refused(
                enrolment,
                f"device {device!r} was revoked: `edgemeter fleet accept {device}` re-admits it",
            )
        other = devices.find_by_serial(self.registry, serial)
        if other is not None and other.device != device and other.trust != "revoked":
            reason = (
                f"the board with serial {serial!r} is device {other.device!r}: make a "
                "token for that device"
            )
            if enrolment.serial_source == "installation":
                # Copies of one system or container image share it.
                reason += (
                    "; or, if its system is a copy, give it an /etc/machine-id of its own "
                    "(delete that, `systemd-machine-id-setup`)"
                )
            return _refused(enrolment, reason)
        why = self._doubt(registered, enrolment)
        return None if why is None else self._pending(statements, enrolment, why)

    def _doubt(self, registered: Device | None, enrolment: EnrolmentRequest) -> str | None:
        entry, serial = self._entry(enrolment.device), enrolment.serial
        if entry.serial is not None and entry.serial != serial:
            return f"fleet.toml names serial {entry.serial!r}, the board reports {serial!r}"
        if registered is not None and registered.serial not in {None, serial}:
            doubtful = (
                "; that number changes when the card is flashed again"
                if enrolment.serial_source in {"installation", "made"}
                else ""
            )
            return (
                f"{enrolment.device!r} is the board with serial {registered.serial!r}, and "
                f"{serial!r} requests its name{doubtful}"
            )
        if self.fleet_file.server.accept == "hand":
            return "fleet.toml requires approval of every board (accept = 'hand')"
        return None

    def _pending(
        self, statements: Statements, enrolment: EnrolmentRequest, why: str
    ) -> EnrolmentAnswer:
        certificates.put_request(statements, replace(enrolment, why=why))
        return _answer(enrolment, "pending", why)

    def _issue(
        self,
        statements: Statements,
        enrolment: EnrolmentRequest,
        request: SigningRequest,
        device: str,
    ) -> EnrolmentAnswer:
        """Give the board its name, and return the answer with its certificate.

        Earlier certificates of that name are revoked, orders are repeated, and the board loses any
        other name.
        """
        now_ns = enrolment.asked_ns
        if enrolment.token_id is not None:
            certificates.bind_token(statements, enrolment.token_id, enrolment.key_sha256)
        issued = self.signing.issue_device(request, device, enrolment.serial, now_ns)
        before = devices.find(self.registry, device)
        revoked_count = certificates.revoke(
            statements, device, now_ns, "the board enrolled again with another key"
        )
        if revoked_count and before is not None and before.serial != enrolment.serial:
            # The board that had the name may be connected; if the new one is disconnected instead,
            # it reconnects.
            certificates.put_pending_disconnect(statements, device, now_ns)
        other = devices.find_by_serial(self.registry, enrolment.serial)
        if other is not None and other.device != device:
            certificates.revoke(statements, other.device, now_ns, f"its board became {device!r}")
            devices.put(statements, replace(other, serial=None, trust="revoked", changed_ns=now_ns))
        entry, previous = self._entry(device), before or Device(device, enrolment.fleet)
        accepted_device = replace(
            previous,
            fleet=enrolment.fleet,
            serial=enrolment.serial,
            # The name for releases and selections; an unknown board keeps the name that it reports.
            board=entry.board
            or (enrolment.board and (boards.board_of_model(enrolment.board) or enrolment.board))
            or previous.board,
            tags=entry.tags or previous.tags,
            trust="accepted",
            changed_ns=now_ns,
        )
        devices.put(statements, accepted_device)
        certificates.put(statements, issued)
        jobs.order_again(self.registry, statements, device, now_ns)
        return _accepted(enrolment, issued)

    def _entry(self, device: str) -> DeviceEntry:
        return self.fleet_file.device.get(device, DeviceEntry())


def _read(
    asking: CertificateRequest, device: str, fleet: str, now_ns: int, token_id: str | None = None
) -> tuple[SigningRequest, EnrolmentRequest]:
    """Return a parsed request, and its form in the registry.

    Raises:
        ConfigError: its CSR is invalid.
    """
    request = authority.read_request(asking.csr)
    return request, EnrolmentRequest(
        request=hashlib.sha256(f"{token_id or device} {asking.serial}".encode()).hexdigest(),
        token_id=token_id,
        device=device,
        fleet=fleet,
        serial=asking.serial,
        serial_source=asking.serial_source,
        board=asking.board,
        key_sha256=request.key_sha256,
        why="",
        asked_ns=now_ns,
    )


def _accepted(
    enrolment: EnrolmentRequest, certificate: Certificate, fleet: str | None = None
) -> EnrolmentAnswer:
    return EnrolmentAnswer(
        state="accepted",
        now_ns=enrolment.asked_ns,
        device=certificate.device,
        fleet=fleet or enrolment.fleet,
        number=certificate.number,
        certificate=certificate.pem,
        not_after_ns=certificate.not_after_ns,
    )


def _refused(enrolment: EnrolmentRequest, reason: str) -> EnrolmentAnswer:
    return _answer(enrolment, "refused", reason)


def _answer(
    enrolment: EnrolmentRequest, state: Literal["again", "pending", "refused"], reason: str
) -> EnrolmentAnswer:
    return EnrolmentAnswer(state=state, now_ns=enrolment.asked_ns, reason=reason)
