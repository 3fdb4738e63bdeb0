"""Requests to the fleet's enrolment service over MQTT, for a first certificate or a renewed one."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from edgemeter.agent.base.broker_address import BrokerAddress
from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.base.mqtt_session import Message, MqttSession, SessionProfile, backoff_s
from edgemeter.agent.contract import identity
from edgemeter.agent.contract.sealed import decode_sealed
from edgemeter.agent.identity.service_signature import ServiceSignature

logger = logging.getLogger(__name__)

# An answer takes a second; a lost request is repeated after this, one that waits for approval less and less often.
FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 60.0
GOODBYE_S = 5.0
POLL_S = 1.0
_TITLE = "an answer to a request"


class EnrolmentClient(AbstractContextManager["EnrolmentClient"]):
    """Requests certificates from the enrolment service. A context manager: `request` once or more, then `confirm`.

    An answer counts if the service has signed it, as `signature` verifies. `alive` is called every second while it waits.
    """

    # The transport.
    make_session = MqttSession

    def __init__(
        self,
        address: BrokerAddress,
        client_id: str,
        topics: tuple[str, str],
        signature: ServiceSignature,
        alive: Callable[[], object] = lambda: None,
    ) -> None:
        self._address = address
        self._profile = SessionProfile(client_id)
        self._session = MqttSession(address, self._profile, self)
        self._request_topic, self._answer_topic = topics
        self._signature = signature
        self._alive = alive
        self._is_up = False
        self._is_over = False
        self._changed = threading.Condition()
        self._answers: dict[str, identity.EnrolmentAnswer] = {}
        self._is_new_connection = False

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._session.close()

    def request(self, question: identity.CertificateRequest, timeout_s: float) -> identity.EnrolmentAnswer:
        """Return the decision of the enrolment service; wait for it at most `timeout_s`.

        Raises:
            ConfigError: the broker rejects us; try again if that may change.
            TransientError: no broker, no service or no decision in that time: try again later.
        """
        deadline = time.monotonic() + timeout_s
        self._connect(deadline)
        request = identity.request_id(question.csr)
        pause_s, reason = FIRST_PAUSE_S, "no answer: check that `edgemeter fleet serve` runs there"
        while time.monotonic() < deadline:
            self._answers.pop(request, None)
            self._session.publish(self._request_topic, identity.encode_identity(question))
            answer = self._wait(request, min(time.monotonic() + pause_s, deadline))
            if answer is not None and answer.state == "pending":
                if reason != answer.reason:
                    logger.info("waiting for approval (`edgemeter fleet requests accept`): %s", answer.reason)
                reason = answer.reason or "the request needs approval"
                answer = self._wait(request, min(time.monotonic() + pause_s, deadline))
            if answer is not None and answer.state != "pending":
                return answer
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        raise TransientError(f"the fleet at {self._address} has not approved this board within {timeout_s:g} s ({reason}): try again later")

    def confirm(self, number: str) -> None:
        """Confirm that the certificate of that number is on the disk; it does no harm if that is lost."""
        self._session.publish(self._request_topic, identity.encode_identity(identity.CertificateHeld(held=number)))
        self._session.flush(GOODBYE_S)

    def connected(self) -> None:
        """Session event: subscribe, and have the question asked again."""
        self._session.subscribe([self._answer_topic])
        with self._changed:
            self._is_new_connection = self._is_up
            self._is_up = True
            self._changed.notify_all()

    def disconnected(self, reason: str) -> None:
        """Session event: it comes back by itself."""
        if not self._is_over:
            logger.info("connection to the broker at %s lost: %s", self._address, reason)

    def received(self, message: Message) -> None:
        """Session event: an answer, to us or to a copy of this card."""
        try:
            sealed = decode_sealed(message.payload, _TITLE, identity.LARGEST_BYTES)
            answer = identity.decode_answer(self._signature.verified(sealed, _TITLE))
        except (ConfigError, UnavailableError) as error:
            logger.warning("ignored a message on %s: %s", message.topic, error)
            return
        with self._changed:
            self._answers[answer.request] = answer
            self._changed.notify_all()

    def answered(self, refusal: str | None) -> None:
        """Session event: the broker's answer to a publish."""
        if refusal is not None:
            logger.warning("the broker at %s refuses %s: %s", self._address, self._request_topic, refusal)

    def _connect(self, deadline: float) -> None:
        failures = 0
        while not self._is_up:
            # A session connects once.
            self._session = self.make_session(self._address, self._profile, self)
            try:
                self._session.connect()
            except UnavailableError as error:
                # The broker may have accepted us just after the time was up: that session is closed all the same.
                self._is_up = False
                # Logged once, not with every try.
                logger.log(logging.DEBUG if failures else logging.WARNING, "%s", error)
                pause_until = time.monotonic() + backoff_s(failures)
                failures += 1
                if pause_until >= deadline:
                    raise TransientError(str(error)) from error
                self._pause(pause_until)

    def _pause(self, until: float) -> None:
        while (left_s := until - time.monotonic()) > 0:
            self._alive()
            time.sleep(min(left_s, POLL_S))

    def _wait(self, request: str, until: float) -> identity.EnrolmentAnswer | None:
        """Return the answer, None when none came or the line broke and came back: what was asked before is lost then."""
        while (left_s := until - time.monotonic()) > 0:
            self._alive()
            with self._changed:
                if (answer := self._answers.pop(request, None)) is not None:
                    return answer
                if self._is_new_connection:
                    self._is_new_connection = False
                    return None
                self._changed.wait(min(left_s, POLL_S))
        return None
