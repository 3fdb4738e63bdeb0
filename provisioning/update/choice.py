"""Which bundle a device gets, or why none: by what the device says of itself, what it has been through, and what the order allows."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.health.contract import Health
from edgemeter.agent.update import version_order
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.update.releases import Release

# What an order may allow: to go back, and to try again what failed there.
Allowed: TypeAlias = Literal["older", "bad"]


@dataclass(frozen=True, slots=True)
class Choice:
    """What becomes of one device: `release` is where it goes, None with the reason why it stays; `runs` is the version it has."""

    device: Device
    runs: str | None
    release: Release | None
    note: str = ""
    bad: tuple[str, ...] = ()


def choose(
    device: Device,
    health: Health | None,
    releases: Sequence[Release],
    *,
    even_if: Collection[Allowed] = (),
    is_under_way: bool = False,
    boards: Collection[str] = (),
) -> Choice:
    """Return what becomes of a device that is to go to one of `releases`; `boards` are those that bundles are built for."""
    if health is None:
        return Choice(device, None, None, "it has not said yet what it is: is it online?")
    release, note = _fitting(device, health, releases, boards)
    if release is not None and (why := _why_not(health, release.version, even_if, is_under_way=is_under_way)):
        release, note = None, why
    return Choice(device, _runs(health), release, note, health.bad_agents)


def canaries(choices: Sequence[Choice], count: int) -> tuple[list[Choice], list[Choice]]:
    """Return the first `count` of those that go, of as many different bundles as there are, and the rest."""
    by_bundle: dict[str, list[Choice]] = {}
    for one in choices:
        if one.release is not None:
            by_bundle.setdefault(one.release.sha256, []).append(one)
    queues = list(by_bundle.values())
    first: list[Choice] = []
    while len(first) < count and any(queues):
        first += [queue.pop(0) for queue in queues if queue][: count - len(first)]
    return first, [one for queue in queues for one in queue]


def _why_not(health: Health, version: str, even_if: Collection[Allowed], *, is_under_way: bool) -> str:
    if _runs(health) == version:
        return "it runs this version"
    if is_under_way:
        return "an update is under way"
    if version in health.bad_agents and "bad" not in even_if:
        return "this version failed there before: `--even-if bad` tries again"
    if "older" not in even_if and _is_older(version, _runs(health)):
        return f"this is older than {_runs(health)}: `--even-if older` goes back"
    return ""


def _runs(health: Health) -> str:
    return health.release or health.agent


def _is_older(version: str, running: str) -> bool:
    try:
        return version_order.key(version) < version_order.key(running)
    except ConfigError:
        # It runs something that nobody published: whatever is published may follow.
        return False


def _fitting(device: Device, health: Health, releases: Sequence[Release], boards: Collection[str]) -> tuple[Release | None, str]:
    is_known = device.board in boards
    fitting = [
        one
        for one in releases
        if one.arch == health.arch
        and one.python == _python(health.python)
        and _numbers(one.glibc) <= _numbers(health.glibc)
        and (not is_known or one.board == device.board)
    ]
    if not fitting:
        here = f"{device.board if is_known else 'any board'}, {health.arch}, Python {_python(health.python)}, glibc {health.glibc}"
        there = "; ".join(f"{one.board}, {one.arch}, Python {one.python}, glibc {one.glibc}" for one in releases)
        return None, f"no bundle fits: it is {here}; there are: {there}"
    # The newest C library that fits has the newest wheels.
    best = max(fitting, key=lambda one: (_numbers(one.glibc), one.built_ns))
    return best, "" if is_known else f"its board is not said in fleet.toml: gets the bundle for {best.board}"


def _python(text: str | None) -> str:
    found = re.match(r"\d+\.\d+", text or "")
    return found[0] if found else "unknown"


def _numbers(text: str | None) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text or "")[:2])
