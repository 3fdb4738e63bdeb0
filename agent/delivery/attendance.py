"""Brings what the broker sends to the attendants, in the main thread of the agent that stays, and lets each look when it is due."""

import logging
import queue
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

from edgemeter.agent.delivery.attendant import IDLE_S, Attendant
from edgemeter.agent.delivery.mqtt_session import Message
from edgemeter.agent.errors import EdgemeterError

logger = logging.getLogger(__name__)

# What anybody may send us is held in memory until its turn: no more than this, the rest comes again when it is missed.
LARGEST_MESSAGE_BYTES = 300 << 10
WAITING_BYTES = 4 << 20
WAITING_MESSAGES = 1000


class Attendance:
    """The attendants at work; `connected`, `received` and `wake` may be called from any thread, a signal's too, the rest from one."""

    def __init__(self) -> None:
        self.attendants: Mapping[str, Attendant] = {}
        # Reentrant, unlike queue.Queue: a signal that ends the agent may come while something is put here.
        self._waiting: queue.SimpleQueue[Message | Literal["connected", "wake"]] = queue.SimpleQueue()
        self._waiting_bytes = 0
        self._due_s: dict[str, float] = {}

    @property
    def topics(self) -> list[str]:
        """What the attendants hear, together."""
        return sorted({topic for one in self.attendants.values() for topic in one.topics})

    def connected(self) -> None:
        """Publisher event: a connection is up."""
        self._waiting.put("connected")

    def received(self, message: Message) -> None:
        """Publisher event: a message on one of `topics`."""
        size_bytes = len(message.payload)
        if size_bytes > LARGEST_MESSAGE_BYTES:
            logger.warning("ignored %d bytes on %s: at most %d are taken", size_bytes, message.topic, LARGEST_MESSAGE_BYTES)
        elif self._waiting_bytes + size_bytes > WAITING_BYTES or self._waiting.qsize() >= WAITING_MESSAGES:
            logger.warning("ignored what came on %s: too much waits already", message.topic)
        else:
            self._waiting_bytes += size_bytes
            self._waiting.put(message)

    def wake(self) -> None:
        """Let every attendant look now."""
        self._waiting.put("wake")

    def serve(self, timeout_s: float) -> None:
        """Wait for something to do, at most `timeout_s`, and do it."""
        due_s = min(self._due_s.values(), default=time.monotonic() + timeout_s)
        try:
            event = self._waiting.get(timeout=max(0.0, min(timeout_s, due_s - time.monotonic())))
        except queue.Empty:
            event = None
        if isinstance(event, Message):
            self._waiting_bytes -= len(event.payload)
            self._deliver(event)
        elif event == "connected":
            for name, one in self.attendants.items():
                _attempt(name, one.connected)
        self._look(at_once=event is not None)

    def close(self) -> None:
        """Close every attendant."""
        for name, one in self.attendants.items():
            _attempt(name, one.close)

    def _deliver(self, message: Message) -> None:
        for name, one in self.attendants.items():
            if message.topic in one.topics:
                _attempt(name, partial(one.received, message))

    def _look(self, *, at_once: bool) -> None:
        for name, one in self.attendants.items():
            if at_once or time.monotonic() >= self._due_s.get(name, 0.0):
                pause_s = _attempt(name, one.look)
                self._due_s[name] = time.monotonic() + (IDLE_S if pause_s is None else pause_s)


def _attempt(name: str, do: Callable[[], float | None]) -> float | None:
    try:
        return do()
    except EdgemeterError as error:
        logger.warning("%s: %s", name, error)
        return None
