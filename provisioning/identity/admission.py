"""What people decide: who is accepted, rejected, revoked. It stands in the registry; `Enforcement` makes the broker do it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from sqlite3 import Connection
from typing import Any

from edgemeter.agent.errors import ConfigError
from edgemeter.provisioning.identity import certificates, claims, expulsions, requests, tokens
from edgemeter.provisioning.identity.requests import Request
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.registry import Registry


@dataclass(frozen=True, slots=True)
class Deed:
    """What is to be done, in words, and how."""

    what: str
    do: Callable[[Connection], None]


def described(one: Request) -> dict[str, Any]:
    """Return a request for machines to read."""
    names = ("request", "device", "fleet", "serial", "serial_source", "board", "why", "asked_ns")
    return {name: getattr(one, name) for name in names}


def accept(registry: Registry, said: str, name: str | None) -> Deed:
    """Return how to accept the board that waits as `said`, under `name` where that is given; or how to take a revoked device back.

    Raises:
        ConfigError: nobody waits so, or the name is no device's or taken.
    """
    known = devices.find(registry, said)
    if known is not None and known.standing == "revoked" and name is None:
        return Deed("taken back: give it a token (`edgemeter fleet token`)", lambda connection: _take_back(connection, known))
    waiting = requests.pick(registry, said)
    called = name or waiting.device
    tokens.check_name(called, registry)
    owner = devices.find(registry, called)
    if waiting.claim is None and owner is not None and owner.serial not in {None, waiting.serial}:
        message = f"{called!r} is the board with serial {owner.serial!r}: give this one another name with --as NAME"
        raise ConfigError(message)
    what = f"accepted as {called!r}, serial {waiting.serial}: it gets its certificate from `edgemeter fleet serve`"
    return Deed(what, lambda connection: requests.decide(connection, waiting.request, "accepted", called))


def reject(registry: Registry, said: str) -> Deed:
    """Return how to reject the board that waits as `said`.

    Raises:
        ConfigError: nobody waits so.
    """
    waiting = requests.pick(registry, said)

    def refuse(connection: Connection) -> None:
        requests.decide(connection, waiting.request, "rejected")
        if waiting.claim is not None:
            claims.close(connection, waiting.claim, time.time_ns())

    return Deed(f"rejected, serial {waiting.serial}", refuse)


def revoke(registry: Registry, device: str, reason: str) -> Deed:
    """Return how to put a device out for good: its certificates and tokens end.

    Raises:
        ConfigError: there is no such device.
    """
    known = devices.find(registry, device)
    if known is None:
        message = f"no device is called {device!r}: `edgemeter fleet list` shows all"
        raise ConfigError(message)
    if known.standing == "revoked":
        return Deed("was revoked before", lambda _connection: None)
    now_ns = time.time_ns()

    def put_out(connection: Connection) -> None:
        certificates.revoke(connection, device, now_ns, reason)
        claims.close_of_device(connection, device, now_ns)
        devices.put(connection, replace(known, standing="revoked", changed_ns=now_ns))
        expulsions.put(connection, device, now_ns)

    count = sum(one.revoked_ns is None for one in certificates.of_device(registry, device))
    return Deed(f"revoked, with {count} certificate{'s' * (count != 1)}", put_out)


def _take_back(connection: Connection, known: Device) -> None:
    devices.put(connection, replace(known, standing="expected", changed_ns=time.time_ns()))
    expulsions.done(connection, known.device)
