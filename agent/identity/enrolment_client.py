"""Requests to the fleet's service over HTTPS.

They are for a first or renewed certificate, and the confirmation that it arrived.
"""

import logging
import ssl
import time
from collections.abc import Callable
from http import HTTPStatus

from edgemeter.agent.base import interrupts
from edgemeter.agent.base.backoff import backoff_s
from edgemeter.agent.base.errors import (
    ConfigError,
    EdgemeterError,
    TransientError,
    UnavailableError,
    one_line,
)
from edgemeter.agent.base.http_client import FAILURES, open_url
from edgemeter.agent.base.tls import TlsFiles, tls_context
from edgemeter.agent.contract.identity import (
    LARGEST_BYTES,
    CertificateRequest,
    EnrolmentAnswer,
    decode_answer,
    encode_identity,
)

logger = logging.getLogger(__name__)

# An answer takes a second; a board that waits for approval asks less and less often.
FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 60.0
TIMEOUT_S = 15.0
POLL_S = 1.0
_FOR_GOOD = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
)


class EnrolmentClient:
    """A client of the service at `service` (https://HOST:PORT).

    The authority in `files` has signed the service's certificate. `alive` is called every second
    while it waits.
    """

    def __init__(
        self, service: str, files: TlsFiles, alive: Callable[[], object] = lambda: None
    ) -> None:
        self._service = service.rstrip("/")
        self._files = files
        self._alive = alive

    def request(self, path: str, question: CertificateRequest, timeout_s: float) -> EnrolmentAnswer:
        """Return the decision on a request to `/enrol` or `/renew`.

        It waits for the decision at most `timeout_s`.

        Raises:
            ConfigError: the service or its certificate cannot be used, or it rejects ours.
            TransientError: no service answers, or it has not decided in that time: try again later.
        """
        deadline_s = time.monotonic() + timeout_s
        reason: str | None = None
        failures, pause_s = 0, FIRST_PAUSE_S
        while True:
            try:
                answer = self.ask(path, question)
            except (TransientError, UnavailableError) as error:
                # Logged once, not at every attempt.
                logger.log(logging.DEBUG if str(error) == reason else logging.WARNING, "%s", error)
                reason, wait_s = str(error), backoff_s(failures)
                failures += 1
            else:
                if answer.state != "pending":
                    return answer
                if reason != answer.reason:
                    logger.info(
                        "waiting for approval (`edgemeter fleet accept`): %s", answer.reason
                    )
                reason, wait_s = answer.reason, pause_s
                failures, pause_s = 0, min(2 * pause_s, LONGEST_PAUSE_S)
            if time.monotonic() + wait_s >= deadline_s:
                raise TransientError(
                    f"the fleet at {self._service} has not approved this board within "
                    f"{timeout_s:g} s ({reason}): try again later"
                )
            until_s = time.monotonic() + wait_s
            while (left_s := until_s - time.monotonic()) > 0:
                self._alive()
                interrupts.sleep(min(left_s, POLL_S))

    def confirm(self) -> bool:
        """Confirm that the certificate of this connection is on the disk.

        Returns whether the service knows. A failure does no harm.
        """
        try:
            self._post("/confirm", b"")
        except EdgemeterError as error:
            logger.info("the new certificate is not confirmed yet: %s", error)
            return False
        return True

    def ask(self, path: str, question: CertificateRequest) -> EnrolmentAnswer:
        """Return the present answer to a request.

        Raises:
            ConfigError: the service refuses the request, or our certificate.
            TransientError: it does not answer, or is busy.
            UnavailableError: its certificate is not valid here.
        """
        return decode_answer(self._post(path, encode_identity(question)))

    def _post(self, path: str, content: bytes) -> bytes:
        context = tls_context(self._files)
        try:
            with open_url(
                f"{self._service}{path}", lambda *_: False, TIMEOUT_S, content, context=context
            ) as answer:
                status, body = answer.status, answer.read(LARGEST_BYTES)
        except ssl.SSLCertVerificationError as error:
            remedy = (
                "set the clock of this board, or make a join file of this fleet (`edgemeter "
                "fleet token`)"
            )
            raise UnavailableError(
                f"the certificate of the fleet's service at {self._service} is not valid "
                f"({error.verify_message}): {remedy}"
            ) from error
        except FAILURES as error:
            if isinstance(error, ssl.SSLError) and "ALERT" in str(error):
                raise ConfigError(
                    f"the fleet's service at {self._service} rejects this board's certificate "
                    f"({one_line(error)}): "
                    "join again with a new join file (`edgemeter fleet token`)"
                ) from error
            why = "no answer in time" if isinstance(error, TimeoutError) else one_line(error)
            remedy = (
                "check that `edgemeter fleet serve` runs there and that this board reaches it "
                "(network, firewall)"
            )
            raise TransientError(
                f"the fleet's service at {self._service} does not answer ({why}): {remedy}"
            ) from error
        if status == HTTPStatus.OK:
            return body
        message = (
            f"the fleet's service at {self._service} responds {status}: "
            f"{one_line(body.decode(errors='replace'))[:300]}"
        )
        raise (ConfigError if status in _FOR_GOOD else TransientError)(message)
