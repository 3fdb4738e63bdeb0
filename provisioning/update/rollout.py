"""An update of many devices: who goes, in which waves, and the jobs that say so."""

from collections.abc import Iterator, Sequence

from rich.console import Console

from edgemeter.agent.jobs.contract import Content, Update
from edgemeter.provisioning.bundle import boards
from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.health import presence
from edgemeter.provisioning.inventory import known
from edgemeter.provisioning.jobs import following, jobs
from edgemeter.provisioning.jobs.executions import Execution
from edgemeter.provisioning.jobs.jobs import NewJob
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.update import addition, choice
from edgemeter.provisioning.update.choice import Allowed, Choice

_UNDER_WAY = "SELECT device FROM executions WHERE ended_ns IS NULL AND job GLOB 'update-*'"


def plan(folder: FleetFolder, registry: Registry, selection: str, version: str | None, even_if: Sequence[Allowed]) -> list[Choice]:
    """Return what becomes of each device of a selection.

    Raises:
        ConfigError: no device fits the selection, or there is no such release.
    """
    releases = addition.of_version(registry, version)
    heard = presence.read(registry)
    under_way = {row["device"] for row in registry.query(_UNDER_WAY)}
    supported = set(boards.table())
    choices = []
    for device in known.select(folder, registry, selection):
        if device.standing != "accepted":
            choices.append(Choice(device, None, None, f"it is {device.standing}: only accepted devices take orders"))
            continue
        health = heard[device.device].health if device.device in heard else None
        is_under_way = device.device in under_way
        choices.append(choice.choose(device, health, releases, even_if=even_if, is_under_way=is_under_way, boards=supported))
    return choices


def waves(choices: Sequence[Choice], canary: int | None) -> Iterator[list[Choice]]:
    """Yield those that go together: the canaries, if any, and then the rest."""
    going = [one for one in choices if one.release is not None]
    first, rest = choice.canaries(going, canary) if canary else ([], going)
    yield from (wave for wave in (first, rest) if wave)


def order(registry: Registry, wave: Sequence[Choice], even_if: Sequence[Allowed], timeout_s: float, now_ns: int) -> list[str]:
    """Keep a job for each bundle, and return their names."""
    made = []
    with registry.transaction() as connection:
        for release in dict.fromkeys(one.release for one in wave if one.release is not None):
            bundle = Content(sha256=release.sha256, size_bytes=release.size_bytes, name=release.name)
            work = Update(version=release.version, bundle=bundle, even_if=tuple(even_if))
            title = f"update to {release.version}, {release.board}, Python {release.python}"
            # What failed is not tried again by itself.
            new = NewJob(work, title, timeout_s, retries=0)
            devices = [(one.device.device, one.device.fleet) for one in wave if one.release == release]
            made.append(jobs.add(connection, new, devices, now_ns))
    return made


def follow(folder: FleetFolder, registry: Registry, names: Sequence[str]) -> list[Execution]:
    """Return the executions of these jobs when all have ended; how they come along is shown on stderr."""
    console = Console(stderr=True)
    return [one for name in names for one in following.follow(folder, registry, name, console)]
