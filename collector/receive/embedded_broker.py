"""A broker inside this process, for one machine: amqtt, on the loopback only. Receipts make its limits harmless.

Limits: MQTT 3.1.1 only; messages in flight are dropped when a client disconnects, and after 5 s without acknowledgement; no session is kept
for a disconnected anonymous client; nothing survives a restart; about 6,000 messages a second. For several machines start a real broker
(mosquitto, EMQX, HiveMQ) and give its address.
"""

import asyncio
import logging
import threading
import weakref
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from edgemeter.agent.base.broker_address import BrokerAddress
from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.plugins import require_extra

if TYPE_CHECKING:
    from amqtt.broker import Broker

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
START_S = 10.0
STOP_S = 5.0

_Result = TypeVar("_Result")


def check_installed() -> None:
    """Raise UnavailableError, with the pip command, if the library of the broker is not installed."""
    require_extra("collector", "the embedded broker (used without --broker ADDRESS) needs amqtt", "amqtt")


class _Subscriptions(dict[str, Any]):
    """The clients of each topic. amqtt waits for others while it goes through the topics, which then may become more or fewer."""

    def __iter__(self) -> Iterator[str]:
        return iter(list(super().__iter__()))


class EmbeddedBroker:
    """A broker on 127.0.0.1; `start` once, `stop` once or more."""

    def __init__(self, port: int = 0) -> None:
        check_installed()
        self.port = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="edgemeter-broker", daemon=True)
        self._broker: Broker | None = None
        self._connections: weakref.WeakSet[asyncio.StreamWriter] = weakref.WeakSet()

    def start(self) -> BrokerAddress:
        """Return where the broker listens; port 0 has become a free one.

        Raises:
            UnavailableError: the port is taken.
        """
        from amqtt.broker import Broker  # noqa: PLC0415 - 0.3 s, and the extra may be absent
        from amqtt.contexts import BrokerConfig, ListenerConfig  # noqa: PLC0415 - as above
        from amqtt.errors import BrokerError  # noqa: PLC0415 - as above

        # It logs every client that tries MQTT 5 first, as ours do, as an error.
        logging.getLogger("amqtt").setLevel(logging.CRITICAL)
        logging.getLogger("transitions").setLevel(logging.CRITICAL)
        listener = ListenerConfig(bind=f"{LOOPBACK}:{self.port}")
        plugins = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}
        # Its tasks fail whenever a client disconnects; nothing can be done about that, and receipts make it harmless.
        self._loop.set_exception_handler(lambda _loop, context: logger.debug("in the embedded broker: %s", context.get("message")))
        self._thread.start()
        try:
            self._broker = self._call(self._start(Broker, BrokerConfig(listeners={"default": listener}, plugins=plugins)), START_S)
        except (BrokerError, OSError) as error:
            self.stop()
            raise UnavailableError(
                f"the embedded broker cannot listen at {LOOPBACK}:{self.port} ({error}): choose another port (--port, 0: any free one)"
            ) from error
        # amqtt has no public attribute for the port that the system chose.
        self.port = int(self._broker._servers["default"].instance.sockets[0].getsockname()[1])  # noqa: SLF001
        return BrokerAddress(LOOPBACK, self.port)

    def stop(self) -> None:
        """End the broker, its connections and its thread; may be called twice."""
        if self._loop.is_closed():
            return
        if self._broker is not None:
            self._call(self._shut_down(self._broker), 2 * STOP_S)
            self._broker = None
        if self._thread.is_alive():
            self._call(_cancel_others(), STOP_S)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, _Result], timeout_s: float) -> _Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    async def _start(self, kind: Any, configuration: Any) -> "Broker":
        # The constructor uses the running loop, so it is called there.
        broker: Broker = kind(configuration)
        broker._subscriptions = _Subscriptions()  # noqa: SLF001 - amqtt takes it from nobody
        take = broker.stream_connected

        async def noted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, listener_name: str) -> None:
            self._connections.add(writer)
            # amqtt takes an error of writing for the end, with a DISCONNECT before it still unread, and tells all that the client was lost.
            reader.set_exception = lambda _: reader.feed_eof()  # type: ignore[assignment, method-assign]
            drain = writer.drain

            async def drained() -> None:
                with suppress(ConnectionError):
                    await drain()

            writer.drain = drained  # type: ignore[method-assign]
            try:
                await take(reader, writer, listener_name)
            finally:
                # amqtt leaves the connection of a rejected client open.
                writer.close()

        broker.stream_connected = noted
        await broker.start()
        return broker

    async def _shut_down(self, broker: "Broker") -> None:
        await asyncio.wait_for(broker.shutdown(), STOP_S)
        # Clients that connect during the shutdown remain.
        for writer in list(self._connections):
            writer.transport.abort()
        await asyncio.sleep(0)


async def _cancel_others() -> None:
    other_tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in other_tasks:
        task.cancel()
    await asyncio.gather(*other_tasks, return_exceptions=True)
