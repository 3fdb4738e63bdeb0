"""Who gets a certificate: what a device asks for, held against its token, the inventory and what is known of its board.

A name is a label and a board's serial number the identity: the same board with a new key was flashed anew and keeps its name; the same key
on another board is a copied card, which needs a key and a name of its own.
"""

from dataclasses import dataclass, replace
from sqlite3 import Connection

from edgemeter.agent.delivery.topics import Topic
from edgemeter.agent.identity import messages
from edgemeter.agent.identity.messages import Answer, Ask
from edgemeter.provisioning.bundle import boards
from edgemeter.provisioning.identity import authority, certificates, claims, expulsions, requests
from edgemeter.provisioning.identity.authority import Authority, SigningRequest
from edgemeter.provisioning.identity.certificates import Certificate
from edgemeter.provisioning.identity.claims import Claim
from edgemeter.provisioning.identity.requests import Request
from edgemeter.provisioning.inventory.fleet_file import DeviceEntry, FleetFile
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.registry import Registry

REFLASHED = "the board asked anew with another key"
# A board that asks in a loop does not fill the registry.
MOST_A_DAY = 10
DAY_NS = 86_400 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class Enrolment:
    """The rules, on one registry; every method is one transaction."""

    registry: Registry
    signing: Authority
    fleet_file: FleetFile

    def with_token(self, claim_name: str, ask: Ask, now_ns: int) -> Answer:
        """Return the answer to a device that came with a token.

        Raises:
            ConfigError: its CSR is none of ours.
        """
        request = authority.read_request(ask.csr)
        with self.registry.transaction() as connection:
            claim = claims.find(self.registry, claim_name)
            if claim is None or claim.closed_ns is not None or claim.expires_ns <= now_ns:
                return _refused(ask, now_ns, "this token was used or has expired: make another with `edgemeter fleet token`")
            if request.common_name not in {None, claim.device}:
                return _refused(ask, now_ns, f"this token is for device {claim.device!r}, not for {request.common_name!r}")
            if claim.key_sha256 not in {None, request.key_sha256}:
                return _refused(ask, now_ns, "this token was used with another key: make another with `edgemeter fleet token`")
            if (held := self._held(request, ask, claim)) is not None:
                return _accepted(ask, held, claim.fleet, now_ns)
            topic = messages.answer_topic(claim.claim)
            wish = _wish(ask, request, topic, claim.device, claim.fleet, now_ns, claim.claim)
            answer = self._decided_before(connection, wish, ask, now_ns) or self._judged(connection, wish, ask, now_ns)
            if answer is not None:
                return answer
            claims.bind(connection, claim.claim, request.key_sha256)
            return self._issue(connection, wish, request, claim.device, now_ns)

    def held(self, claim_name: str, number: str, now_ns: int) -> bool:
        """Close the claim of a device that has its certificate; return whether it was open."""
        with self.registry.transaction() as connection:
            claim = claims.find(self.registry, claim_name)
            if claim is None or claim.closed_ns is not None or claim.key_sha256 is None:
                return False
            if number not in {one.number for one in certificates.of_key(self.registry, claim.key_sha256)}:
                return False
            claims.close(connection, claim.claim, now_ns)
            return True

    def with_certificate(self, topic: Topic, ask: Ask, now_ns: int) -> Answer:
        """Return the answer to whoever holds a certificate of the topic's device: a new one for its board, a question for another.

        Raises:
            ConfigError: its CSR is none of ours.
        """
        request = authority.read_request(ask.csr)
        if request.common_name != topic.device:
            return _refused(ask, now_ns, f"device {topic.device!r} cannot ask for the name {request.common_name!r}")
        with self.registry.transaction() as connection:
            known = devices.find(self.registry, topic.device)
            if known is None or known.standing != "accepted":
                return _refused(ask, now_ns, f"{topic.device!r} is no accepted device: ask whoever runs the fleet")
            if known.serial == ask.serial:
                return self._renewed(connection, known, request, ask, now_ns)
            answers = str(Topic(topic.fleet, topic.device, "certificate"))
            wish = _wish(ask, request, answers, known.device, known.fleet, now_ns, None)
            return self._cloned(connection, known, wish, ask, now_ns)

    def settle(self, waiting: Request, now_ns: int) -> Answer:
        """Return the answer to a request that somebody accepted, and forget the request.

        Raises:
            ConfigError: what was kept of it cannot be read.
        """
        request = authority.read_request(waiting.csr)
        with self.registry.transaction() as connection:
            requests.forget(connection, waiting.request)
            if waiting.claim is not None:
                claims.bind(connection, waiting.claim, waiting.key_sha256)
            return self._issue(connection, waiting, request, waiting.name or waiting.device, now_ns)

    def _renewed(self, connection: Connection, known: Device, request: SigningRequest, ask: Ask, now_ns: int) -> Answer:
        valid = [one for one in certificates.of_device(self.registry, known.device) if one.revoked_ns is None]
        # The same question again, because the answer was lost: no second certificate.
        if valid and valid[0].key_sha256 == request.key_sha256 and not _is_due(valid[0], now_ns):
            return _accepted(ask, valid[0], known.fleet, now_ns)
        if sum(now_ns - one.issued_ns < DAY_NS for one in valid) >= MOST_A_DAY:
            return _refused(ask, now_ns, f"{MOST_A_DAY} certificates of {known.device!r} in a day are enough: look at what this board does")
        issued = self._signed(request, known.device, ask.serial, now_ns)
        certificates.put(connection, issued)
        return _accepted(ask, issued, known.fleet, now_ns)

    def _cloned(self, connection: Connection, known: Device, wish: Request, ask: Ask, now_ns: int) -> Answer:
        owners = certificates.of_key(self.registry, wish.key_sha256)
        if any(one.serial != ask.serial for one in owners):
            reason = f"this key belongs to the board {known.device!r} with serial {known.serial!r}; a copied card needs a key of its own"
            return Answer(request=wish.request, state="again", now_ns=now_ns, reason=reason)
        held = next((one for one in owners if one.revoked_ns is None), None)
        if held is not None:
            owner = devices.find(self.registry, held.device)
            return _accepted(ask, held, owner.fleet if owner else known.fleet, now_ns)
        before = self._decided_before(connection, wish, ask, now_ns)
        if before is not None:
            return before
        why = f"a copied card: it has the key of {known.device!r}, whose board has serial {known.serial!r}"
        return self._pending(connection, wish, why, now_ns)

    def _held(self, request: SigningRequest, ask: Ask, claim: Claim) -> Certificate | None:
        """Return the certificate that this board was given for this key; somebody may have given it another name than the token's."""
        for one in certificates.of_key(self.registry, request.key_sha256):
            is_of_claim = one.device == claim.device or claim.key_sha256 == request.key_sha256
            if one.serial == ask.serial and is_of_claim and one.revoked_ns is None:
                return one
        return None

    def _decided_before(self, connection: Connection, wish: Request, ask: Ask, now_ns: int) -> Answer | None:
        before = requests.of_board(self.registry, wish.topic, wish.serial)
        if before is None:
            return None
        if before.decision == "rejected":
            return _refused(ask, now_ns, "whoever runs the fleet said no to this board")
        if before.key_sha256 != wish.key_sha256:
            # Somebody said yes to another key.
            return None
        return self._pending(connection, replace(wish, decision=before.decision, name=before.name), before.why, now_ns)

    def _judged(self, connection: Connection, wish: Request, ask: Ask, now_ns: int) -> Answer | None:
        """Return a refusal or that somebody has to decide; None where the token is enough."""
        owners = certificates.of_key(self.registry, wish.key_sha256)
        if owners:
            reason = f"this key belongs to device {owners[0].device!r} with serial {owners[0].serial!r}: make a new one"
            return Answer(request=wish.request, state="again", now_ns=now_ns, reason=reason)
        known = devices.find(self.registry, wish.device)
        if known is not None and known.standing == "revoked":
            return _refused(ask, now_ns, f"device {wish.device!r} was revoked: `edgemeter fleet accept {wish.device}` takes it back")
        other = devices.find_serial(self.registry, ask.serial)
        if other is not None and other.device != wish.device and other.standing != "revoked":
            reason = f"the board with serial {ask.serial!r} is device {other.device!r}: make a token for that name"
            if ask.serial_source == "installation":
                # Copies of one system or container image share it.
                reason += "; or, if its system is a copy, give it an /etc/machine-id of its own (delete that, `systemd-machine-id-setup`)"
            return _refused(ask, now_ns, reason)
        why = self._doubt(known, wish, ask)
        return None if why is None else self._pending(connection, wish, why, now_ns)

    def _doubt(self, known: Device | None, wish: Request, ask: Ask) -> str | None:
        entry = self._entry(wish.device)
        if entry.serial is not None and entry.serial != ask.serial:
            return f"fleet.toml says serial {entry.serial!r}, the board says {ask.serial!r}"
        if known is not None and known.serial not in {None, ask.serial}:
            doubtful = "; that number does not outlive a re-flash" if ask.serial_source in {"installation", "made"} else ""
            return f"{wish.device!r} is the board with serial {known.serial!r}, and {ask.serial!r} asks for its name{doubtful}"
        if self.fleet_file.server is not None and self.fleet_file.server.accept == "hand":
            return "fleet.toml says that every board is accepted by hand"
        return None

    def _pending(self, connection: Connection, wish: Request, why: str, now_ns: int) -> Answer:
        requests.put(connection, replace(wish, why=why))
        return Answer(request=wish.request, state="pending", now_ns=now_ns, reason=why)

    def _issue(self, connection: Connection, wish: Request, request: SigningRequest, device: str, now_ns: int) -> Answer:
        """Give the board its name; whatever certificates that name had are revoked, another name of the board loses it."""
        issued = self._signed(request, device, wish.serial, now_ns)
        before = devices.find(self.registry, device)
        if certificates.revoke(connection, device, now_ns, REFLASHED) and before is not None and before.serial != wish.serial:
            # The board that had the name may be connected; if it is the new one that goes, it comes back.
            expulsions.put(connection, device, now_ns)
        other = devices.find_serial(self.registry, wish.serial)
        if other is not None and other.device != device:
            certificates.revoke(connection, other.device, now_ns, f"its board became {device!r}")
            devices.put(connection, replace(other, serial=None, standing="revoked", changed_ns=now_ns))
        devices.put(connection, self._accepted_device(wish, device, now_ns))
        certificates.put(connection, issued)
        return _accepted_of(wish.request, issued, wish.fleet, now_ns)

    def _accepted_device(self, wish: Request, device: str, now_ns: int) -> Device:
        entry = self._entry(device)
        known = devices.find(self.registry, device)
        kept = known or Device(device, wish.fleet, None, None, (), "expected", None, None, None, now_ns)
        return replace(
            kept,
            fleet=wish.fleet,
            serial=wish.serial,
            board=entry.board or _board(wish.board) or kept.board,
            tags=entry.tags or kept.tags,
            standing="accepted",
            circuit=entry.circuit or kept.circuit,
            power_w=entry.power_w or kept.power_w,
            enrolled_ns=now_ns,
            changed_ns=now_ns,
        )

    def _signed(self, request: SigningRequest, device: str, serial: str, now_ns: int) -> Certificate:
        made = self.signing.issue_device(request, device, now_ns)
        return Certificate(made.number, device, serial, request.key_sha256, made.pem, now_ns, made.not_after_ns)

    def _entry(self, device: str) -> DeviceEntry:
        return self.fleet_file.device.get(device, DeviceEntry())


