"""Verifies orders for this device.

They must be signed by the fleet's service, in answer to the device's present challenge.

A recorded order answers an earlier challenge: neither a clock nor a number on the disk is needed,
so a board without a clock, after a power cut or with last year's card image refuses it too. Within
the life of a challenge, the journal knows the order. An order that the broker kept while the agent
was killed or offline is not obeyed either, but is no sign of an attack: for a minute after the
service learns a new challenge, its answers to this agent's last ones, which are on the disk, are
not counted as refused.
"""

import logging
import secrets
import time
from collections.abc import Callable

import msgspec

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.contract import orders
from edgemeter.agent.contract.health import RefusedOrders
from edgemeter.agent.contract.sealed import SealedMessage, decode_addressed, decode_sealed
from edgemeter.agent.daemon.handler import IDLE_S, HandlerContext
from edgemeter.agent.identity.identity import IdentityFiles
from edgemeter.agent.identity.service_signature import (
    REFUSED_ORDERS_FILE,
    ServiceSignature,
    read_refused_orders,
)

logger = logging.getLogger(__name__)

CHALLENGE_S = 3600.0
# An order that was sent before the service knew the new challenge arrives within this time.
GRACE_S = 60.0
# Each signature is verified by a process: this many wrong ones at once, then one a second. The
# service sends again.
MOST_WRONG = 30
TITLE = "an order"
# Two quick restarts leave an order on its way that answers the challenge before the last.
EARLIER_CHALLENGES = 5
CHALLENGES_FILE = "challenges.json"
# A flood of refused orders costs one write in this time, and one report of the state.
NOTE_S = 10.0


class OrderCheck:
    """Verifies commands, and notes refused ones for `edgemeter fleet list`."""

    def __init__(
        self,
        context: HandlerContext,
        clock_s: Callable[[], float] = time.monotonic,
        signature: ServiceSignature | None = None,
    ) -> None:
        self._context = context
        self._clock_s = clock_s
        self._signature = signature or ServiceSignature(IdentityFiles(context.home))
        self._challenges_file = context.home / CHALLENGES_FILE
        self._earlier = durable_file.read_if_any(self._challenges_file, tuple[str, ...]) or ()
        self._challenge = secrets.token_hex(16)
        self._keep_challenge()
        self._previous: str | None = None
        self._made_s = clock_s()
        # When the service was first able to learn the present challenge.
        self._reachable_s: float | None = None
        self._reported_s = float("-inf")
        self._checks_left = float(MOST_WRONG)
        self._checked_s = clock_s()
        self._noted_file = context.home / REFUSED_ORDERS_FILE
        self._refused = read_refused_orders(context.home) or RefusedOrders(
            count=0, last_ns=0, reason=""
        )
        self._is_noted = True
        self._noted_s = float("-inf")
        context.report_challenge(self._challenge)

    def connected(self) -> None:
        """A device that was away for long refuses everything that was sent before."""
        if self._clock_s() - self._made_s >= CHALLENGE_S:
            self._renew()
            self._previous = None
        elif self._reachable_s is None:
            self._reachable_s = self._clock_s()

    def poll(self) -> float:
        """Create a challenge when due, and note refusals; return the seconds to the next poll."""
        now_s = self._clock_s()
        if not self._is_noted and now_s - self._noted_s >= NOTE_S:
            self._note(now_s)
        if not self._context.is_connected():
            return IDLE_S
        if now_s - self._made_s >= CHALLENGE_S:
            self._renew()
        return max(1.0, self._made_s + CHALLENGE_S - now_s) if self._is_noted else 1.0

    def command(self, payload: bytes) -> bytes | None:
        """Return the order or acknowledgement in the payload.

        None if the state is reported again instead, for the service to send one.

        Raises:
            ConfigError: it is refused: not signed by the service, for another device, or recorded
                earlier.
            UnavailableError: there is no openssl.
        """
        try:
            return self._verified(payload)
        except ConfigError as error:
            self._refused = RefusedOrders(
                count=self._refused.count + 1, last_ns=time.time_ns(), reason=str(error)[:400]
            )
            self._is_noted = False
            raise

    def _verified(self, payload: bytes) -> bytes | None:
        sealed = decode_sealed(payload, TITLE, orders.LARGEST_ORDER_BYTES)
        addressed = decode_addressed(bytes(sealed.message))
        device, fleet, now_s = self._context.device, self._context.fleet, self._clock_s()
        if (addressed.device, addressed.fleet) != (device, fleet):
            raise ConfigError(
                f"an order for device {addressed.device!r} of fleet {addressed.fleet!r} came to "
                f"{device!r} of {fleet!r}"
            )
        if addressed.challenge is None:
            self._report_again(now_s)
            return None
        is_present = addressed.challenge == self._challenge or (
            addressed.challenge == self._previous and now_s - self._made_s < GRACE_S
        )
        if not is_present:
            self._report_again(now_s)
            is_learning = self._reachable_s is None or now_s - self._reachable_s < GRACE_S
            if not is_learning or addressed.challenge not in self._earlier:
                raise ConfigError(
                    "an order answers an earlier challenge of this device: it was delayed, or "
                    "somebody replays it"
                )
        self._check_signature(sealed, now_s)
        if is_present:
            return bytes(addressed.command)
        logger.info(
            "an order answers an earlier challenge of this device, from before it was offline: "
            "the service sends it again"
        )
        return None

    def _check_signature(self, sealed: SealedMessage, now_s: float) -> None:
        self._checks_left = min(float(MOST_WRONG), self._checks_left + now_s - self._checked_s)
        self._checked_s = now_s
        if self._checks_left < 1.0:
            raise ConfigError(
                "too many unsigned orders arrived: this one was not checked, and is "
                "repeated if it is valid"
            )
        self._checks_left -= 1.0
        self._signature.verified(sealed, TITLE)
        self._checks_left += 1.0

    def _renew(self) -> None:
        self._earlier = (*self._earlier, self._challenge)[-EARLIER_CHALLENGES:]
        self._previous, self._challenge = self._challenge, secrets.token_hex(16)
        self._keep_challenge()
        self._made_s = self._reachable_s = self._clock_s()
        self._context.report_challenge(self._challenge)

    def _keep_challenge(self) -> None:
        try:
            durable_file.write(
                self._challenges_file,
                msgspec.json.encode((*self._earlier, self._challenge)[-EARLIER_CHALLENGES:]),
                0o600,
            )
        except UnavailableError as error:
            logger.warning(
                "after a restart, orders on their way will be counted as refused: %s", error
            )

    def _report_again(self, now_s: float) -> None:
        if now_s - self._reported_s >= NOTE_S:
            self._reported_s = now_s
            self._context.report_challenge(self._challenge)

    def _note(self, now_s: float) -> None:
        self._noted_s = now_s
        try:
            durable_file.write(self._noted_file, msgspec.json.encode(self._refused), 0o644)
            self._is_noted = True
        except UnavailableError as error:
            logger.warning("refused orders cannot be noted: %s", error)
