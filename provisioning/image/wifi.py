"""The Wi-Fi network of a card; its passphrase comes from a file and is never printed."""

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

from edgemeter.agent.base.errors import ConfigError, os_error_as


@dataclass(frozen=True, slots=True)
class Wifi:
    """A network; `country` is where the radio is used.

    `psk_hex` is the key derived from the passphrase, None for an open network.
    """

    ssid: str
    psk_hex: str | None = field(repr=False)
    country: str | None


def read_wifi(ssid: str, passphrase_file: Path | None, country: str | None) -> Wifi:
    """Return a network with the passphrase in a file, else an open one.

    Raises:
        ConfigError: it is invalid; the message is without the passphrase.
    """
    if not 1 <= len(ssid.encode()) <= 32 or not ssid.isprintable():
        raise ConfigError(
            f"invalid network name {ssid!r}: use 1 to 32 bytes of printable characters "
            "(--wifi-ssid)"
        )
    if country is not None and not re.fullmatch(r"[A-Z]{2}", country):
        raise ConfigError(
            f"invalid country code {country!r}: use two capitals, such as GB (--wifi-country)"
        )
    if passphrase_file is None:
        return Wifi(ssid, None, country)
    with os_error_as(
        ConfigError,
        f"cannot read {str(passphrase_file)!r}",
        "give a file with the passphrase (--wifi-psk-file)",
    ):
        phrase = passphrase_file.read_bytes().decode(errors="replace").rstrip("\r\n")
    if re.fullmatch(r"[0-9a-f]{64}", phrase, re.IGNORECASE):
        return Wifi(ssid, phrase.lower(), country)
    if not 8 <= len(phrase) <= 63 or not all(" " <= letter <= "~" for letter in phrase):
        raise ConfigError(
            f"{str(passphrase_file)!r} has no WPA passphrase: 8 to 63 ASCII characters, or 64 "
            "hexadecimal digits"
        )
    # Source: IEEE 802.11-2020, J.4.1.
    return Wifi(
        ssid, hashlib.pbkdf2_hmac("sha1", phrase.encode(), ssid.encode(), 4096, 32).hex(), country
    )
