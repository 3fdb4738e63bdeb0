import asyncio
import socket
import sys
import threading
from unittest.mock import AsyncMock, Mock

import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.collector.receive.embedded_broker import EmbeddedBroker
from tests.fixtures.collecting import collecting, embedded_broker
from tests.fixtures.mqtt_peer import Peer, wait_until


def broker_threads():
    return sum(thread.name == "edgemeter-broker" for thread in threading.enumerate())


@pytest.mark.services
def test_it_carries_messages_on_loopback_only_and_leaves_nothing_behind():
    """The broker uses a free port, refuses a taken one, and leaves no thread after a stop.

    It may be stopped twice, and with clients connected.
    """
    before = broker_threads()
    broker = EmbeddedBroker()
    address = broker.start()
    assert (address.host, address.port) == ("127.0.0.1", broker.port)
    listener = broker._broker._servers["default"].instance.sockets
    assert [listener_socket.getsockname()[0] for listener_socket in listener] == ["127.0.0.1"]
    subscriber, two = Peer(address, "t/+", client_id="one"), Peer(address, client_id="two")
    two.session.publish("t/x", b"hello")
    assert wait_until(lambda: [message.payload for message in subscriber.messages] == [b"hello"])
    with pytest.raises(UnavailableError, match="--port"):
        EmbeddedBroker(broker.port).start()
    broker.stop()
    broker.stop()
    subscriber.close()
    two.close()
    assert broker_threads() == before
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", broker.port), 1)
    restarted = EmbeddedBroker(broker.port)
    assert restarted.start().port == broker.port
    restarted.stop()


@pytest.mark.services
def test_a_client_stays_that_connects_while_another_subscribes(monkeypatch):
    """At each connect amqtt iterates over all topics that anybody subscribed to.

    It failed where these became more meanwhile.
    """
    broker = EmbeddedBroker()
    address = broker.start()
    try:
        subscriber, inner = Peer(address, "t/+", client_id="one"), broker._broker
        bring = inner._publish_retained_messages_for_subscription

        async def bring_while_another_subscribes(subscription, session):
            await bring(subscription, session)
            await inner.add_subscription(("u", 0), inner._sessions["one"][0])

        monkeypatch.setattr(
            inner, "_publish_retained_messages_for_subscription", bring_while_another_subscribes
        )
        two = Peer(address, client_id="two")
        assert two.reasons == []
        two.close()
        subscriber.close()
    finally:
        broker.stop()


@pytest.mark.services
def test_a_goodbye_that_comes_with_the_end_of_the_line_is_read_before_it():
    """Pending sends of the broker then fail, which amqtt took for a lost client.

    The Will of one that was lost is published.
    """
    broker = EmbeddedBroker()
    broker.start()

    async def end(goodbye):
        reader, transport, answered = asyncio.StreamReader(), Mock(), asyncio.Event()
        transport.write.side_effect = lambda _data: answered.set()
        transport.is_closing.side_effect = lambda: transport.close.called
        writer = asyncio.StreamWriter(
            transport, Mock(_drain_helper=AsyncMock()), reader, asyncio.get_running_loop()
        )
        transport.get_extra_info.return_value = ("127.0.0.1", 1)
        reader.feed_data(b"\x10\x17\x00\x04MQTT\x04\x2e\x00\x1e\x00\x03one\x00\x01w\x00\x03end")
        session = asyncio.ensure_future(broker._broker.stream_connected(reader, writer, "default"))
        await answered.wait()
        reader.feed_data(goodbye)
        reader.set_exception(BrokenPipeError())
        await session

    try:
        for goodbye, is_lost in ((b"\xe0\x00", False), (b"", True)):
            asyncio.run_coroutine_threadsafe(end(goodbye), broker._loop).result(60)
            assert ("w" in broker._broker._retained_messages) == is_lost
    finally:
        broker.stop()


def test_without_amqtt_the_extra_is_named(monkeypatch):
    """The message has the pip command."""
    monkeypatch.setitem(sys.modules, "amqtt", None)
    with pytest.raises(UnavailableError, match=r"pip install 'edgemeter\[collector\]'"):
        EmbeddedBroker().start()


@pytest.mark.services
def test_a_group_at_a_broker_that_cannot_share_is_reported(tmp_path, caplog):
    """Nothing would come, and nobody would know why."""
    with embedded_broker() as address, collecting(address, tmp_path / "ledger", group="g"):
        assert "MQTT 3.1.1 only, which has no shared subscriptions" in caplog.text
