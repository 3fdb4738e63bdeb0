"""The keys that sign releases: those that devices trust, in `release.pub`, and their rotation.

A rotation travels with an update: each release carries the fleet's `release.pub`, and is signed by a key that its devices trust already.
While a rotation is open, that file holds the new key and the old one, and releases are still signed by the old one; once it is finished,
it holds the new key alone. A device takes the keys of a release that it runs if their number is greater than that of its own, so that a
release of the past brings no old key back.

The file also names the lowest release that devices install, so that nobody who can order updates brings an old weakness back.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.errors import ConfigError, os_error_as
from edgemeter.agent.contract.orders import version_key
from edgemeter.provisioning.identity import authority
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.release.install import lowest_version, public_keys

_HEAD = "# edgemeter release keys, number {number}, since {since_ns}{lowest}\n"
_NUMBER = re.compile(rb"\A# edgemeter release keys, number (\d{1,9}), since (\d{1,19})[,\n]")


@dataclass(frozen=True, slots=True)
class ReleaseKeys:
    """The keys in a `release.pub`, PEM, the newest first; its number, and since when it holds (0 where it was never rotated).

    `lowest` is the earliest version that devices install, None for any.
    """

    number: int
    since_ns: int
    keys: tuple[bytes, ...]
    lowest: str | None = None

    @property
    def is_open(self) -> bool:
        """Return whether a rotation is not finished: devices accept two keys."""
        return len(self.keys) > 1


def read_keys(path: Path) -> ReleaseKeys:
    """Return the keys in a file; raises ConfigError if it cannot be read or holds no public key."""
    with os_error_as(ConfigError, f"cannot read the release keys {str(path)!r}", "`edgemeter fleet init` makes them"):
        text = path.read_bytes()
    keys = tuple(authority.checked_public(pem, path) for pem in public_keys(text))
    if not keys:
        raise ConfigError(f"{str(path)!r} holds no public key in PEM: make it with `openssl ec -in release.key -pubout`")
    head = _NUMBER.match(text)
    return ReleaseKeys(int(head[1]) if head else 0, int(head[2]) if head else 0, keys, lowest_version(text))


def first_keys(public_key: Path) -> bytes:
    """Return the `release.pub` of a new fleet whose private key is elsewhere; raises ConfigError if the file is not one key on P-256."""
    keys = read_keys(public_key).keys
    if len(keys) > 1:
        raise ConfigError(f"{str(public_key)!r} holds {len(keys)} public keys: give a file with one")
    return keys[0]


def begin_rotation(folder: FleetFolder, public_key: Path | None, now_ns: int) -> ReleaseKeys:
    """Add a new key, of `public_key` or of a pair made here; return all. Raises ConfigError if a rotation is open, or it is not new."""
    current = read_keys(folder.release_public_key)
    if current.is_open:
        raise ConfigError("a rotation is open: build a release, update all devices, then `edgemeter fleet release keys --finish`")
    if public_key is not None:
        new = first_keys(public_key)
    elif not folder.release_key.exists():
        raise ConfigError("release.key is not on this machine: make the new pair where it is, and give --public-key FILE")
    else:
        # Written first: a public key whose private one was lost would be of no use.
        private = folder.next_release_key.read_bytes() if folder.next_release_key.exists() else authority.make_key()
        durable_file.write(folder.next_release_key, private)
        new = authority.public_of(private)
    if new in current.keys:
        raise ConfigError("the new key is the present one: make another pair")
    return _write(folder, ReleaseKeys(current.number + 1, now_ns, (new, *current.keys), current.lowest))


def finish_rotation(folder: FleetFolder, now_ns: int) -> ReleaseKeys:
    """Drop the old key, which devices reject from their next update on; return what is left. Raises ConfigError if no rotation is open."""
    current = read_keys(folder.release_public_key)
    if not current.is_open:
        raise ConfigError("no rotation is open: `edgemeter fleet release keys --rotate` begins one")
    if folder.next_release_key.exists():
        folder.next_release_key.replace(folder.release_key)
        durable_file.sync(folder.path)
    return _write(folder, ReleaseKeys(current.number + 1, now_ns, current.keys[:1], current.lowest))


def set_lowest(folder: FleetFolder, version: str) -> ReleaseKeys:
    """Let devices refuse earlier releases once they run one built from now on; return the keys. Raises ConfigError if it is no version."""
    version_key(version)
    current = read_keys(folder.release_public_key)
    return _write(folder, replace(current, number=current.number + 1, lowest=version))


def devices_behind(registry: Registry, since_ns: int) -> list[str]:
    """Return the accepted devices that do not run a release built since then, as far as is known: they trust the old key alone.

    A device that reports to run no release was installed in another way: it checks none.
    """
    built = dict(map(tuple, registry.query("SELECT version, max(built_ns) FROM releases GROUP BY version")))
    heard = devices.read_presence(registry)
    behind = []
    for device in devices.read(registry):
        health = heard[device.device].health if device.device in heard else None
        is_without = health is not None and health.release is None
        if device.trust == "accepted" and not is_without and built.get(health.release if health else None, 0) < since_ns:
            behind.append(device.device)
    return behind


def _write(folder: FleetFolder, keys: ReleaseKeys) -> ReleaseKeys:
    lowest = f", lowest {keys.lowest}" if keys.lowest else ""
    text = _HEAD.format(number=keys.number, since_ns=keys.since_ns, lowest=lowest).encode() + b"".join(keys.keys)
    durable_file.write(folder.release_public_key, text, 0o644)
    return keys
