"""The protocol of handlers, and their table.

A handler is a part of the daemon that receives some topics of its device and polls for work.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Literal, Protocol

from edgemeter.agent.base.config import Config
from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.contract.messages import Topic, TopicKind

# The pause of an idle handler.
IDLE_S = 60.0


class Publish(Protocol):
    """Passes a message to the broker without waiting; may be called from any thread.

    Returns False without a connection or if the queue is full. True is no promise: a dropped
    connection loses messages, so a handler that needs an answer repeats the message when
    `connected` is called, or when the answer is overdue.
    """

    def __call__(
        self,
        topic: str,
        payload: bytes,
        *,
        qos: Literal[0, 1] = 1,
        lasting: Literal["passing", "retained"] = "passing",
    ) -> bool:
        """Send one message."""


@dataclass(frozen=True, slots=True)
class HandlerContext:
    """The context of a handler: its device, its data folder, and its connection to the broker.

    `session` is the number under which this process reports; `config` is the configuration file,
    None for the usual places; `report_challenge` reports the value that orders must repeat, with
    the device's state; `restart` ends the daemon cleanly, so that the service manager restarts it;
    `log` returns the last lines of the daemon's log.
    """

    device: str
    fleet: str
    session: int
    settings: Config
    home: Path
    config: Path | None
    publish: Publish
    report_challenge: Callable[[str], None]
    is_connected: Callable[[], bool]
    wake: Callable[[], None]
    restart: Callable[[], None]
    log: Callable[[], Sequence[str]]

    def topic(self, kind: TopicKind) -> str:
        return str(Topic(self.fleet, self.device, kind))


class Handler(Protocol):
    """A handler of the daemon, created once with its HandlerContext.

    Every method is called from the daemon's main thread, one handler after the other.

    An EdgemeterError is logged, and the daemon continues. No method may block longer than a second:
    the watchdog waits for the loop. The default of every method does nothing.
    """

    topics: Sequence[str]
    """The topics it receives, without wildcards. Payloads above 300 KiB never reach it."""

    def connected(self) -> None:
        """Handle a new connection: messages published before may be lost."""
        return

    def received(self, message: Message) -> None:  # noqa: ARG002 - ignored here
        """Handle one message on one of `topics`.

        Its bytes are untrusted. Reject invalid ones with a ConfigError.
        """
        return

    def poll(self) -> float:
        """Do the work that is due; return the seconds to the next poll.

        Also called at the start, after a message and on `wake`.
        """

    def close(self) -> None:
        """Release resources, and end child processes."""
        return


logger = logging.getLogger(__name__)

HANDLERS: Mapping[str, str] = {
    "update": "edgemeter.agent.update.healthy:ReleaseHealthHandler",
    "renewal": "edgemeter.agent.identity.renewal:RenewalHandler",
    "health": "edgemeter.agent.health.health_handler:HealthHandler",
    "jobs": "edgemeter.agent.jobs.jobs_handler:JobsHandler",
}


def make_handlers(
    context: HandlerContext, table: Mapping[str, str] = HANDLERS
) -> dict[str, Handler]:
    """Return the handlers by name.

    One that cannot be created is logged and left out: results are delivered in any case.
    """
    handlers: dict[str, Handler] = {}
    for name, where in table.items():
        try:
            handlers[name] = resolve_name(where)(context)
        except EdgemeterError as error:
            logger.error("%s: %s", name, error)  # noqa: TRY400 - no traceback for an expected error
    return handlers
