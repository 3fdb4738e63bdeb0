"""The next certificate, asked for over the live session of the agent that stays when two thirds of the present one's life have passed.

The key stays, so that one file is put in the place of another; connections take it the next time they are made.
"""

import logging
import time
from collections.abc import Callable, Sequence

from edgemeter.agent.delivery.attendant import Post
from edgemeter.agent.delivery.mqtt_session import Message
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.identity import clock_floor, joining, messages, own, own_key
from edgemeter.agent.identity.messages import Ask
from edgemeter.agent.identity.own import Identity, IdentityFiles

logger = logging.getLogger(__name__)

LOOK_S = 3600.0
# An answer that does not come is asked for again after that; refused, it takes a person's time.
ASK_AGAIN_S = 300.0


class Renewal:
    """An attendant (see `Attendant`); a device that has joined no fleet has nothing to renew."""

    def __init__(self, post: Post, clock: Callable[[], int] = time.time_ns) -> None:
        self._post = post
        self._files = IdentityFiles(post.home)
        self._clock = clock
        self._request: str | None = None
        self._asked_s: float | None = None
        joining.settle(self._files)
        identity = own.read(post.home)
        self._identity = identity if identity is not None and identity.device == post.device else None
        self.topics: Sequence[str] = (post.topic("certificate"),) if self._identity else ()
        if self._identity is not None and clock() < self._floor_ns():
            logger.warning(
                "this board's clock is behind: its release was built, or its fleet heard, later; may it ask a time server (NTP)?"
            )

    def connected(self) -> None:
        """Ask again: what was asked before may be lost."""
        self._asked_s = None

    def received(self, message: Message) -> None:
        """Take the answer.

        Raises:
            ConfigError: it is none, or a refusal.
            UnavailableError: the certificate cannot be written.
        """
        answer = messages.decode_answer(message.payload)
        if self._identity is None or self._request is None or answer.request != self._request:
            return
        self._request = None
        if answer.state != "accepted":
            reason = f"the fleet does not renew this device's certificate ({answer.state}): {answer.reason}"
            raise ConfigError(reason)
        identity = self._identity
        self._identity = joining.take(self._files, answer, identity.board(), identity.broker, identity.claim)
        logger.info("the certificate was renewed: number %s", self._identity.number)

    def look(self) -> float:
        """Ask when it is time."""
        if self._identity is None or not self._identity.is_due(max(self._clock(), self._floor_ns())):
            return LOOK_S
        now_s = time.monotonic()
        if self._asked_s is not None and now_s - self._asked_s < ASK_AGAIN_S:
            return self._asked_s + ASK_AGAIN_S - now_s
        if self._post.is_connected():
            self._ask(self._identity)
            self._asked_s = now_s
        return ASK_AGAIN_S

    def close(self) -> None:
        """Give back nothing."""

    def _floor_ns(self) -> int:
        return clock_floor.floor_ns(self._identity.seen_ns if self._identity else None)

    def _ask(self, identity: Identity) -> None:
        self._files.next_key.unlink(missing_ok=True)
        csr = own_key.request(self._files.key, identity.device)
        self._request = messages.request_of(csr)
        question = Ask(csr=csr, serial=identity.serial, serial_source=identity.serial_source)
        self._post.publish(self._post.topic("renew"), messages.encode(question))
