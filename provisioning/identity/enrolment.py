"""Enrolment: answers devices that request a certificate, by their token, the inventory and what is known of their board.

The service's handler publishes the answers, and keeps the broker up to date.

A name is a label and a board's serial number the identity: the same board with a new key was flashed again and keeps its name; the same key
on another board is a copied card, which needs a key and a name of its own.
"""

import logging
import time
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.log_limit import about
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.base.nanoseconds import NS_PER_DAY, NS_PER_S
from edgemeter.agent.base.statements import Statements
from edgemeter.agent.contract.identity import (
    ENROL,
    EVERY_REQUEST,
    CertificateHeld,
    CertificateRequest,
    EnrolmentAnswer,
    answer_topic,
    decode_request,
    encode_identity,
    request_id,
)
from edgemeter.agent.contract.messages import EVERY_RENEW, Topic, parse_topic
from edgemeter.provisioning.identity import authority, broker_files
from edgemeter.provisioning.identity.authority import Authority, SigningRequest
from edgemeter.provisioning.identity.enforcement import Enforcement
from edgemeter.provisioning.identity.service_key import ServiceKey
from edgemeter.provisioning.inventory import fleet_file
from edgemeter.provisioning.inventory.fleet_file import DeviceEntry, FleetFile, WatchedFleetFile
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import certificates, devices
from edgemeter.provisioning.registry.certificates import Certificate, EnrolmentRequest, EnrolmentToken
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.release import boards
from edgemeter.provisioning.serve.handler import FleetPublish

logger = logging.getLogger(__name__)

REFLASHED = "the board enrolled again with another key"

# A board that requests in a loop does not fill the registry.
MOST_A_DAY = 10

# A board that used its new certificate may be set back to an older state of its card: so long the one before stays valid.
RENEWED_GRACE_NS = 7 * NS_PER_DAY
RENEWED = "the device uses a newer certificate"


