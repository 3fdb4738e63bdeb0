"""A broker in this process, for one machine: amqtt, on the loopback only.

Receipts compensate for its limits.

Limits: MQTT 3.1.1 only; messages in flight are dropped when a client disconnects, and after 5 s
without acknowledgement; no session is kept for a disconnected anonymous client; nothing survives a
restart; about 6,000 messages a second. For several machines start a real broker (mosquitto, EMQX,
HiveMQ) and give its address.
"""

import asyncio
import logging
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from edgemeter.agent.base.broker_address import BrokerAddress
from edgemeter.agent.base.errors import EdgemeterError, UnavailableError
from edgemeter.agent.base.plugins import require_extra

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
START_S = 10.0
STOP_S = 5.0
# Tasks that wait for nothing outside have ended after it.
TURN_S = 0.01


def check_installed() -> None:
    """Raise UnavailableError, with the pip command, if the broker's library is not installed."""
    require_extra(
        "collector", "the embedded broker (used without --broker ADDRESS) needs amqtt", "amqtt"
    )


class _Subscriptions(dict[str, Any]):
    """The clients of each topic.

    amqtt waits for others while it iterates over the topics, whose number may change then.
    """

    def __iter__(self) -> Iterator[str]:
        return iter(list(super().__iter__()))


class EmbeddedBroker:
    """A broker on 127.0.0.1; `start` once, then `stop`."""

    def __init__(self, port: int = 0) -> None:
        check_installed()
        self.port = port
        self._thread: threading.Thread | None = None
        self._connections: weakref.WeakSet[asyncio.StreamWriter] = weakref.WeakSet()

    def start(self) -> BrokerAddress:
        """Return the address of the broker; port 0 has become a free one.

        Raises:
            UnavailableError: the port is taken.
        """
        port: Future[int] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(port)), name="edgemeter-broker", daemon=True
        )
        self._thread.start()
        try:
            self.port = port.result(START_S)
        except EdgemeterError:
            self._thread.join()
            raise
        return BrokerAddress(LOOPBACK, self.port)

    def stop(self) -> None:
        """End the broker, its connections and its thread; may be called twice."""
        if self._thread is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()

    async def _serve(self, port: "Future[int]") -> None:
        from amqtt.broker import Broker  # noqa: PLC0415 - 0.3 s, and the extra may be absent
        from amqtt.contexts import BrokerConfig, ListenerConfig  # noqa: PLC0415 - as above
        from amqtt.errors import BrokerError  # noqa: PLC0415 - as above

        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        # It logs every client that tries MQTT 5 first, as ours do, as an error.
        logging.getLogger("amqtt").setLevel(logging.CRITICAL)
        logging.getLogger("transitions").setLevel(logging.CRITICAL)
        # Its tasks fail whenever a client disconnects; this cannot be avoided, and receipts make it
        # harmless.
        self._loop.set_exception_handler(
            lambda _loop, context: logger.debug(
                "in the embedded broker: %s", context.get("message")
            )
        )
        listeners = {"default": ListenerConfig(bind=f"{LOOPBACK}:{self.port}")}
        plugins = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}
        broker = self._broker = Broker(BrokerConfig(listeners=listeners, plugins=plugins))
        broker._subscriptions = _Subscriptions()  # noqa: SLF001 - amqtt takes it from nobody
        self._take = broker.stream_connected
        broker.stream_connected = self._connected
        try:
            await broker.start()
        except (BrokerError, OSError) as error:
            remedy = "choose another port (--port, 0: any free one)"
            port.set_exception(
                UnavailableError(
                    "the embedded broker cannot listen at "
                    f"{LOOPBACK}:{self.port} ({error}): {remedy}"
                )
            )
            return
        # amqtt has no public attribute for the port that the system chose.
        port.set_result(
            int(broker._servers["default"].instance.sockets[0].getsockname()[1])  # noqa: SLF001
        )
        await self._stopping.wait()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(broker.shutdown(), STOP_S)
        # Clients that connect during the shutdown remain.
        for writer in list(self._connections):
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, listener_name: str
    ) -> None:
        self._connections.add(writer)
        # amqtt takes a write error for the end of the connection, with a DISCONNECT still unread,
        # and publishes the Will.
        reader.set_exception = lambda _: reader.feed_eof()  # type: ignore[assignment,method-assign]
        read, drain = reader.readexactly, writer.drain
        has_waited = False

        async def read_in_turn(n: int) -> bytes:
            # amqtt starts a session and handles a packet in tasks of their own, to which
            # `wait_for` does not yield since Python 3.12: what is here already would come before
            # them, so that a goodbye would not count, or the session never end.
            nonlocal has_waited
            has_ended = reader._eof  # type: ignore[attr-defined]  # noqa: SLF001 - it has no other
            if reader.at_eof() or (has_ended and not has_waited):
                has_waited = True
                await asyncio.sleep(TURN_S)
            return await read(n)

        async def drained() -> None:
            with suppress(ConnectionError):
                await drain()

        reader.readexactly = read_in_turn  # type: ignore[method-assign]
        writer.drain = drained  # type: ignore[method-assign]
        try:
            await self._take(reader, writer, listener_name)
        finally:
            # amqtt leaves the connection of a rejected client open.
            writer.close()
