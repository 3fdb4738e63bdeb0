"""A conversation with the fleet's enrolment desk: one question, asked until it is answered, over whatever line there is."""

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType

from edgemeter.agent.delivery import backoff
from edgemeter.agent.delivery.broker_address import BrokerAddress
from edgemeter.agent.delivery.mqtt_session import Message, MqttSession, Profile
from edgemeter.agent.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.identity import messages
from edgemeter.agent.identity.messages import Answer, Ask, Held

logger = logging.getLogger(__name__)

# An answer comes within a second; a lost question is asked again after this, one that somebody has to decide ever more seldom.
FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 60.0
GOODBYE_S = 5.0
LOOK_S = 1.0


def _nothing() -> None:
    """Stay alive without telling anybody."""


class Conversation:
    """Use it as a context manager: `ask` once or more, then `confirm`; `alive` is called every second while it waits."""

    def __init__(self, address: BrokerAddress, client_id: str, ask_on: str, hear_on: str, alive: Callable[[], object] = _nothing) -> None:
        self._address = address
        self._profile = Profile(client_id)
        self._session = MqttSession(address, self._profile, self)
        self._ask_on = ask_on
        self._hear_on = hear_on
        self._alive = alive
        self._is_up = False
        self._is_over = False
        self._heard = threading.Condition()
        self._answers: dict[str, Answer] = {}
        self._is_new_connection = False

    def __enter__(self) -> "Conversation":  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        self._is_over = True
        self._session.close()

    def ask(self, question: Ask, patience_s: float) -> Answer:
        """Return the desk's decision, waiting for it at most `patience_s`.

        Raises:
            ConfigError: the broker does not let us in; ask again, if that may change.
            TransientError: no broker, no desk or nobody's decision in that time: ask again later.
        """
        deadline = time.monotonic() + patience_s
        self._connect(deadline)
        request = messages.request_of(question.csr)
        pause_s, reason = FIRST_PAUSE_S, "no answer: does `edgemeter fleet serve` run there?"
        while time.monotonic() < deadline:
            self._answers.pop(request, None)
            self._session.publish(self._ask_on, messages.encode(question))
            answer = self._wait(request, min(time.monotonic() + pause_s, deadline))
            if answer is None:
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            elif answer.state != "pending":
                return answer
            else:
                if reason != answer.reason:
                    logger.info("waiting for somebody to accept this board (`edgemeter fleet accept`): %s", answer.reason)
                reason = answer.reason or "somebody has to accept this board"
                answer = self._wait(request, min(time.monotonic() + pause_s, deadline))
                if answer is not None and answer.state != "pending":
                    return answer
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        message = f"the fleet at {self._address} has not accepted this board within {patience_s:g} s ({reason}): try again later"
        raise TransientError(message)

    def confirm(self, number: str) -> None:
        """Say that the certificate of that number is on the disk; lost when the line is down, which does no harm."""
        self._session.publish(self._ask_on, messages.encode(Held(held=number)))
        self._session.flush(GOODBYE_S)

    def connected(self) -> None:
        """Session event: subscribe, and have the question asked again."""
        self._session.subscribe([self._hear_on])
        with self._heard:
            self._is_new_connection = self._is_up
            self._is_up = True
            self._heard.notify_all()

    def disconnected(self, reason: str) -> None:
        """Session event: it comes back by itself."""
        if not self._is_over:
            logger.info("connection to the broker at %s lost: %s", self._address, reason)

    def received(self, message: Message) -> None:
        """Session event: an answer, to us or to a copy of us."""
        try:
            answer = messages.decode_answer(message.payload)
        except ConfigError as error:
            logger.warning("ignored what came on %s: %s", message.topic, error)
            return
        with self._heard:
            self._answers[answer.request] = answer
            self._heard.notify_all()

    def answered(self, refusal: str | None) -> None:
        """Session event: the broker's word."""
        if refusal is not None:
            logger.warning("the broker at %s refuses %s: %s", self._address, self._ask_on, refusal)

    def _connect(self, deadline: float) -> None:
        failures = 0
        while not self._is_up:
            # A session connects once.
            self._session = MqttSession(self._address, self._profile, self)
            try:
                self._session.connect()
            except UnavailableError as error:
                # Said once, not with every try.
                logger.log(logging.DEBUG if failures else logging.WARNING, "%s", error)
                pause_until = time.monotonic() + backoff.wait_s(failures)
                failures += 1
                if pause_until >= deadline:
                    raise TransientError(str(error)) from error
                self._rest(pause_until)

    def _rest(self, until: float) -> None:
        while (left_s := until - time.monotonic()) > 0:
            self._alive()
            time.sleep(min(left_s, LOOK_S))

    def _wait(self, request: str, until: float) -> Answer | None:
        """Return the answer, None when none came or the line broke and came back: what was asked before is lost then."""
        while (left_s := until - time.monotonic()) > 0:
            self._alive()
            with self._heard:
                if (answer := self._answers.pop(request, None)) is not None:
                    return answer
                if self._is_new_connection:
                    self._is_new_connection = False
                    return None
                self._heard.wait(min(left_s, LOOK_S))
        return None
