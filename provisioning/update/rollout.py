"""An update of many devices: which release each gets or why none, who goes, in which waves, and the jobs."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.health import Health
from edgemeter.agent.contract.orders import Content, Update, version_key
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.inventory.selection import select_devices
from edgemeter.provisioning.registry import jobs
from edgemeter.provisioning.registry.devices import Device, read_presence
from edgemeter.provisioning.registry.jobs import NewJob
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.release import boards
from edgemeter.provisioning.update.releases import Release, releases_of_version

# What an order may allow: an older version, and a version that failed there.
Allowed: TypeAlias = Literal["older", "bad"]
_UNDER_WAY = "SELECT device FROM executions WHERE ended_ns IS NULL AND substr(job, 1, 7) = 'update-'"


@dataclass(frozen=True, slots=True)
class UpdateChoice:
    """The choice for one device: `release` is its new release, None if it stays (`note` is why); `runs` is its present version."""

    device: Device
    runs: str | None
    release: Release | None
    note: str = ""
    bad: tuple[str, ...] = ()


def choose_release(
    device: Device,
    health: Health | None,
    releases: Sequence[Release],
    *,
    even_if: Collection[Allowed] = (),
    is_under_way: bool = False,
    boards: Collection[str] = (),
) -> UpdateChoice:
    """Return the choice among `releases` for a device; `boards` are those that releases are built for."""
    if health is None:
        return UpdateChoice(device, None, None, "it has not reported its state yet: is it online?")
    release, note = _fitting(device, health, releases, boards)
    if release is not None and (why := _why_not(health, release.version, even_if, is_under_way=is_under_way)):
        release, note = None, why
    return UpdateChoice(device, _runs(health), release, note, health.bad_agents)


def canaries(choices: Sequence[UpdateChoice], count: int) -> tuple[list[UpdateChoice], list[UpdateChoice]]:
    """Return `count` devices to update first, of as many different releases as there are, and the rest."""
    by_release: dict[str, list[UpdateChoice]] = {}
    for choice in choices:
        if choice.release is not None:
            by_release.setdefault(choice.release.sha256, []).append(choice)
    queues = list(by_release.values())
    first: list[UpdateChoice] = []
    while len(first) < count and any(queues):
        first += [queue.pop(0) for queue in queues if queue][: count - len(first)]
    return first, [choice for queue in queues for choice in queue]


def _why_not(health: Health, version: str, even_if: Collection[Allowed], *, is_under_way: bool) -> str:
    if _runs(health) == version:
        return "it runs this version"
    if is_under_way:
        return "an update is in progress"
    if version in health.bad_agents and "bad" not in even_if:
        return "this version failed there before: `--even-if bad` retries it"
    if "older" not in even_if and _is_older(version, _runs(health)):
        return f"this is older than {_runs(health)}: `--even-if older` allows it"
    return ""


def _runs(health: Health) -> str:
    return health.release or health.agent


def _is_older(version: str, running: str) -> bool:
    try:
        return version_key(version) < version_key(running)
    except ConfigError:
        # It runs a version that was never published: any published one may follow.
        return False


def _fitting(device: Device, health: Health, releases: Sequence[Release], boards: Collection[str]) -> tuple[Release | None, str]:
    is_known = device.board in boards
    fitting = [
        release
        for release in releases
        if release.arch == health.arch
        and release.python == _python(health.python)
        and _numbers(release.glibc) <= _numbers(health.glibc)
        and (not is_known or release.board == device.board)
    ]
    if not fitting:
        target = f"{device.board if is_known else 'any board'}, {health.arch}, Python {_python(health.python)}, glibc {health.glibc}"
        offered = "; ".join(f"{release.board}, {release.arch}, Python {release.python}, glibc {release.glibc}" for release in releases)
        return None, f"no release fits: it is {target}; there are: {offered}"
    # The release for the newest C library that fits has the newest wheels.
    best = max(fitting, key=lambda release: (_numbers(release.glibc), release.built_ns))
    return best, "" if is_known else f"its board is not set in fleet.toml: it gets the release for {best.board}"


def _python(text: str | None) -> str:
    match = re.match(r"\d+\.\d+", text or "")
    return match[0] if match else "unknown"


def _numbers(text: str | None) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text or "")[:2])


def plan_update(
    folder: FleetFolder, registry: Registry, selection: str, version: str | None, even_if: Sequence[Allowed]
) -> list[UpdateChoice]:
    """Return the choice for each device of a selection.

    Raises:
        ConfigError: no device matches the selection, or there is no such release.
    """
    releases = releases_of_version(registry, version)
    heard = read_presence(registry)
    under_way = {row["device"] for row in registry.query(_UNDER_WAY)}
    supported = set(boards.all_boards())
    choices = []
    for device in select_devices(folder, registry, selection):
        if device.trust != "accepted":
            choices.append(UpdateChoice(device, None, None, f"it is {device.trust}: only accepted devices take orders"))
            continue
        health = heard[device.device].health if device.device in heard else None
        is_under_way = device.device in under_way
        choices.append(choose_release(device, health, releases, even_if=even_if, is_under_way=is_under_way, boards=supported))
    return choices


def update_waves(choices: Sequence[UpdateChoice], canary: int | None) -> Iterator[list[UpdateChoice]]:
    """Yield the devices to update together: the canaries, if any, then the rest."""
    going = [updating for updating in choices if updating.release is not None]
    first, later = canaries(going, canary) if canary else ([], going)
    yield from (wave for wave in (first, later) if wave)


def order_update(registry: Registry, wave: Sequence[UpdateChoice], even_if: Sequence[Allowed], timeout_s: float, now_ns: int) -> list[str]:
    """Add a job for each release, and return the names of the jobs."""
    names = []
    with registry.transaction() as connection:
        for release in dict.fromkeys(choice.release for choice in wave if choice.release is not None):
            bundle = Content(sha256=release.sha256, size_bytes=release.size_bytes, name=release.name)
            work = Update(version=release.version, bundle=bundle, even_if=tuple(even_if))
            title = f"update to {release.version}, {release.board}, Python {release.python}"
            # A failed update is not retried automatically.
            new = NewJob(work, title, timeout_s, retries=0)
            devices = [(choice.device.device, choice.device.fleet) for choice in wave if choice.release == release]
            names.append(jobs.add(connection, new, devices, now_ns))
    return names
