"""Enrolment: answers devices that request a certificate, by their token, the inventory and what is known of their board.

The service's handler publishes the answers, and keeps the broker up to date.

A name is a label and a board's serial number the identity: the same board with a new key was flashed again and keeps its name; the same key
on another board is a copied card, which needs a key and a name of its own.
"""

import logging
import time
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Literal

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.log_limit import about
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.base.nanoseconds import NS_PER_DAY, NS_PER_S
from edgemeter.agent.base.statements import Statements
from edgemeter.agent.contract import identity
from edgemeter.agent.contract.identity import CertificateHeld, CertificateRequest, EnrolmentAnswer
from edgemeter.agent.contract.messages import Topic, parse_topic, topics_of
from edgemeter.provisioning.identity import authority, broker_files
from edgemeter.provisioning.identity.authority import Authority, ServiceKey, SigningRequest
from edgemeter.provisioning.identity.enforcement import Enforcement
from edgemeter.provisioning.inventory import fleet_file
from edgemeter.provisioning.inventory.fleet_file import DeviceEntry, FleetFile, WatchedFleetFile
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import certificates, devices
from edgemeter.provisioning.registry.certificates import Certificate, EnrolmentRequest, EnrolmentToken
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.release import boards
from edgemeter.provisioning.serve.handler import FleetHandler, FleetPublish

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
        request, enrolment = _read(asking, identity.answer_topic(token_id), now_ns, token_id)
        with self.registry.transaction() as statements:
            token = certificates.find_token(self.registry, token_id)
            if token is None or token.closed_ns is not None or token.expires_ns <= now_ns:
                return _refused(enrolment, "this token was used or has expired: make another with `edgemeter fleet token`")
            if request.common_name not in {None, token.device}:
                return _refused(enrolment, f"this token is for device {token.device!r}, not for {request.common_name!r}")
            if token.key_sha256 not in {None, request.key_sha256}:
                return _refused(enrolment, "this token was used with another key: make another with `edgemeter fleet token`")
            if (certificate := self._held(enrolment, token)) is not None:
                return _accepted(enrolment, certificate, token.fleet)
            enrolment = replace(enrolment, device=token.device, fleet=token.fleet)
            answer = self._decided_before(statements, enrolment) or self._judged(statements, enrolment)
            if answer is not None:
                return answer
            certificates.bind_token(statements, token.token_id, request.key_sha256)
            return self._issue(statements, enrolment, request, token.device)

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
            used = next((certificate for certificate in self._valid(device) if certificate.number == number), None)
            return used is not None and certificates.end_previous(statements, used, now_ns + RENEWED_GRACE_NS, RENEWED) > 0

    def with_certificate(self, topic: Topic, asking: CertificateRequest, now_ns: int) -> EnrolmentAnswer:
        """Return the answer to a device with a certificate: a new one, or pending for another board; raises ConfigError as `_read`."""
        request, enrolment = _read(asking, str(Topic(topic.fleet, topic.device, "certificate")), now_ns)
        if request.common_name != topic.device:
            return _refused(enrolment, f"device {topic.device!r} cannot ask for the name {request.common_name!r}")
        with self.registry.transaction() as statements:
            registered = devices.find(self.registry, topic.device)
            if registered is None or registered.trust != "accepted":
                return _refused(enrolment, f"{topic.device!r} is not an accepted device: ask the fleet's operator")
            enrolment = replace(enrolment, device=registered.device, fleet=registered.fleet)
            if registered.serial == asking.serial:
                return self._renewed(statements, enrolment, request)
            return self._cloned(statements, registered, enrolment)

    def settle(self, waiting: EnrolmentRequest, now_ns: int) -> EnrolmentAnswer:
        """Return the answer to an accepted request, and delete the request; raises ConfigError if the stored request cannot be read."""
        request = authority.read_request(waiting.csr)
        with self.registry.transaction() as statements:
            certificates.delete_request(statements, waiting.request)
            if waiting.token_id is not None:
                certificates.bind_token(statements, waiting.token_id, waiting.key_sha256)
            return self._issue(statements, replace(waiting, asked_ns=now_ns), request, waiting.name or waiting.device)

    def _valid(self, device: str) -> list[Certificate]:
        return [certificate for certificate in certificates.of_device(self.registry, device) if certificate.revoked_ns is None]

    def _renewed(self, statements: Statements, enrolment: EnrolmentRequest, request: SigningRequest) -> EnrolmentAnswer:
        valid, now_ns = self._valid(enrolment.device), enrolment.asked_ns
        # The same request again, because the answer was lost: no second certificate.
        if valid and valid[0].key_sha256 == request.key_sha256 and not _is_due(valid[0], now_ns):
            return _accepted(enrolment, valid[0])
        if sum(now_ns - certificate.issued_ns < NS_PER_DAY for certificate in valid) >= MOST_A_DAY:
            reason = f"{MOST_A_DAY} certificates of {enrolment.device!r} were issued within a day: check what this board does"
            return _refused(enrolment, reason)
        issued = self.signing.issue_device(request, enrolment.device, enrolment.serial, now_ns)
        certificates.put(statements, issued)
        return _accepted(enrolment, issued)

    def _cloned(self, statements: Statements, registered: Device, enrolment: EnrolmentRequest) -> EnrolmentAnswer:
        owners = certificates.of_key(self.registry, enrolment.key_sha256)
        if any(owner.serial != enrolment.serial for owner in owners):
            board = f"the board {registered.device!r} with serial {registered.serial!r}"
            return _answer(enrolment, "again", f"this key belongs to {board}; a copied card needs a key of its own")
        certificate = next((owner for owner in owners if owner.revoked_ns is None), None)
        if certificate is not None:
            owner = devices.find(self.registry, certificate.device)
            return _accepted(enrolment, certificate, owner.fleet if owner else None)
        why = f"a copied card: it has the key of {registered.device!r}, whose board has serial {registered.serial!r}"
        return self._decided_before(statements, enrolment) or self._pending(statements, enrolment, why)

    def _held(self, enrolment: EnrolmentRequest, token: EnrolmentToken) -> Certificate | None:
        """Return the certificate of this board for this key; it may have been accepted under another name than the token's."""
        for certificate in certificates.of_key(self.registry, enrolment.key_sha256):
            is_of_claim = certificate.device == token.device or token.key_sha256 == enrolment.key_sha256
            if certificate.serial == enrolment.serial and is_of_claim and certificate.revoked_ns is None:
                return certificate
        return None

    def _decided_before(self, statements: Statements, enrolment: EnrolmentRequest) -> EnrolmentAnswer | None:
        before = certificates.find_request_of_board(self.registry, enrolment.topic, enrolment.serial)
        if before is None:
            return None
        if before.decision == "rejected":
            return _refused(enrolment, "the fleet's operator rejected this board")
        if before.key_sha256 != enrolment.key_sha256:
            # Another key was accepted.
            return None
        return self._pending(statements, replace(enrolment, decision=before.decision, name=before.name), before.why)

    def _judged(self, statements: Statements, enrolment: EnrolmentRequest) -> EnrolmentAnswer | None:
        """Return a refusal or a pending answer; None where the token is enough."""
        device, serial = enrolment.device, enrolment.serial
        owners = certificates.of_key(self.registry, enrolment.key_sha256)
        if owners:
            reason = f"this key belongs to device {owners[0].device!r} with serial {owners[0].serial!r}: make a new one"
            return _answer(enrolment, "again", reason)
        registered = devices.find(self.registry, device)
        if registered is not None and registered.trust == "revoked":
            return _refused(enrolment, f"device {device!r} was revoked: `edgemeter fleet requests accept {device}` re-admits it")
        other = devices.find_by_serial(self.registry, serial)
        if other is not None and other.device != device and other.trust != "revoked":
            reason = f"the board with serial {serial!r} is device {other.device!r}: make a token for that device"
            if enrolment.serial_source == "installation":
                # Copies of one system or container image share it.
                reason += "; or, if its system is a copy, give it an /etc/machine-id of its own (delete that, `systemd-machine-id-setup`)"
            return _refused(enrolment, reason)
        why = self._doubt(registered, enrolment)
        return None if why is None else self._pending(statements, enrolment, why)

    def _doubt(self, registered: Device | None, enrolment: EnrolmentRequest) -> str | None:
        entry, serial = self._entry(enrolment.device), enrolment.serial
        if entry.serial is not None and entry.serial != serial:
            return f"fleet.toml names serial {entry.serial!r}, the board reports {serial!r}"
        if registered is not None and registered.serial not in {None, serial}:
            doubtful = "; that number changes when the card is flashed again" if enrolment.serial_source in {"installation", "made"} else ""
            return f"{enrolment.device!r} is the board with serial {registered.serial!r}, and {serial!r} requests its name{doubtful}"
        if self.fleet_file.server is not None and self.fleet_file.server.accept == "hand":
            return "fleet.toml requires approval of every board (accept = 'hand')"
        return None

    def _pending(self, statements: Statements, enrolment: EnrolmentRequest, why: str) -> EnrolmentAnswer:
        certificates.put_request(statements, replace(enrolment, why=why))
        return _answer(enrolment, "pending", why)

    def _issue(self, statements: Statements, enrolment: EnrolmentRequest, request: SigningRequest, device: str) -> EnrolmentAnswer:
        """Give the board its name: earlier certificates of that name are revoked, and the board loses any other name."""
        now_ns = enrolment.asked_ns
        issued = self.signing.issue_device(request, device, enrolment.serial, now_ns)
        before = devices.find(self.registry, device)
        if certificates.revoke(statements, device, now_ns, REFLASHED) and before is not None and before.serial != enrolment.serial:
            # The board that had the name may be connected; if the new one is disconnected instead, it reconnects.
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
            # The name that releases and selections use; a board without one keeps the name that it reports.
            board=entry.board or (enrolment.board and (boards.board_of_model(enrolment.board) or enrolment.board)) or previous.board,
            tags=entry.tags or previous.tags,
            trust="accepted",
            enrolled_ns=now_ns,
            changed_ns=now_ns,
        )
        devices.put(statements, accepted_device)
        certificates.put(statements, issued)
        return _accepted(enrolment, issued)

    def _entry(self, device: str) -> DeviceEntry:
        return self.fleet_file.device.get(device, DeviceEntry())


