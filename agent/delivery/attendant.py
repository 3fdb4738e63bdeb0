"""An attendant: one part of the agent that stays, which hears some topics of its device and acts by itself every so often.

The seam for whoever adds one: a class of this protocol in a module of your own, one line in `attendants.py`, a test. The agent that stays
shares a small board with what is measured there: it holds 30 MB and takes 0.1 % of a core, so import at the top of your module what
it holds already (msgspec, sqlite3, the contracts), start a child process for everything else, and look seldom.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from edgemeter.agent.config import Config
from edgemeter.agent.delivery.mqtt_session import Message
from edgemeter.agent.delivery.topics import Kind, Topic

# How long an attendant that has nothing to do lets pass before it looks again.
IDLE_S = 60.0


class Publish(Protocol):
    """Hands a message to the broker, from any thread, and does not wait.

    Returns False when there is no connection or too much waits for it. True is no promise either: what a dropped connection loses is
    lost, so whoever needs an answer sends again when `connected` is called, or when the answer is overdue.
    """

    def __call__(self, topic: str, payload: bytes, *, qos: Literal[0, 1] = 1, lasting: Literal["passing", "retained"] = "passing") -> bool:
        """Hand over one message."""
        ...


@dataclass(frozen=True, slots=True)
class Post:
    """What an attendant is given: who it works for, where it may keep things, and its way to the broker.

    `session` is the number under which this process reports; `config` the file of the configuration, None for the usual places;
    `restart` ends the agent in good order, so that whoever watches over it (systemd) starts it anew; `log` returns the last lines that
    the agent logged.
    """

    device: str
    fleet: str
    session: int
    settings: Config
    home: Path
    config: Path | None
    publish: Publish
    is_connected: Callable[[], bool]
    wake: Callable[[], None]
    restart: Callable[[], None]
    log: Callable[[], Sequence[str]]

    def topic(self, kind: Kind) -> str:
        """Return this device's topic of that kind."""
        return str(Topic(self.fleet, self.device, kind))


class Attendant(Protocol):
    """Made once with (Post); every method is called from the agent's main thread, in turn with the other attendants'.

    What raises EdgemeterError is logged and goes on; nothing may block longer than a second: the watchdog waits for the loop.
    """

    topics: Sequence[str]
    """What it hears, whole topics without wildcards. Payloads above 300 KiB never reach it."""

    def connected(self) -> None:
        """Take note that a connection is up, each time: what was published before may be lost."""
        ...

    def received(self, message: Message) -> None:
        """Take one message on one of `topics`: anybody's bytes, refuse what is wrong with a ConfigError."""
        ...

    def look(self) -> float:
        """Do what is due; return after how many seconds to look again. Called at the start, after a message and on `Post.wake`, too."""
        ...

    def close(self) -> None:
        """Give back what it holds; child processes are ended here."""
        ...
