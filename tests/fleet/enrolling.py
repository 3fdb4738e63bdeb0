"""Enrols devices as boards do: a token each, a key made by openssl, a certificate from the real enrolment handler over TLS."""

import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from edgemeter.agent.identity import joining
from edgemeter.agent.identity.joining import JoinPaths
from edgemeter.agent.machine.machine import recorded

AT_ONCE = 8
PATIENCE_S = 300.0


def enrol(names: Sequence[str], cards: Path, folder: Path) -> int:
    """Let the device of each join file in `cards` join; return how many different certificates there are now."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        numbers = list(pool.map(lambda name: _join(name, cards / f"{name}.join.toml", folder / name), names))
    return len(set(numbers))


def _join(name: str, card: Path, folder: Path) -> str:
    serial = folder / "tree/proc/device-tree/serial-number"
    serial.parent.mkdir(parents=True)
    serial.write_bytes(f"serial-{name}".encode() + b"\0")
    identity = joining.join_fleet(card, JoinPaths(folder / "home", folder / "config.toml"), recorded(folder / "tree"), PATIENCE_S)
    if identity.device != name:
        message = f"{name} was called {identity.device}"
        raise RuntimeError(message)
    shutil.rmtree(folder)
    return identity.number
