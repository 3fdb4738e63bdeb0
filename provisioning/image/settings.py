"""First-boot settings of a card: an account, the Wi-Fi, a host name, and the join file.

Secrets come from files and are never printed.
"""

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import identity
from edgemeter.agent.contract.identity import join_file_text

USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
COUNTRY = re.compile(r"[A-Z]{2}")
SSH_KEY = re.compile(r"(ssh-(ed25519|rsa)|ecdsa-sha2-nistp(256|384|521)|sk-[a-z0-9@.-]+) [A-Za-z0-9+/]+=*( [^\x00-\x1f\"\\\\]*)?")
PSK = re.compile(r"[0-9a-f]{64}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Wifi:
    """A network: `psk_hex` is the key derived from the passphrase, None for an open one; `country` is where the radio is used."""

    ssid: str
    psk_hex: str | None = field(repr=False)
    country: str | None


@dataclass(frozen=True, slots=True)
class FirstBootSettings:
    """The system settings made at first boot; None and empty keep the system's defaults."""

    user: str | None = None
    ssh_keys: tuple[str, ...] = ()
    wifi: Wifi | None = None
    hostname: str | None = None


def checked_user(name: str) -> str:
    """Return the name of an account; raises ConfigError if it is not allowed."""
    if not USER.fullmatch(name) or name in ("root", "edgemeter"):
        raise ConfigError(f"invalid account name {name!r}: use lower-case letters, digits, - and _, but not root or edgemeter (--user)")
    return name


def checked_hostname(name: str, device: str | None = None) -> str:
    """Return a host name, with the name of `device` for `{device}`; raises ConfigError if it is not a host name."""
    name = name.replace("{device}", device or "{device}")
    if not HOST.fullmatch(name):
        raise ConfigError(f"invalid host name {name!r}: use letters, digits and -, at most 63 characters (--hostname)")
    return name


def ssh_keys(path: Path) -> tuple[str, ...]:
    """Return the public keys in a file, one per line; raises ConfigError if it cannot be read, holds none, or holds a private key."""
    lines = [line.strip() for line in _text(path, "--ssh-key").splitlines() if line.strip() and not line.startswith("#")]
    if any("PRIVATE KEY" in line for line in lines):
        raise ConfigError(f"{str(path)!r} is a private key, which must not leave this machine: give the public one ({path.name}.pub)")
    if not lines or not all(SSH_KEY.fullmatch(line) for line in lines):
        raise ConfigError(
            f"{str(path)!r} holds no public SSH keys (one per line, `ssh-ed25519 AAAA... name`): give such a file (--ssh-key)"
        )
    return tuple(lines)


def checked_wifi(ssid: str, phrase: str | None, country: str | None, where: str) -> Wifi:
    """Return a network with its passphrase or its key in hexadecimal, else open; raises ConfigError, without the passphrase, if invalid."""
    if not 1 <= len(ssid.encode()) <= 32 or not ssid.isprintable():
        raise ConfigError(f"{where}: invalid network name {ssid!r}: use 1 to 32 bytes of printable characters")
    if country is not None and not COUNTRY.fullmatch(country):
        raise ConfigError(f"{where}: invalid country code {country!r}: use two capitals, such as GB")
    return Wifi(ssid, None if phrase is None else _key(ssid, phrase, where), country)


def read_passphrase(path: Path) -> str:
    """Return the passphrase in a file, without its newline; raises ConfigError if it cannot be read."""
    return _text(path, "--wifi-psk-file").rstrip("\r\n")


def _key(ssid: str, phrase: str, where: str) -> str:
    if PSK.fullmatch(phrase):
        return phrase.lower()
    if not 8 <= len(phrase) <= 63 or not all(" " <= letter <= "~" for letter in phrase):
        raise ConfigError(f"{where}: invalid WPA passphrase: use 8 to 63 ASCII characters, or 64 hexadecimal digits")
    # Source: IEEE 802.11-2020, J.4.1.
    return hashlib.pbkdf2_hmac("sha1", phrase.encode(), ssid.encode(), 4096, 32).hex()


def _text(path: Path, option: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise ConfigError(f"cannot read {str(path)!r}: {reason} ({option})") from error


ADDRESS = re.compile(r"mqtts://[^\s/]+")
WIFI_KEYS = frozenset({"ssid", "psk", "password", "passphrase", "country"})


@dataclass(frozen=True, slots=True)
class CardJoinFile:
    """`device` is the board's name, if it has one there; `text` is the file for the card, without the Wi-Fi: a secret is in one place."""

    device: str | None
    text: bytes = field(repr=False)
    wifi: Wifi | None


def read_join_file(path: Path) -> CardJoinFile:
    """Return the join file for a card, and its Wi-Fi; raises ConfigError if it cannot be read, is incomplete, or its token was used."""
    join_file = identity.read_join_file(path)
    if not join_file.token:
        raise ConfigError(f"the join file {str(path)!r} has no token, or it has been used: make a new one (`edgemeter fleet token DEVICE`)")
    for key, address in (("broker", join_file.broker), ("enrol", join_file.enrol)):
        if not ADDRESS.fullmatch(address):
            raise ConfigError(
                f"join file {str(path)!r}: {key} = {address!r} is not mqtts://HOST[:PORT]; `edgemeter fleet token DEVICE` writes one"
            )
    if "BEGIN CERTIFICATE" not in join_file.ca:
        raise ConfigError(f"join file {str(path)!r}: `ca` is not a certificate in PEM; `edgemeter fleet token DEVICE` writes one")
    return CardJoinFile(join_file.device, join_file_text(msgspec.structs.replace(join_file, wifi={})).encode(), _wifi(path, join_file.wifi))


def _wifi(path: Path, table: dict[str, str]) -> Wifi | None:
    if not table:
        return None
    where = f"[wifi] of the join file {str(path)!r}"
    if "ssid" not in table or set(table) - WIFI_KEYS:
        raise ConfigError(f"{where} needs `ssid`, and otherwise takes only `psk` and `country`: correct it")
    phrase = next((table[key] for key in ("psk", "password", "passphrase") if key in table), None)
    return checked_wifi(table["ssid"], phrase, table.get("country"), where)
