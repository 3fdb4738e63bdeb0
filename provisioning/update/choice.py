"""An update of many devices, and the job that delivers it.

It has the release of each device, or why there is none.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.health import Health
from edgemeter.agent.contract.orders import Content, Update, version_key
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.inventory.selection import select_devices
from edgemeter.provisioning.registry.devices import Device, read_presence
from edgemeter.provisioning.registry.jobs import NewJob, Target
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.release.boards import all_boards
from edgemeter.provisioning.release.install import version_numbers
from edgemeter.provisioning.update.releases import Release, releases_of_version

# Exceptions that an update may allow: an older version, or a version that failed there.
Allowed: TypeAlias = Literal["older", "bad"]
_UNDER_WAY = (
    "SELECT device, job FROM executions WHERE ended_ns IS NULL AND substr(job, 1, 7) = 'update-'"
)


@dataclass(frozen=True, slots=True)
class UpdateChoice:
    """The choice for one device, which reported `health`.

    `release` is its new release, None if it stays (`note` is why).
    """

    device: Device
    health: Health | None
    release: Release | None
    note: str

    @property
    def runs(self) -> str | None:
        """The version that the device runs."""
        return _running(self.health) if self.health is not None else None


def choose_release(
    device: Device,
    health: Health | None,
    releases: Sequence[Release],
    even_if: Collection[Allowed] = (),
    under_way: str | None = None,
) -> UpdateChoice:
    """Return the choice among `releases` for a device with the unfinished update `under_way`."""
    if device.trust != "accepted":
        return UpdateChoice(
            device, health, None, f"it is {device.trust}: only accepted devices take orders"
        )
    if health is None:
        return UpdateChoice(
            device, health, None, "it has not reported its state yet: is it online?"
        )
    is_known = device.board in all_boards()
    python = ".".join((health.python or "unknown").split(".")[:2])
    fitting = [
        release
        for release in releases
        if (release.arch, release.python) == (health.arch, python)
        and version_numbers(release.glibc) <= version_numbers(health.glibc or "")
        and (not is_known or release.board == device.board)
    ]
    if not fitting:
        target = (
            f"{device.board if is_known else 'any board'}, {health.arch}, Python {python}, glibc "
            f"{health.glibc}"
        )
        offered = "; ".join(
            f"{release.board}, {release.arch}, Python {release.python}, glibc {release.glibc}"
            for release in releases
        )
        return UpdateChoice(device, health, None, f"no release fits {target}; there are {offered}")
    # Among matching releases, the one for the newest C library has the newest wheels.
    best = max(fitting, key=lambda release: (version_numbers(release.glibc), release.built_ns))
    if why := _why_not(health, best.version, even_if, under_way):
        return UpdateChoice(device, health, None, why)
    note = (
        ""
        if is_known
        else f"its board is not set in fleet.toml: it gets the release for {best.board}"
    )
    return UpdateChoice(device, health, best, note)


def _why_not(
    health: Health, version: str, even_if: Collection[Allowed], under_way: str | None
) -> str:
    running = _running(health)
    if running == version:
        return "it runs this version"
    if under_way is not None:
        return (
            f"{under_way} is not finished here: `edgemeter fleet jobs {under_way}` "
            "resumes or cancels it"
        )
    if version in health.bad_agents and "bad" not in even_if:
        return "this version failed there before: `--even-if bad` retries it"
    # It may run a version that was never published: any published one may follow.
    with suppress(ConfigError):
        if version_key(version) < version_key(running) and "older" not in even_if:
            return f"this is older than {running}: `--even-if older` allows it"
    return ""


def _running(health: Health) -> str:
    return health.release or health.agent


def plan_update(
    folder: FleetFolder,
    registry: Registry,
    selection: str,
    version: str | None,
    even_if: Sequence[Allowed],
) -> list[UpdateChoice]:
    """Return the choice for each device of a selection.

    Raises:
        ConfigError: none matches it, or there is no such release.
    """
    releases = releases_of_version(registry, version)
    reported = {name: presence.health for name, presence in read_presence(registry).items()}
    under_way = {row["device"]: row["job"] for row in registry.query(_UNDER_WAY)}
    return [
        choose_release(
            device, reported.get(device.device), releases, even_if, under_way.get(device.device)
        )
        for device in select_devices(folder, registry, selection)
    ]


def update_job(
    going: Sequence[UpdateChoice],
    waves: Mapping[str, int],
    even_if: Sequence[Allowed],
    timeout_s: float,
    max_failed_ratio: float,
) -> tuple[NewJob, list[Target]]:
    """Return the job that brings devices to their releases, and its devices.

    A failed update is not retried automatically.
    """
    releases = list(dict.fromkeys(choice.release for choice in going if choice.release is not None))
    works = tuple(
        Update(
            version=release.version,
            bundle=Content(sha256=release.sha256, size_bytes=release.size_bytes, name=release.name),
            even_if=tuple(even_if),
        )
        for release in releases
    )
    targets = [
        Target(
            choice.device.device,
            choice.device.fleet,
            waves[choice.device.device],
            releases.index(choice.release),
        )
        for choice in going
        if choice.release is not None
    ]
    title = f"update to {', '.join(dict.fromkeys(release.version for release in releases))}"
    return NewJob(works, title, timeout_s, retries=0, max_failed_ratio=max_failed_ratio), targets
