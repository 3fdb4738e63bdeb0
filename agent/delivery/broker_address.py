"""Where an MQTT broker is and who we are there: `HOST[:PORT]`, `mqtt://[USER@]HOST[:PORT]` or `mqtts://...` (TLS).

The password never stands in an address: it comes from a file (also named by EDGEMETER_MQTT_PASSWORD_FILE) or from
EDGEMETER_MQTT_PASSWORD. The user may come from EDGEMETER_MQTT_USER_FILE or EDGEMETER_MQTT_USER too.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast
from urllib.parse import SplitResult, unquote, urlsplit

from edgemeter.agent.config import BROKER_FILES, Config
from edgemeter.agent.delivery import credentials
from edgemeter.agent.delivery.credentials import TlsFiles
from edgemeter.agent.errors import ConfigError

Scheme = Literal["mqtt", "mqtts"]
# Source: IANA service names, mqtt and secure-mqtt.
DEFAULT_PORTS: Mapping[Scheme, int] = {"mqtt": 1883, "mqtts": 8883}
_FORMS = "write HOST, HOST:PORT, mqtt://[USER@]HOST[:PORT] or mqtts://[USER@]HOST[:PORT]"


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """One broker; `mqtts` is TLS, checked against the system's certificate authorities or the one that `tls` names."""

    host: str
    port: int
    scheme: Scheme = "mqtt"
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: TlsFiles = field(default_factory=TlsFiles)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.scheme == "mqtt" else f"{self.scheme}://{host}:{self.port}"


def parse(
    text: str,
    *,
    user_file: Path | None = None,
    password_file: Path | None = None,
    tls: TlsFiles | None = None,
    environ: Mapping[str, str] = os.environ,
) -> BrokerAddress:
    """Return the address in `text`, with what the files and the environment add to it.

    Raises:
        ConfigError: it is no address, holds a password, a file cannot be read, or there are certificates and the address is not mqtts.
    """
    parts = _split(text)
    if parts.password is not None:
        message = f"the broker address of user {parts.username!r} holds a password: leave it out and set EDGEMETER_MQTT_PASSWORD instead"
        raise ConfigError(message)
    scheme = cast("Scheme", parts.scheme)
    user = unquote(parts.username) if parts.username else credentials.secret("user", user_file, environ)
    if password_file is not None and not user:
        message = f"a password is named ({str(password_file)!r}) and no user: write mqtt://USER@HOST, or name a file (broker_user_file)"
        raise ConfigError(message)
    password = credentials.secret("password", password_file, environ) if user else None
    files = credentials.tls_files(tls, environ)
    if scheme == "mqtt" and files != TlsFiles():
        message = f"certificates are named, but {text!r} is without TLS: write mqtts://HOST[:PORT]"
        raise ConfigError(message)
    credentials.check(files)
    return BrokerAddress(parts.hostname or "", parts.port or DEFAULT_PORTS[scheme], scheme, user, password, files)


def configured(text: str, settings: Config) -> BrokerAddress:
    """Return the address in `text`, with the files that the configuration names.

    Raises:
        ConfigError: as `parse`.
    """
    user, password, ca, certificate, key = (Path(said) if (said := getattr(settings, name)) else None for name in BROKER_FILES)
    return parse(text, user_file=user, password_file=password, tls=TlsFiles(ca, certificate, key))


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