def _is_due(certificate: Certificate, now_ns: int) -> bool:
    # A device renews at two thirds of its certificate's life; a request before half of it repeats the last one.
    return now_ns - certificate.issued_ns > (certificate.not_after_ns - certificate.issued_ns) // 2


def _read(asking: CertificateRequest, topic: str, now_ns: int, token_id: str | None = None) -> tuple[SigningRequest, EnrolmentRequest]:
    """Return a parsed request, and as the registry keeps it, still without a device; raises ConfigError if its CSR is invalid."""
    request = authority.read_request(asking.csr)
    return request, EnrolmentRequest(
        request=identity.request_id(asking.csr),
        topic=topic,
        token_id=token_id,
        device="",
        fleet="",
        serial=asking.serial,
        serial_source=asking.serial_source,
        board=asking.board,
        csr=asking.csr,
        key_sha256=request.key_sha256,
        why="",
        asked_ns=now_ns,
    )


def _accepted(enrolment: EnrolmentRequest, certificate: Certificate, fleet: str | None = None) -> EnrolmentAnswer:
    return EnrolmentAnswer(
        request=enrolment.request,
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


def _answer(enrolment: EnrolmentRequest, state: Literal["again", "pending", "refused"], reason: str) -> EnrolmentAnswer:
    return EnrolmentAnswer(request=enrolment.request, state=state, now_ns=enrolment.asked_ns, reason=reason)


class EnrolmentHandler(FleetHandler):
    """Answers certificate requests (see `FleetHandler`); inactive where the folder has no authority."""

    def __init__(self, folder: FleetFolder, registry: Registry, publish: FleetPublish) -> None:
        self._folder = folder
        self._file = WatchedFleetFile(folder)
        self._registry = registry
        self._publish = publish
        self._key = ServiceKey(folder)
        self._signing = broker_files.authority(folder) if folder.ca_key.exists() else None
        self._enforcement = Enforcement(folder, registry, self._signing) if self._signing else None
        self.topics: tuple[str, ...] = (identity.request_topic("+"), topics_of("renew")) if self._signing else ()

    def received(self, message: Message) -> None:
        """Answer one request; an invalid one gets no answer. Raises ConfigError if it is invalid."""
        now_ns = time.time_ns()
        asker = message.topic.rpartition("/")[0]
        token_id = message.topic.split("/")[2] if message.topic.startswith(f"{identity.ENROL}/") else None
        try:
            asking, enrolment = identity.decode_request(message.payload), self._enrolment()
            if isinstance(asking, CertificateHeld):
                if token_id is not None:
                    enrolment.held(token_id, asking.held, now_ns)
                elif enrolment.uses(parse_topic(message.topic).device, asking.held, now_ns):
                    days = RENEWED_GRACE_NS // NS_PER_DAY
                    logger.info("%s uses certificate %s: its earlier ones end in %d days", asker, asking.held, days)
                return
            if token_id is not None:
                answer, where = enrolment.with_token(token_id, asking, now_ns), identity.answer_topic(token_id)
            else:
                topic = parse_topic(message.topic)
                answer, where = enrolment.with_certificate(topic, asking, now_ns), str(replace(topic, kind="certificate"))
        except ConfigError as error:
            raise ConfigError(f"rejected request from {asker}: {error}") from error
        self._send(asker, where, answer)

    def poll(self, now_ns: int) -> None:
        """Answer requests accepted meanwhile, and bring the broker up to date with the registry."""
        if self._enforcement is None:
            return
        for waiting in certificates.decided_requests(self._registry):
            answer = self._enrolment().settle(waiting, now_ns)
            self._send(waiting.topic, waiting.topic, answer)
        self._enforcement.enforce(datetime.fromtimestamp(now_ns / NS_PER_S, timezone.utc))

    def _enrolment(self) -> Enrolment:
        if self._signing is None:
            raise ConfigError(f"the fleet in {str(self._folder.path)!r} has no authority: `edgemeter fleet init` makes one")
        # People edit the inventory while the service runs; where there is none, `read` names the remedy.
        return Enrolment(self._registry, self._signing, self._file.read() or fleet_file.read(self._folder.fleet_file))

    def _send(self, asker: str, where: str, answer: EnrolmentAnswer) -> None:
        if answer.state == "accepted":
            logger.info("device %r has certificate %s", answer.device, answer.number)
        else:
            logger.warning("%s: %s: %s", asker, answer.state, answer.reason, extra=about(asker))
        self._publish(where, self._key.seal(identity.encode_identity(answer)))