def _board(model: str | None) -> str | None:
    # The name by which bundles are built and people select; a board that has none keeps what it calls itself.
    return model and (boards.named(model) or model)


def _is_due(one: Certificate, now_ns: int) -> bool:
    # A device asks at two thirds of its certificate's life; one that is younger than half of it was asked for a moment ago.
    return now_ns - one.issued_ns > (one.not_after_ns - one.issued_ns) // 2


def _wish(ask: Ask, request: SigningRequest, topic: str, device: str, fleet: str, now_ns: int, claim: str | None) -> Request:
    return Request(
        request=messages.request_of(ask.csr),
        topic=topic,
        claim=claim,
        device=device,
        fleet=fleet,
        serial=ask.serial,
        serial_source=ask.serial_source,
        board=ask.board,
        csr=ask.csr,
        key_sha256=request.key_sha256,
        why="",
        asked_ns=now_ns,
    )


def _accepted(ask: Ask, one: Certificate, fleet: str, now_ns: int) -> Answer:
    return _accepted_of(messages.request_of(ask.csr), one, fleet, now_ns)


def _accepted_of(request: str, one: Certificate, fleet: str, now_ns: int) -> Answer:
    return Answer(
        request=request,
        state="accepted",
        now_ns=now_ns,
        device=one.device,
        fleet=fleet,
        number=one.number,
        certificate=one.pem,
        not_after_ns=one.not_after_ns,
    )


def _refused(ask: Ask, now_ns: int, reason: str) -> Answer:
    return Answer(request=messages.request_of(ask.csr), state="refused", now_ns=now_ns, reason=reason)
