import socket
import threading
from contextlib import contextmanager

import pytest

from edgemeter.agent.base import broker_address
from edgemeter.agent.base.broker_address import BrokerAddress
from edgemeter.agent.base.errors import UnavailableError
from edgemeter.collector.receive.embedded_broker import EmbeddedBroker
from tests.fixtures.rows import table_row
from tests.fixtures.servers import address_of, mosquitto


@contextmanager
def answering(answer):
    """Keep a server up that answers the first bytes of every connection with `answer` and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield BrokerAddress("127.0.0.1", server.getsockname()[1])
        thread.join(150)


def test_the_reply_to_the_smallest_connect_shows_the_version():
    """Accepted, not authorised, unacceptable version in 5 and in 3.1.1, and a broker that hangs up."""
    for answer, version in [
        (b"\x20\x03\x00\x00\x00", "5"),
        (b"\x20\x03\x00\x87\x00", "5"),
        (b"\x20\x03\x00\x84\x00", "3.1.1"),
        (b"\x20\x02\x00\x01", "3.1.1"),
        (b"", "3.1.1"),
    ]:
        with table_row(answer), answering(answer) as address:
            assert broker_address.mqtt_version(address, 5) == version


def test_what_sends_another_reply_is_no_broker():
    """Such as an SSH server."""
    with answering(b"SSH-2.0-OpenSSH\r\n") as address, pytest.raises(UnavailableError, match="is not an MQTT broker: check host and port"):
        broker_address.mqtt_version(address, 5)


def test_a_port_without_tls_is_reported_when_tls_was_requested():
    """`mqtts` to a plain port."""
    with answering(b"\x20\x03\x00\x00\x00") as address, pytest.raises(UnavailableError, match="no TLS with the broker"):
        broker_address.mqtt_version(BrokerAddress(address.host, address.port, "mqtts"), 5)


def test_the_embedded_broker_speaks_3_1_1():
    """And answers at once, although it would misread a real CONNECT of version 5."""
    broker = EmbeddedBroker()
    assert broker_address.mqtt_version(broker.start(), 1) == "3.1.1"
    broker.stop()


@pytest.mark.mosquitto
def test_mosquitto_speaks_5(tmp_path):
    """Debian's mosquitto answers the smallest CONNECT as a broker of MQTT 5."""
    server = mosquitto(tmp_path)
    server.start()
    assert broker_address.mqtt_version(address_of(server), 1) == "5"
    server.kill()