@dataclass(frozen=True, slots=True)
class Enrolment:
    """The rules, on one registry; every method is one transaction."""

    registry: Registry
    signing: Authority
    fleet_file: FleetFile

    def with_token(self, token_id: str, asking: CertificateRequest, now_ns: int) -> EnrolmentAnswer:
        """Return the answer to a device that came with a token; raises ConfigError if its CSR is invalid."""
        request = authority.read_request(asking.csr)
        with self.registry.transaction() as statements:
            token = certificates.find_token(self.registry, token_id)
            if token is None or token.closed_ns is not None or token.expires_ns <= now_ns:
                return _refused(asking, now_ns, "this token was used or has expired: make another with `edgemeter fleet token`")
            if request.common_name not in {None, token.device}:
                return _refused(asking, now_ns, f"this token is for device {token.device!r}, not for {request.common_name!r}")
            if token.key_sha256 not in {None, request.key_sha256}:
                return _refused(asking, now_ns, "this token was used with another key: make another with `edgemeter fleet token`")
            if (certificate := self._held(request, asking, token)) is not None:
                return _accepted(asking.csr, certificate, token.fleet, now_ns)
            topic = answer_topic(token.token_id)
            enrolment = _enrolment_request(asking, request, topic, token.device, token.fleet, now_ns, token.token_id)
            answer = self._decided_before(statements, enrolment, asking, now_ns) or self._judged(statements, enrolment, asking, now_ns)
            if answer is not None:
                return answer
            certificates.bind_token(statements, token.token_id, request.key_sha256)
            return self._issue(statements, enrolment, request, token.device, now_ns)

    def held(self, token_id: str, number: str, now_ns: int) -> bool:
        """Close the token of a device that holds its certificate; return whether it was open."""
        with self.registry.transaction() as statements:
            token = certificates.find_token(self.registry, token_id)
            if token is None or token.closed_ns is not None or token.key_sha256 is None:
                return False
            if number not in {certificate.number for certificate in certificates.of_key(self.registry, token.key_sha256)}:
                return False
            certificates.close_token(statements, token.token_id, now_ns)
            return True

    def uses(self, device: str, number: str, now_ns: int) -> bool:
        """Let a device's earlier certificates end, now that it has connected with this one; return whether it had any."""
        with self.registry.transaction() as statements:
            valid = [certificate for certificate in certificates.of_device(self.registry, device) if certificate.revoked_ns is None]
            used = next((certificate for certificate in valid if certificate.number == number), None)
            return used is not None and certificates.end_previous(statements, used, now_ns + RENEWED_GRACE_NS, RENEWED) > 0

    def with_certificate(self, topic: Topic, asking: CertificateRequest, now_ns: int) -> EnrolmentAnswer:
        """Return the answer to a client with a certificate of the topic's device: a new one for its board, a pending request for another.

        Raises:
            ConfigError: its CSR is invalid.
        """
        request = authority.read_request(asking.csr)
        if request.common_name != topic.device:
            return _refused(asking, now_ns, f"device {topic.device!r} cannot ask for the name {request.common_name!r}")
        with self.registry.transaction() as statements:
            registered = devices.find(self.registry, topic.device)
            if registered is None or registered.trust != "accepted":
                return _refused(asking, now_ns, f"{topic.device!r} is not an accepted device: ask the fleet's operator")
            if registered.serial is None and devices.find_by_serial(self.registry, asking.serial) is None:
                # Accepted after a restore, before the board reported its serial.
                registered = replace(registered, serial=asking.serial)
                devices.put(statements, registered)
            if registered.serial == asking.serial:
                return self._renewed(statements, registered, request, asking, now_ns)
            answers = str(Topic(topic.fleet, topic.device, "certificate"))
            enrolment = _enrolment_request(asking, request, answers, registered.device, registered.fleet, now_ns, None)
            return self._cloned(statements, registered, enrolment, asking, now_ns)

    def settle(self, waiting: EnrolmentRequest, now_ns: int) -> EnrolmentAnswer:
        """Return the answer to an accepted request, and delete the request; raises ConfigError if the stored request cannot be read."""
        request = authority.read_request(waiting.csr)
        with self.registry.transaction() as statements:
            certificates.delete_request(statements, waiting.request)
            if waiting.token_id is not None:
                certificates.bind_token(statements, waiting.token_id, waiting.key_sha256)
            return self._issue(statements, waiting, request, waiting.name or waiting.device, now_ns)

    def _renewed(
        self, statements: Statements, registered: Device, request: SigningRequest, asking: CertificateRequest, now_ns: int
    ) -> EnrolmentAnswer:
        valid = [certificate for certificate in certificates.of_device(self.registry, registered.device) if certificate.revoked_ns is None]
        # The same request again, because the answer was lost: no second certificate.
        if valid and valid[0].key_sha256 == request.key_sha256 and not _is_due(valid[0], now_ns):
            return _accepted(asking.csr, valid[0], registered.fleet, now_ns)
        if sum(now_ns - certificate.issued_ns < NS_PER_DAY for certificate in valid) >= MOST_A_DAY:
            return _refused(
                asking, now_ns, f"{MOST_A_DAY} certificates of {registered.device!r} were issued within a day: check what this board does"
            )
        issued = self.signing.issue_device(request, registered.device, asking.serial, now_ns)
        certificates.put(statements, issued)
        return _accepted(asking.csr, issued, registered.fleet, now_ns)

    def _cloned(
        self, statements: Statements, registered: Device, enrolment: EnrolmentRequest, asking: CertificateRequest, now_ns: int
    ) -> EnrolmentAnswer:
        owners = certificates.of_key(self.registry, enrolment.key_sha256)
        if any(owner.serial != asking.serial for owner in owners):
            board = f"the board {registered.device!r} with serial {registered.serial!r}"
            reason = f"this key belongs to {board}; a copied card needs a key of its own"
            return EnrolmentAnswer(request=enrolment.request, state="again", now_ns=now_ns, reason=reason)
        certificate = next((owner for owner in owners if owner.revoked_ns is None), None)
        if certificate is not None:
            owner = devices.find(self.registry, certificate.device)
            return _accepted(asking.csr, certificate, owner.fleet if owner else registered.fleet, now_ns)
        before = self._decided_before(statements, enrolment, asking, now_ns)
        if before is not None:
            return before
        why = f"a copied card: it has the key of {registered.device!r}, whose board has serial {registered.serial!r}"
        return self._pending(statements, enrolment, why, now_ns)

    def _held(self, request: SigningRequest, asking: CertificateRequest, token: EnrolmentToken) -> Certificate | None:
        """Return the certificate of this board for this key; it may have been accepted under another name than the token's."""
        for certificate in certificates.of_key(self.registry, request.key_sha256):
            is_of_claim = certificate.device == token.device or token.key_sha256 == request.key_sha256
            if certificate.serial == asking.serial and is_of_claim and certificate.revoked_ns is None:
                return certificate
        return None

    def _decided_before(
        self, statements: Statements, enrolment: EnrolmentRequest, asking: CertificateRequest, now_ns: int
    ) -> EnrolmentAnswer | None:
        before = certificates.find_request_of_board(self.registry, enrolment.topic, enrolment.serial)
        if before is None:
            return None
        if before.decision == "rejected":
            return _refused(asking, now_ns, "the fleet's operator rejected this board")
        if before.key_sha256 != enrolment.key_sha256:
            # Another key was accepted.
            return None
        return self._pending(statements, replace(enrolment, decision=before.decision, name=before.name), before.why, now_ns)

    def _judged(
        self, statements: Statements, enrolment: EnrolmentRequest, asking: CertificateRequest, now_ns: int
    ) -> EnrolmentAnswer | None:
        """Return a refusal or a pending answer; None where the token is enough."""
        owners = certificates.of_key(self.registry, enrolment.key_sha256)
        if owners:
            reason = f"this key belongs to device {owners[0].device!r} with serial {owners[0].serial!r}: make a new one"
            return EnrolmentAnswer(request=enrolment.request, state="again", now_ns=now_ns, reason=reason)
        registered = devices.find(self.registry, enrolment.device)
        if registered is not None and registered.trust == "revoked":
            return _refused(
                asking,
                now_ns,
                f"device {enrolment.device!r} was revoked: `edgemeter fleet requests accept {enrolment.device}` re-admits it",
            )
        other = devices.find_by_serial(self.registry, asking.serial)
        if other is not None and other.device != enrolment.device and other.trust != "revoked":
            reason = f"the board with serial {asking.serial!r} is device {other.device!r}: make a token for that device"
            if asking.serial_source == "installation":
                # Copies of one system or container image share it.
                reason += "; or, if its system is a copy, give it an /etc/machine-id of its own (delete that, `systemd-machine-id-setup`)"
            return _refused(asking, now_ns, reason)
        why = self._doubt(registered, enrolment, asking)
        return None if why is None else self._pending(statements, enrolment, why, now_ns)

    def _doubt(self, registered: Device | None, enrolment: EnrolmentRequest, asking: CertificateRequest) -> str | None:
        entry = self._entry(enrolment.device)
        if entry.serial is not None and entry.serial != asking.serial:
            return f"fleet.toml names serial {entry.serial!r}, the board reports {asking.serial!r}"
        if registered is not None and registered.serial not in {None, asking.serial}:
            doubtful = "; that number changes when the card is flashed again" if asking.serial_source in {"installation", "made"} else ""
            return f"{enrolment.device!r} is the board with serial {registered.serial!r}, and {asking.serial!r} requests its name{doubtful}"
        if self.fleet_file.server is not None and self.fleet_file.server.accept == "hand":
            return "fleet.toml requires approval of every board (accept = 'hand')"
        return None

    def _pending(self, statements: Statements, enrolment: EnrolmentRequest, why: str, now_ns: int) -> EnrolmentAnswer:
        certificates.put_request(statements, replace(enrolment, why=why))
        return EnrolmentAnswer(request=enrolment.request, state="pending", now_ns=now_ns, reason=why)

    def _issue(
        self, statements: Statements, enrolment: EnrolmentRequest, request: SigningRequest, device: str, now_ns: int
    ) -> EnrolmentAnswer:
        """Give the board its name: earlier certificates of that name are revoked, and the board loses any other name."""
        issued = self.signing.issue_device(request, device, enrolment.serial, now_ns)
        before = devices.find(self.registry, device)
        if certificates.revoke(statements, device, now_ns, REFLASHED) and before is not None and before.serial != enrolment.serial:
            # The board that had the name may be connected; if the new one is disconnected instead, it reconnects.
            certificates.put_pending_disconnect(statements, device, now_ns)
        other = devices.find_by_serial(self.registry, enrolment.serial)
        if other is not None and other.device != device:
            certificates.revoke(statements, other.device, now_ns, f"its board became {device!r}")
            devices.put(statements, replace(other, serial=None, trust="revoked", changed_ns=now_ns))
        devices.put(statements, self._accepted_device(enrolment, device, now_ns))
        certificates.put(statements, issued)
        return _accepted(enrolment.csr, issued, enrolment.fleet, now_ns)

    def _accepted_device(self, enrolment: EnrolmentRequest, device: str, now_ns: int) -> Device:
        entry = self._entry(device)
        registered = devices.find(self.registry, device)
        previous = registered or Device(device, enrolment.fleet, None, None, (), "expected", None, None, None, now_ns)
        return replace(
            previous,
            fleet=enrolment.fleet,
            serial=enrolment.serial,
            board=entry.board or _board(enrolment.board) or previous.board,
            tags=entry.tags or previous.tags,
            trust="accepted",
            circuit=entry.circuit or previous.circuit,
            power_w=entry.power_w or previous.power_w,
            enrolled_ns=now_ns,
            changed_ns=now_ns,
        )

    def _entry(self, device: str) -> DeviceEntry:
        return self.fleet_file.device.get(device, DeviceEntry())


