"""A new certificate for a known device.

When two thirds of the present one's life have passed, and when its card was copied or moved to another board, which makes a key of its
own and asks for a name by the certificate that it came with.
"""

import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from edgemeter.agent.base.broker_address import parse_address
from edgemeter.agent.base.errors import ConfigError, TransientError
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.base.tls import TlsFiles
from edgemeter.agent.contract.identity import LARGEST_BYTES, CertificateHeld, CertificateRequest, decode_answer, encode_identity, request_id
from edgemeter.agent.contract.messages import Topic, TopicKind
from edgemeter.agent.contract.sealed import decode_sealed
from edgemeter.agent.daemon.handler import Handler, HandlerContext
from edgemeter.agent.identity import joining
from edgemeter.agent.identity.enrolment_client import EnrolmentClient
from edgemeter.agent.identity.identity import (
    Identity,
    IdentityFiles,
    certificate_request,
    clock_floor_ns,
    is_other_board,
    read_board_serial,
    read_identity,
)
from edgemeter.agent.identity.service_signature import ServiceSignature
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine

logger = logging.getLogger(__name__)

MOVED_CARD_TIMEOUT_S = 600.0
_TITLE = "a certificate"
_TOPIC_KINDS: tuple[TopicKind, TopicKind] = ("renew", "certificate")


def settle_moved_card(
    home: Path, machine: Machine = THIS_MACHINE, alive: Callable[[], object] = lambda: None, timeout_s: float | None = None
) -> bool:
    """Return when the identity in `home` is this board's, or there is none; whether it changed. `alive` is called while it waits.

    Raises:
        ConfigError: the fleet refuses this board.
        TransientError: it was not approved within `timeout_s`; without one it waits for ever.
        UnavailableError: a file cannot be written, or there is no openssl.
    """
    joining.settle_identity(IdentityFiles(home))
    if not is_other_board(home, machine):
        return False
    identity = read_identity(home)
    if identity is None:
        return False
    logger.warning(
        "this card belongs to device %r on the board with serial %s, and this is another board: it asks for a name of its own",
        identity.device,
        identity.serial,
    )
    while True:
        try:
            renewed = _request(home, identity, machine, alive, timeout_s or MOVED_CARD_TIMEOUT_S)
        except TransientError as error:
            if timeout_s is not None:
                raise
            logger.warning("%s", error)
        else:
            logger.info("this board is device %r now", renewed.device)
            return True


def _request(home: Path, identity: Identity, machine: Machine, alive: Callable[[], object], timeout_s: float) -> Identity:
    files = IdentityFiles(home)
    serial = read_board_serial(machine)
    requests, answers = (str(Topic(identity.fleet, identity.device, kind)) for kind in _TOPIC_KINDS)
    # An id of its own: the board that the card was copied from stays connected.
    client_id = f"{identity.device}~{hashlib.sha256(serial.serial.encode()).hexdigest()[:12]}"
    address = parse_address(identity.broker, tls=TlsFiles(files.ca, files.certificate, files.key), environ={})
    with EnrolmentClient(address, client_id, (requests, answers), ServiceSignature(files), alive) as client:
        request = CertificateRequest(csr="", serial=serial.serial, serial_source=serial.source, board=joining.board_name(machine))
        answer = joining.ask_certificate(files, request, identity.device, lambda signed: client.request(signed, timeout_s))
        if answer.state == "accepted":
            return joining.take_certificate(files, answer, serial, identity.broker, None)
    raise ConfigError(f"the fleet refuses this board, whose card belongs to {identity.device!r}: {answer.reason}")


POLL_S = 3600.0

# An answer that does not come is asked for again after that; refused, it takes a person's time.
RETRY_S = 300.0


class RenewalHandler(Handler):
    """A handler (see `Handler`); a device that has joined no fleet has nothing to renew."""

    def __init__(
        self, context: HandlerContext, clock_s: Callable[[], float] = time.monotonic, signature: ServiceSignature | None = None
    ) -> None:
        self._context = context
        self._files = IdentityFiles(context.home)
        self._clock_s = clock_s
        self._signature = signature or ServiceSignature(self._files)
        self._request: str | None = None
        self._requested_s: float | None = None
        self._reported: str | None = None
        joining.settle_identity(self._files)
        identity = read_identity(context.home)
        self._identity = identity if identity is not None and identity.device == context.device else None
        self.topics: Sequence[str] = (context.topic("certificate"),) if self._identity else ()
        if self._identity is not None and time.time_ns() < self._floor_ns():
            logger.warning(
                "this board's clock is behind its release's build or its last contact: check that it can reach a time server (NTP)"
            )

    def connected(self) -> None:
        """Request again, because the last request may be lost; report the certificate of this connection, once."""
        self._requested_s = None
        if self._identity is not None and self._identity.number != self._reported:
            self._reported = self._identity.number
            self._context.publish(self._context.topic("renew"), encode_identity(CertificateHeld(held=self._identity.number)))

    def received(self, message: Message) -> None:
        """Take the answer.

        Raises:
            ConfigError: it is none, not signed by the service, or a refusal.
            UnavailableError: the certificate cannot be written.
        """
        if self._identity is None or self._request is None:
            return
        answer = decode_answer(self._signature.verified(decode_sealed(message.payload, _TITLE, LARGEST_BYTES), _TITLE))
        if answer.request != self._request:
            return
        self._request = None
        if answer.state != "accepted":
            raise ConfigError(f"the fleet does not renew this device's certificate ({answer.state}): {answer.reason}")
        identity = self._identity
        self._identity = joining.take_certificate(self._files, answer, identity.board(), identity.broker, identity.claim)
        logger.info("the certificate was renewed: number %s", self._identity.number)

    def poll(self) -> float:
        """Send a request when it is due."""
        if self._identity is None or not self._identity.is_due(max(time.time_ns(), self._floor_ns())):
            return POLL_S
        now_s = self._clock_s()
        if self._requested_s is not None and now_s - self._requested_s < RETRY_S:
            return self._requested_s + RETRY_S - now_s
        if self._context.is_connected():
            identity = self._identity
            self._files.next_key.unlink(missing_ok=True)
            csr = certificate_request(self._files.key, identity.device)
            self._request = request_id(csr)
            question = CertificateRequest(csr=csr, serial=identity.serial, serial_source=identity.serial_source)
            self._context.publish(self._context.topic("renew"), encode_identity(question))
            self._requested_s = now_s
        return RETRY_S

    def _floor_ns(self) -> int:
        return clock_floor_ns(self._identity.seen_ns if self._identity else None)
