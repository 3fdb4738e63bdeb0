"""The address of an MQTT broker, with our credentials there (see `broker_url`).

The module also asks a broker which version of MQTT it speaks.
"""

import contextlib
import dataclasses
import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, cast
from urllib.parse import unquote

from edgemeter.agent.base.broker_url import DEFAULT_PORTS, Scheme, files_of, split
from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.agent.base.tls import TlsFiles, broker_password, check, tls_context, tls_refusal

MqttVersion = Literal["5", "3.1.1"]
# Source: MQTT 5.0, 3.1: CONNECT, protocol name "MQTT", version 5, clean start, keep alive 10 s, no
# properties, empty client id.
_CONNECT_5 = b"\x10\x0d\x00\x04MQTT\x05\x02\x00\x0a\x00\x00\x00"
_DISCONNECT = b"\xe0\x00"
_CONNACK = 0x20
_TLS_ALERT = 0x15  # Source: RFC 8446, 5.1: the content type of an alert.
# Unacceptable protocol version: 1 in MQTT 3.1.1, 0x84 in version 5.
_REFUSALS_OF_5 = (0x01, 0x84)


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The address of one broker, with our credentials there.

    `mqtts` is TLS, verified against the system's certificate authorities or the one in `tls`.
    """

    host: str
    port: int
    scheme: Scheme = "mqtt"
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: TlsFiles = field(default_factory=TlsFiles)
    # The remedy for a measurement, if no broker answers.
    if_silent: str = field(
        default="start one (`edgemeter collector up`, or mosquitto) or leave out --broker",
        compare=False,
    )

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (
            f"{host}:{self.port}"
            if self.scheme == "mqtt"
            else f"{self.scheme}://{host}:{self.port}"
        )


def parse_address(
    url: str, *, tls: TlsFiles | None = None, environ: Mapping[str, str] = os.environ
) -> BrokerAddress:
    """Return the address in a broker's URL.

    The certificates are those of `tls`, by default those in the URL.

    Raises:
        ConfigError: it is not an address, contains a password, names an unreadable file, or has
            certificates without mqtts.
    """
    parts = split(url)
    if parts.password is not None:
        raise ConfigError(
            f"the broker address of user {parts.username!r} holds a password: leave it out and "
            "set EDGEMETER_MQTT_PASSWORD instead"
        )
    scheme = cast("Scheme", parts.scheme)
    named = files_of(url)
    user, password_file = (
        unquote(parts.username) if parts.username else None,
        named.get("password_file"),
    )
    if password_file is not None and not user:
        raise ConfigError(
            f"a password is named ({str(password_file)!r}) and no user: write mqtt://USER@HOST"
        )
    password = broker_password(password_file, environ) if user else None
    files = tls or TlsFiles(named.get("ca"), named.get("certificate"), named.get("key"))
    if scheme == "mqtt" and files != TlsFiles():
        raise ConfigError(
            f"certificates are named, but {url.partition('?')[0]!r} is without TLS: write "
            "mqtts://HOST[:PORT]"
        )
    check(files)
    return BrokerAddress(
        parts.hostname or "", parts.port or DEFAULT_PORTS[scheme], scheme, user, password, files
    )


def mqtt_version(address: BrokerAddress, timeout_s: float) -> MqttVersion:
    """Return the newest MQTT version that the broker at `address` speaks.

    Raises:
        UnavailableError: nothing answers within `timeout_s`, the peer is not an MQTT broker, or not
            the expected one.
        ConfigError: a certificate of ours cannot be used, or the broker requires one.
    """
    answer = _anonymous_answer(address, timeout_s)
    # A broker that closes without an answer does not know version 5.
    return "3.1.1" if len(answer) < 4 or answer[3] in _REFUSALS_OF_5 else "5"


def accepts_anybody(address: BrokerAddress, timeout_s: float) -> bool:
    """Return whether the broker accepts clients without user, password or certificate.

    False if that cannot be determined.
    """
    stranger = dataclasses.replace(
        address, tls=dataclasses.replace(address.tls, certificate=None, key=None)
    )
    try:
        return _anonymous_answer(stranger, timeout_s)[3:] == b"\0"
    except EdgemeterError:
        return False


def _anonymous_answer(address: BrokerAddress, timeout_s: float) -> bytes:
    """Return the first four bytes of the broker's answer to a client without user and password.

    Raises as `mqtt_version`.
    """
    try:
        with contextlib.closing(connect_socket(address, timeout_s)) as connection:
            # A broker that rejects our certificate closes the connection while we write; the bytes
            # that remain to be read give the reason.
            with contextlib.suppress(ssl.SSLEOFError, BrokenPipeError, ConnectionResetError):
                connection.sendall(_CONNECT_5)
            answer = _receive(connection, 4)
            with contextlib.suppress(OSError):
                connection.sendall(_DISCONNECT)
    except ssl.SSLError as error:
        raise tls_refusal(address, error) from error
    except OSError as error:
        why = "timed out" if isinstance(error, TimeoutError) else error.strerror
        why = "host name unknown" if isinstance(error, socket.gaierror) else why
        raise UnavailableError(
            f"no MQTT broker answers at {address} ({why}): {address.if_silent}"
        ) from error
    if answer and answer[0] == _TLS_ALERT:
        raise ConfigError(f"the port at {address} uses TLS: write mqtts://{address}")
    if answer and answer[0] != _CONNACK:
        raise UnavailableError(f"{address} is not an MQTT broker: check host and port")
    return answer


def connect_socket(address: BrokerAddress, timeout_s: float) -> socket.socket:
    """Return a connection to `address`, with TLS if its scheme is mqtts.

    Each of its calls waits at most `timeout_s`.
    """
    plain = socket.create_connection((address.host, address.port), timeout_s)
    if address.scheme == "mqtt":
        return plain
    try:
        return tls_context(address.tls).wrap_socket(plain, server_hostname=address.host)
    except ConnectionError as error:
        plain.close()
        raise ssl.SSLError(error.errno, f"the handshake broke off: {error.strerror}") from error
    except BaseException:
        plain.close()
        raise


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionResetError, ssl.SSLEOFError):
        while len(received) < size and (chunk := connection.recv(size - len(received))):
            received += chunk
    return received