def _board(model: str | None) -> str | None:
    # The name that releases and selections use; a board without one keeps the name that it reports.
    return model and (boards.board_of_model(model) or model)


def _is_due(certificate: Certificate, now_ns: int) -> bool:
    # A device renews at two thirds of its certificate's life; a request before half of it repeats the last one.
    return now_ns - certificate.issued_ns > (certificate.not_after_ns - certificate.issued_ns) // 2


def _enrolment_request(
    asking: CertificateRequest, request: SigningRequest, topic: str, device: str, fleet: str, now_ns: int, token_id: str | None
) -> EnrolmentRequest:
    return EnrolmentRequest(
        request=request_id(asking.csr),
        topic=topic,
        token_id=token_id,
        device=device,
        fleet=fleet,
        serial=asking.serial,
        serial_source=asking.serial_source,
        board=asking.board,
        csr=asking.csr,
        key_sha256=request.key_sha256,
        why="",
        asked_ns=now_ns,
    )


def _accepted(csr: str, certificate: Certificate, fleet: str, now_ns: int) -> EnrolmentAnswer:
    return EnrolmentAnswer(
        request=request_id(csr),
        state="accepted",
        now_ns=now_ns,
        device=certificate.device,
        fleet=fleet,
        number=certificate.number,
        certificate=certificate.pem,
        not_after_ns=certificate.not_after_ns,
    )


