"""What a card is to tell its board beside the agent: an account, the Wi-Fi, a name. Secrets come from files and are never printed."""

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

from edgemeter.agent.errors import ConfigError

USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
COUNTRY = re.compile(r"[A-Z]{2}")
SSH_KEY = re.compile(r"(ssh-(ed25519|rsa)|ecdsa-sha2-nistp(256|384|521)|sk-[a-z0-9@.-]+) [A-Za-z0-9+/]+=*( [^\x00-\x1f\"\\\\]*)?")
PSK = re.compile(r"[0-9a-f]{64}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Wifi:
    """A network: `psk_hex` is the key derived from the passphrase, None for an open one; `country` is where its radio is used."""

    ssid: str
    psk_hex: str | None = field(repr=False)
    country: str | None


@dataclass(frozen=True, slots=True)
class Settings:
    """What is to be set up beside the agent; None and empty leave it as the system has it."""

    user: str | None = None
    ssh_keys: tuple[str, ...] = ()
    wifi: Wifi | None = None
    hostname: str | None = None


def checked_user(name: str) -> str:
    """Return the name of an account.

    Raises:
        ConfigError: no account can be called so.
    """
    if not USER.fullmatch(name) or name in ("root", "edgemeter"):
        message = f"no account of yours can be called {name!r}: use small letters, digits, - and _ (--user)"
        raise ConfigError(message)
    return name


def checked_hostname(name: str) -> str:
    """Return a host's name.

    Raises:
        ConfigError: no host can be called so.
    """
    if not HOST.fullmatch(name):
        message = f"no host can be called {name!r}: use letters, digits and -, at most 63 (--hostname)"
        raise ConfigError(message)
    return name


def ssh_keys(path: Path) -> tuple[str, ...]:
    """Return the public keys in a file, one a line.

    Raises:
        ConfigError: it cannot be read, holds none, or holds a private key.
    """
    lines = [line.strip() for line in _text(path, "--ssh-key").splitlines() if line.strip() and not line.startswith("#")]
    if any("PRIVATE KEY" in line for line in lines):
        message = f"{str(path)!r} is a private key, which stays where it is: give the public one ({path.name}.pub)"
        raise ConfigError(message)
    if not lines or not all(SSH_KEY.fullmatch(line) for line in lines):
        message = f"{str(path)!r} holds no public SSH keys, one a line (`ssh-ed25519 AAAA... name`): give such a file (--ssh-key)"
        raise ConfigError(message)
    return tuple(lines)


def wifi(ssid: str, phrase: str | None, country: str | None, where: str) -> Wifi:
    """Return a network by its passphrase or its key of 64 hexadecimal digits; with none it is open.

    Raises:
        ConfigError: there is no such network, passphrase or country; the passphrase is not repeated.
    """
    if not 1 <= len(ssid.encode()) <= 32 or not ssid.isprintable():
        message = f"{where}: no network can be called {ssid!r}: 1 to 32 bytes, nothing that cannot be printed"
        raise ConfigError(message)
    if country is not None and not COUNTRY.fullmatch(country):
        message = f"{where}: no country has the code {country!r}: two capitals, such as GB"
        raise ConfigError(message)
    return Wifi(ssid, None if phrase is None else _key(ssid, phrase, where), country)


def phrase(path: Path) -> str:
    """Return the passphrase in a file, without the end of its line.

    Raises:
        ConfigError: it cannot be read.
    """
    return _text(path, "--wifi-psk-file").rstrip("\r\n")


def _key(ssid: str, phrase: str, where: str) -> str:
    if PSK.fullmatch(phrase):
        return phrase.lower()
    if not 8 <= len(phrase) <= 63 or not all(" " <= letter <= "~" for letter in phrase):
        message = f"{where}: that is no passphrase of WPA: 8 to 63 characters of ASCII, or 64 hexadecimal digits"
        raise ConfigError(message)
    # Source: IEEE 802.11-2020, J.4.1.
    return hashlib.pbkdf2_hmac("sha1", phrase.encode(), ssid.encode(), 4096, 32).hex()


def _text(path: Path, option: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no text"
        message = f"cannot read {str(path)!r}: {reason} ({option})"
        raise ConfigError(message) from error
