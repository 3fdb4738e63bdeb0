"""The agent daemon, which is always connected.

It delivers the records that other processes of the device put into the outbox. It publishes the
device's birth, state and Will, and its handlers receive the server's messages. It shares a small
board with the measurements, so it is a program of its own (`python -m edgemeter.agent.daemon
OPTIONS`) that loads neither the command line nor the modules of a measurement: it takes 30 MB and
0.1% of a core.
"""

import logging
import queue
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from edgemeter.agent.base import broker_address, interrupts
from edgemeter.agent.base import config as configuration
from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.base.number_text import count
from edgemeter.agent.base.service_manager import notify_service_manager
from edgemeter.agent.base.threads import ended_by_dead_threads
from edgemeter.agent.daemon.handler import IDLE_S, Handler, HandlerContext, make_handlers
from edgemeter.agent.delivery import birth
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.delivery.outbox_file import OUTBOX
from edgemeter.agent.delivery.publisher import Publisher

logger = logging.getLogger(__name__)

KEPT_LINES = 400
LONGEST_LINE = 400
POLL_S = 5.0
# Boards that are switched on at the same moment connect over this time.
FIRST_SPREAD_S = 5.0
# Messages wait in memory; the sender repeats those dropped beyond these limits.
LARGEST_MESSAGE_BYTES = 300 << 10
WAITING_BYTES = 4 << 20
WAITING_MESSAGES = 1000


class RecentLog(logging.Handler):
    """Stores the last lines, each with the time (UTC) and the level."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        self._lines.append(
            f"{when} {record.levelname.lower()} {record.getMessage()}"[:LONGEST_LINE]
        )

    def lines(self) -> list[str]:
        return list(self._lines)


class Dispatcher:
    """Passes events to the handlers.

    `connected`, `received` and `wake` may be called from any thread and signal.
    """

    def __init__(self) -> None:
        self.handlers: Mapping[str, Handler] = {}
        # Reentrant, unlike queue.Queue: a signal that ends the daemon may arrive during a put.
        self._waiting: queue.SimpleQueue[Message | Literal["connected", "wake"]] = (
            queue.SimpleQueue()
        )
        self._waiting_bytes = 0
        self._due_s: dict[str, float] = {}

    @property
    def topics(self) -> list[str]:
        return sorted({topic for handler in self.handlers.values() for topic in handler.topics})

    def connected(self) -> None:
        self._waiting.put("connected")

    def received(self, message: Message) -> None:
        size_bytes = len(message.payload)
        if size_bytes > LARGEST_MESSAGE_BYTES:
            logger.warning(
                "ignored %d bytes on %s: the limit is %d",
                size_bytes,
                message.topic,
                LARGEST_MESSAGE_BYTES,
            )
        elif (
            self._waiting_bytes + size_bytes > WAITING_BYTES
            or self._waiting.qsize() >= WAITING_MESSAGES
        ):
            logger.warning("ignored a message on %s: the queue is full", message.topic)
        else:
            self._waiting_bytes += size_bytes
            self._waiting.put(message)

    def wake(self) -> None:
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
            for name, handler in self.handlers.items():
                if event.topic in handler.topics:
                    _attempt(name, partial(handler.received, event))
        elif event == "connected":
            for name, handler in self.handlers.items():
                _attempt(name, handler.connected)
        for name, handler in self.handlers.items():
            if event is not None or time.monotonic() >= self._due_s.get(name, 0.0):
                pause_s = _attempt(name, handler.poll)
                self._due_s[name] = time.monotonic() + (IDLE_S if pause_s is None else pause_s)

    def close(self) -> None:
        for name, handler in self.handlers.items():
            _attempt(name, handler.close)


def _attempt(name: str, do: Callable[[], float | None]) -> float | None:
    try:
        return do()
    except EdgemeterError as error:
        logger.warning("%s: %s", name, error)
        return None


RECENT_LOG = RecentLog()


class DaemonOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon's identity and broker; `config` is the configuration file."""

    device: str
    fleet: str
    broker: str
    config: str | None


class Daemon:
    """The daemon of one device; `run` once, then `close`."""

    def __init__(self, options: DaemonOptions) -> None:
        config_path = Path(options.config) if options.config else None
        settings = configuration.read(config_path)
        self.address = broker_address.parse_address(options.broker)
        home = configuration.home()
        self.outbox = Outbox(home / OUTBOX, settings.outbox_limit_mb << 20)
        born = birth.read_apart(options.device, options.fleet, self.outbox.session, options.config)
        self._dispatcher = Dispatcher()
        self._publisher = Publisher(
            self.address, self.outbox, born, lasting="persistent", listener=self._dispatcher
        )
        self._is_over = False
        context = HandlerContext(
            device=options.device,
            fleet=options.fleet,
            session=self.outbox.session,
            settings=settings,
            home=home,
            config=config_path,
            publish=self._publisher.publish,
            report_challenge=self._publisher.report_challenge,
            is_connected=self._publisher.is_connected,
            wake=self._dispatcher.wake,
            restart=self.end,
            log=RECENT_LOG.lines,
        )
        self._dispatcher.handlers = make_handlers(context)

    def run(self, first_spread_s: float = FIRST_SPREAD_S) -> None:
        """Run until `end`; if no broker answers, retry."""
        notify_service_manager("READY=1")
        # It spreads connections over time, and is no secret.
        connect_s = time.monotonic() + random.uniform(0, first_spread_s)  # noqa: S311
        while not self._is_over:
            if time.monotonic() >= connect_s:
                self._publisher.start()
                # Another process may have put a record into the outbox.
                self._publisher.wake()
            self._dispatcher.serve(POLL_S)
            notify_service_manager("WATCHDOG=1")

    def end(self) -> None:
        """Let `run` return; may be called from a signal handler."""
        self._is_over = True
        self._dispatcher.wake()

    def close(self) -> None:
        notify_service_manager("STOPPING=1")
        self._dispatcher.close()
        self._publisher.close()
        self.outbox.close()


def run_daemon(document: str) -> int:
    """Run the daemon with the options in `document` (JSON) until SIGTERM or SIGINT.

    Returns the exit status.
    """
    logging.basicConfig(level=logging.INFO, format="edgemeter: %(message)s", stream=sys.stderr)
    logging.getLogger().addHandler(RECENT_LOG)
    options = msgspec.json.decode(document, type=DaemonOptions)
    stopped = threading.Event()
    daemon: Daemon | None = None

    def end() -> None:
        stopped.set()
        if daemon is not None:
            daemon.end()

    with interrupts.calling(end):
        try:
            daemon = Daemon(options)
            try:
                waiting = daemon.outbox.count(options.device)
                logger.info(
                    "agent of %r, broker %s, %s waiting",
                    options.device,
                    daemon.address,
                    count(waiting, "record"),
                )
                with ended_by_dead_threads(daemon.end):
                    if not stopped.is_set():
                        # On a terminal, it was started by hand, and nobody else reads its log.
                        daemon.run(0.0 if sys.stderr.isatty() else FIRST_SPREAD_S)
            finally:
                daemon.close()
        except EdgemeterError as error:
            logger.error("%s", error)  # noqa: TRY400 - no traceback for an expected error
            return error.exit_status
    return 0
