"""A known device gets a new certificate.

It asks after two thirds of the present one's lifetime, or if the card was copied or moved to
another board, which creates its own key and asks for a name with the certificate that it came with.
"""

import functools
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.contract.identity import CertificateRequest
from edgemeter.agent.daemon.handler import Handler, HandlerContext
from edgemeter.agent.identity import joining
from edgemeter.agent.identity.enrolment_client import EnrolmentClient
from edgemeter.agent.identity.identity import (
    Identity,
    IdentityFiles,
    certificate_request,
    clock_floor_ns,
    differs_from_board,
    read_board_serial,
    read_identity,
)
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine

logger = logging.getLogger(__name__)

# A device requests its next certificate after this share of the present one's lifetime.
RENEW_AT_RATIO = 2 / 3


def settle_moved_card(
    home: Path, machine: Machine = THIS_MACHINE, alive: Callable[[], object] = lambda: None
) -> None:
    """Return when the identity in `home` belongs to this board, or there is none.

    `alive` is called while it waits.

    Raises:
        ConfigError: the fleet refuses this board.
        UnavailableError: a file cannot be written, or there is no openssl.
    """
    files = IdentityFiles(home)
    joining.settle_identity(files)
    identity = read_identity(home)
    if identity is None or not differs_from_board(identity.board, machine):
        return
    logger.warning(
        "this card belongs to device %r on the board with serial %s, and this is another board: "
        "it asks for a name of its own",
        identity.device,
        identity.board.serial,
    )
    serial = read_board_serial(machine)
    client = EnrolmentClient(identity.service, files.tls, alive)
    request = CertificateRequest(
        csr="", serial=serial.serial, serial_source=serial.source, board=joining.board_name(machine)
    )
    answer = joining.ask_certificate(client, "/renew", files, request, identity.device, math.inf)
    renewed = joining.take_certificate(
        files, answer, serial, identity.broker, identity.service, None
    )
    logger.info("this board is device %r now", renewed.device)


POLL_S = 3600.0
# Retry interval after a failure; a refused renewal waits for a person.
RETRY_S = 300.0


def _begin(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="edgemeter-renewal", daemon=True).start()


class RenewalHandler(Handler):
    """Renews the certificate, with requests in a thread.

    A device that has joined no fleet has nothing to renew.
    """

    topics: Sequence[str] = ()

    def __init__(
        self,
        context: HandlerContext,
        clock_s: Callable[[], float] = time.monotonic,
        begin: Callable[[Callable[[], None]], None] = _begin,
        make_client: Callable[..., EnrolmentClient] = EnrolmentClient,
    ) -> None:
        self._files = IdentityFiles(context.home)
        self._clock_s = clock_s
        self._begin = begin
        self._make_client = make_client
        self._is_at_work = False
        self._is_confirmed = False
        self._tried_s: float | None = None
        joining.settle_identity(self._files)
        identity = read_identity(context.home)
        self._identity = (
            identity if identity is not None and identity.device == context.device else None
        )
        if self._identity is not None and time.time_ns() < clock_floor_ns(self._identity.issued_ns):
            logger.warning(
                "this board's clock is behind the build of its release or its certificate: check "
                "that it can reach a time server (NTP)"
            )

    def poll(self) -> float:
        """Request a certificate when that is due.

        It also confirms the present one, once after each start.
        """
        identity = self._identity
        if identity is None or (self._is_confirmed and not _is_due(identity)):
            return POLL_S
        now_s = self._clock_s()
        if self._tried_s is not None and now_s - self._tried_s < RETRY_S:
            return self._tried_s + RETRY_S - now_s
        if not self._is_at_work:
            self._is_at_work, self._tried_s = True, now_s
            self._begin(functools.partial(self._work, identity))
        return RETRY_S

    def _work(self, identity: Identity) -> None:
        client = self._make_client(identity.service, self._files.tls)
        try:
            if _is_due(identity):
                self._files.next_key.unlink(missing_ok=True)
                csr = certificate_request(self._files.key, identity.device)
                question = CertificateRequest(
                    csr=csr, serial=identity.board.serial, serial_source=identity.board.source
                )
                answer = client.ask("/renew", question)
                self._identity = joining.take_certificate(
                    self._files,
                    answer,
                    identity.board,
                    identity.broker,
                    identity.service,
                    identity.claim,
                )
                logger.info("the certificate was renewed: number %s", self._identity.number)
            # The service then revokes the earlier certificates.
            self._is_confirmed = client.confirm()
        except EdgemeterError as error:
            logger.warning("the certificate is not renewed: %s", error)
        finally:
            self._is_at_work = False


def is_due(identity: Identity, now_ns: int) -> bool:
    """Return whether the next certificate is to be requested at this moment."""
    lifetime_ns = identity.not_after_ns - identity.issued_ns
    return now_ns >= identity.issued_ns + int(lifetime_ns * RENEW_AT_RATIO)


def _is_due(identity: Identity) -> bool:
    return is_due(identity, max(time.time_ns(), clock_floor_ns(identity.issued_ns)))
