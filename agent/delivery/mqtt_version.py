"""Which MQTT a broker speaks: asked with the smallest CONNECT of version 5, before any real session.

A 3.1.1-only broker may misread a version 5 CONNECT that carries a Will and then answer nothing at all (amqtt 0.12 does), so a
session cannot simply try 5 first. This CONNECT has neither Will nor client id nor credentials; a broker that knows version 5
answers it in version 5, be it with a refusal.
"""

import contextlib
import socket
import ssl
from typing import Literal

from edgemeter.agent.delivery import credentials
from edgemeter.agent.delivery.broker_address import BrokerAddress
from edgemeter.agent.errors import ConfigError, UnavailableError

Version = Literal["5", "3.1.1"]

# Source: MQTT 5.0, 3.1: CONNECT, protocol name "MQTT", version 5, clean start, keep alive 10 s, no properties, empty client id.
_CONNECT_5 = b"\x10\x0d\x00\x04MQTT\x05\x02\x00\x0a\x00\x00\x00"
_DISCONNECT = b"\xe0\x00"
_CONNACK = 0x20
# Source: RFC 8446, 5.1: the content type of an alert.
_TLS_ALERT = 0x15
# 3.1.1 says 1, version 5 says 0x84: unacceptable protocol version.
_REFUSALS_OF_5 = (0x01, 0x84)


def ask(address: BrokerAddress, timeout_s: float) -> Version:
    """Return the newest MQTT version that the broker at `address` speaks.

    Raises:
        UnavailableError: nothing answers there within `timeout_s`, or what answers is no MQTT broker, or not the one it should be.
        ConfigError: a certificate of ours cannot be used, or the broker wants one or another.
    """
    try:
        with contextlib.closing(connect(address, timeout_s)) as connection:
            # Whoever refuses our certificate hangs up while we write; why, stands in what can still be read.
            with contextlib.suppress(ssl.SSLEOFError, BrokenPipeError, ConnectionResetError):
                connection.sendall(_CONNECT_5)
            answer = _receive(connection, 4)
            with contextlib.suppress(OSError):
                connection.sendall(_DISCONNECT)
    except ssl.SSLError as error:
        raise credentials.tls_refusal(address, error) from error
    except OSError as error:
        raise UnavailableError(_nobody(address, error)) from error
    if answer and answer[0] == _TLS_ALERT:
        message = f"what answers at {address} speaks TLS: write mqtts://{address}"
        raise ConfigError(message)
    if answer and answer[0] != _CONNACK:
        message = f"what answers at {address} is no MQTT broker: check host and port"
        raise UnavailableError(message)
    # A broker that hangs up without a word is one that does not know version 5.
    return "3.1.1" if len(answer) < 4 or answer[3] in _REFUSALS_OF_5 else "5"


def connect(address: BrokerAddress, timeout_s: float) -> socket.socket:
    """Return a connection to `address`, with TLS where it says so; each of its calls waits at most `timeout_s`."""
    plain = socket.create_connection((address.host, address.port), timeout_s)
    if address.scheme == "mqtt":
        return plain
    try:
        return credentials.tls_context(address.tls).wrap_socket(plain, server_hostname=address.host)
    except ConnectionError as error:
        plain.close()
        message = f"the handshake broke off: {error.strerror}"
        raise ssl.SSLError(error.errno, message) from error
    except BaseException:
        plain.close()
        raise


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionResetError, ssl.SSLEOFError):
        while len(received) < size and (more := connection.recv(size - len(received))):
            received += more
    return received


def _nobody(address: BrokerAddress, error: OSError) -> str:
    why = "host name unknown" if isinstance(error, socket.gaierror) else "timed out" if isinstance(error, TimeoutError) else error.strerror
    remedy = "start one (`edgemeter collector up`, or mosquitto) or leave out --broker"
    return f"no MQTT broker answers at {address} ({why}): {remedy}"
