"""The URL of a broker, which contains all that a connection needs.

Its full form is
`mqtts://USER@HOST:8883?ca=FILE&certificate=FILE&key=FILE&password_file=FILE`.

`HOST`, `HOST:PORT` and `mqtt://...` are without TLS. A password is in a file of its own, or in
EDGEMETER_MQTT_PASSWORD.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.suggestions import near

Scheme = Literal["mqtt", "mqtts"]
# Source: IANA service names, mqtt and secure-mqtt.
DEFAULT_PORTS: Mapping[Scheme, int] = {"mqtt": 1883, "mqtts": 8883}
FILES = ("ca", "certificate", "key", "password_file")
_FORMS = (
    "write HOST, HOST:PORT, mqtt://[USER@]HOST[:PORT] or "
    "mqtts://[USER@]HOST[:PORT][?ca=FILE&certificate=FILE&key=FILE]"
)


def split(url: str) -> SplitResult:
    """Return the parts of a broker's URL; raises ConfigError if it is not one."""
    try:
        parts = urlsplit(url if "://" in url else f"mqtt://{url}")
        is_address = (
            parts.scheme in DEFAULT_PORTS
            and parts.hostname
            and parts.port != 0
            and not any(c.isspace() for c in url)
        )
    except ValueError as error:
        raise ConfigError(f"{url!r} is not a broker address ({error}): {_FORMS}") from error
    if not is_address or parts.path.strip("/") or parts.fragment:
        raise ConfigError(f"{url!r} is not a broker address: {_FORMS}")
    return parts


def files_of(url: str) -> dict[str, Path]:
    """Return the files in a broker's URL by their parameter.

    Raises:
        ConfigError: it is not the URL of a broker.
    """
    pairs = dict(parse_qsl(split(url).query))
    for name in pairs:
        if name not in FILES:
            raise ConfigError(
                f"the broker address has a parameter {name!r}, which is unknown: "
                f"{near(name, FILES)}"
            )
    return {name: Path(value).expanduser() for name, value in pairs.items()}


def with_files(url: str, files: Mapping[str, Path | str]) -> str:
    """Return the broker's URL with these files in place of its own."""
    address = url.partition("?")[0]
    return (
        f"{address}?{urlencode({name: str(path) for name, path in files.items()}, safe='/')}"
        if files
        else address
    )