def _refused(asking: CertificateRequest, now_ns: int, reason: str) -> EnrolmentAnswer:
    return EnrolmentAnswer(request=request_id(asking.csr), state="refused", now_ns=now_ns, reason=reason)


class EnrolmentHandler:
    """Answers certificate requests (see `FleetHandler`); inactive where the folder has no authority."""

    def __init__(self, folder: FleetFolder, registry: Registry, publish: FleetPublish) -> None:
        self._folder = folder
        self._file = WatchedFleetFile(folder)
        self._registry = registry
        self._publish = publish
        self._key = ServiceKey(folder)
        self._signing = broker_files.authority(folder) if folder.ca_key.exists() else None
        self._enforcement = Enforcement(folder, registry, self._signing) if self._signing else None
        self.topics: tuple[str, ...] = (EVERY_REQUEST, EVERY_RENEW) if self._signing else ()

    def received(self, message: Message) -> None:
        """Answer one request; an invalid one gets no answer. Raises ConfigError if it is invalid."""
        now_ns = time.time_ns()
        asker = message.topic.rpartition("/")[0]
        try:
            asking = decode_request(message.payload)
            token_id = message.topic.split("/")[2] if message.topic.startswith(f"{ENROL}/") else None
            if isinstance(asking, CertificateHeld):
                if token_id is not None:
                    self._enrolment().held(token_id, asking.held, now_ns)
                elif self._enrolment().uses(parse_topic(message.topic).device, asking.held, now_ns):
                    logger.info(
                        "%s uses certificate %s: its earlier ones end in %d days", asker, asking.held, RENEWED_GRACE_NS // NS_PER_DAY
                    )
                return
            if token_id is not None:
                answer, where = self._enrolment().with_token(token_id, asking, now_ns), answer_topic(token_id)
            else:
                topic = parse_topic(message.topic)
                answer = self._enrolment().with_certificate(topic, asking, now_ns)
                where = str(Topic(topic.fleet, topic.device, "certificate"))
        except ConfigError as error:
            raise ConfigError(f"rejected request from {asker}: {error}") from error
        _log_answer(asker, answer)
        self._publish(where, self._key.seal(encode_identity(answer)))

    def poll(self, now_ns: int) -> None:
        """Answer requests accepted meanwhile, and bring the broker up to date with the registry."""
        if self._enforcement is None:
            return
        for waiting in certificates.decided_requests(self._registry):
            answer = self._enrolment().settle(waiting, now_ns)
            _log_answer(waiting.topic, answer)
            self._publish(waiting.topic, self._key.seal(encode_identity(answer)))
        self._enforcement.enforce(datetime.fromtimestamp(now_ns / NS_PER_S, timezone.utc))

    def close(self) -> None:
        """Hold nothing."""

    def _enrolment(self) -> Enrolment:
        if self._signing is None:
            raise ConfigError(f"the fleet in {str(self._folder.path)!r} has no authority: `edgemeter fleet init` makes one")
        # People edit the inventory while the service runs; where there is none, `read` names the remedy.
        return Enrolment(self._registry, self._signing, self._file.read() or fleet_file.read(self._folder.fleet_file))


def _log_answer(asker: str, answer: EnrolmentAnswer) -> None:
    if answer.state == "accepted":
        logger.info("device %r has certificate %s", answer.device, answer.number)
    else:
        logger.warning("%s: %s: %s", asker, answer.state, answer.reason, extra=about(asker))
