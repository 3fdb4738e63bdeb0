"""Where an MQTT broker is and who we are there: `HOST[:PORT]`, `mqtt://[USER@]HOST[:PORT]` or `mqtts://...` (TLS).

The password never stands in an address: it comes from a file (also named by EDGEMETER_MQTT_PASSWORD_FILE) or from
EDGEMETER_MQTT_PASSWORD.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast
from urllib.parse import SplitResult, unquote, urlsplit

from edgemeter.agent.errors import ConfigError

Scheme = Literal["mqtt", "mqtts"]
# Source: IANA service names, mqtt and secure-mqtt.
DEFAULT_PORTS: Mapping[Scheme, int] = {"mqtt": 1883, "mqtts": 8883}
_FORMS = "write HOST, HOST:PORT, mqtt://[USER@]HOST[:PORT] or mqtts://[USER@]HOST[:PORT]"


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """One broker; `mqtts` is TLS, checked against the system's certificate authorities."""

    host: str
    port: int
    scheme: Scheme = "mqtt"
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.scheme == "mqtt" else f"{self.scheme}://{host}:{self.port}"


def parse(text: str, *, password_file: Path | None = None, environ: Mapping[str, str] = os.environ) -> BrokerAddress:
    """Return the address in `text`, with the password from `password_file` or the environment when it names a user.

    Raises:
        ConfigError: it is no address, holds a password, or the password file cannot be read.
    """
    parts = _split(text)
    if parts.password is not None:
        message = f"the broker address of user {parts.username!r} holds a password: leave it out and set EDGEMETER_MQTT_PASSWORD instead"
        raise ConfigError(message)
    scheme = cast("Scheme", parts.scheme)
    user = unquote(parts.username) if parts.username else None
    password = _password(password_file, environ) if user else None
    return BrokerAddress(parts.hostname or "", parts.port or DEFAULT_PORTS[scheme], scheme, user, password)


def _split(text: str) -> SplitResult:
    try:
        parts = urlsplit(text if "://" in text else f"mqtt://{text}")
        is_address = parts.scheme in DEFAULT_PORTS and parts.hostname and parts.port != 0 and not any(c.isspace() for c in text)
    except ValueError as error:
        message = f"{text!r} is no broker address ({error}): {_FORMS}"
        raise ConfigError(message) from error
    if not is_address or parts.path.strip("/") or parts.query or parts.fragment:
        message = f"{text!r} is no broker address: {_FORMS}"
        raise ConfigError(message)
    return parts


def _password(file: Path | None, environ: Mapping[str, str]) -> str | None:
    named = environ.get("EDGEMETER_MQTT_PASSWORD_FILE")
    path = file or (Path(named) if named else None)
    if path is None:
        return environ.get("EDGEMETER_MQTT_PASSWORD")
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        message = f"cannot read the broker password from {str(path)!r} ({error}): write it there as one line of text"
        raise ConfigError(message) from error
