"""The join file as it goes onto a card, and the Wi-Fi that it may bring. Its token is a secret and never printed."""

import re
from dataclasses import dataclass
from pathlib import Path

import msgspec

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.identity import join_file
from edgemeter.provisioning.image import settings
from edgemeter.provisioning.image.settings import Wifi

ADDRESS = re.compile(r"mqtts://[^\s/]+")
WIFI_KEYS = frozenset({"ssid", "psk", "password", "passphrase", "country"})


@dataclass(frozen=True, slots=True)
class Joining:
    """`text` is the file for the card, without the Wi-Fi: each secret stands in one place only."""

    text: bytes
    wifi: Wifi | None

    def __repr__(self) -> str:
        """Return nothing of the secrets."""
        return "Joining()"


def read(path: Path) -> Joining:
    """Return what stands in the join file at `path`.

    Raises:
        ConfigError: it cannot be read, lacks something, or its token has been used.
    """
    found = join_file.read(path)
    if not found.token:
        message = f"the join file {str(path)!r} has no token, or it has been used: make a new one (`edgemeter fleet token DEVICE`)"
        raise ConfigError(message)
    for key, address in (("broker", found.broker), ("enrol", found.enrol)):
        if not ADDRESS.fullmatch(address):
            message = f"join file {str(path)!r}: {key} = {address!r} is no mqtts://HOST[:PORT]: `edgemeter fleet token DEVICE` writes one"
            raise ConfigError(message)
    if "BEGIN CERTIFICATE" not in found.ca:
        message = f"join file {str(path)!r}: `ca` is no certificate in PEM: `edgemeter fleet token DEVICE` writes one"
        raise ConfigError(message)
    return Joining(join_file.text(msgspec.structs.replace(found, wifi={})).encode(), _wifi(path, found.wifi))


def _wifi(path: Path, said: dict[str, str]) -> Wifi | None:
    if not said:
        return None
    where = f"[wifi] of the join file {str(path)!r}"
    if "ssid" not in said or set(said) - WIFI_KEYS:
        message = f"{where} needs `ssid` and knows `psk` and `country` beside it: correct it"
        raise ConfigError(message)
    phrase = next((said[key] for key in ("psk", "password", "passphrase") if key in said), None)
    return settings.wifi(said["ssid"], phrase, said.get("country"), where)
