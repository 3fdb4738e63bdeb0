"""Shared code of the commands that give orders: which devices are selected, what is packed, and the work of a schedule."""

from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from rich.console import Console

from edgemeter.agent.base import cron as cron_times
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.orders import JobId, Schedule
from edgemeter.provisioning.content.store import ContentStore, DryRunStore
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.inventory.selection import select_devices
from edgemeter.provisioning.jobs import packing
from edgemeter.provisioning.jobs.packing import PackedSuite
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.registry import Registry


@dataclass(frozen=True, slots=True)
class OrderTargets:
    """The devices of a selection that take orders, and notes on the others."""

    devices: tuple[Device, ...]
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """Their names."""
        return [device.device for device in self.devices]

    @property
    def targets(self) -> list[tuple[str, str]]:
        """Name and fleet of each."""
        return [(device.device, device.fleet) for device in self.devices]


def pick(folder: FleetFolder, registry: Registry, selection: str) -> OrderTargets:
    """Return the accepted devices of a selection; raises ConfigError if it cannot be read, or none of its devices takes orders."""
    devices = select_devices(folder, registry, selection)
    accepted = tuple(device for device in devices if device.trust == "accepted")
    left_out = [device for device in devices if device.trust != "accepted"]
    notes = tuple(f"{device.device} is skipped: it is {device.trust}, and only accepted devices take orders" for device in left_out)
    if not accepted:
        states = ", ".join(sorted({device.trust for device in left_out}))
        remedy = "they have to join first" if states == "expected" else "`edgemeter fleet requests accept` takes them back"
        count = f"{len(devices)} device{'s match' if len(devices) != 1 else ' matches'}"
        raise ConfigError(f"{count} {selection!r}, but none accepts orders ({states}): {remedy}")
    return OrderTargets(accepted, notes)


def pack(folder: FleetFolder, suite: Path, *, is_dry_run: bool = False) -> PackedSuite:
    """Return a suite as work, its models and images in the fleet's content, or nowhere in a dry run; raises as `packing.pack_file`."""
    store = DryRunStore() if is_dry_run else ContentStore(folder.content)
    with Console(stderr=True).status(f"packing {suite.name}"):
        packed = packing.pack_file(suite, store)
    return replace(packed, notes=(*packed.notes, packing.size_note([packed.work])))


def check_schedule(name: str, cron: str | None, suite: Path | None, *, is_end: bool) -> None:
    """Check the parameters of a schedule; raises ConfigError if its name or times are wrong, or they contradict each other."""
    try:
        msgspec.convert(name, JobId)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{name!r} cannot be the name of a schedule: use lower-case letters, digits and dashes, at most 64") from error
    if is_end:
        if cron is not None or suite is not None:
            raise ConfigError("--end takes a name and --on only: leave out the suite and --cron")
        return
    if cron is None or suite is None:
        raise ConfigError("a schedule needs a suite and --cron 'MINUTE HOUR DAY MONTH WEEKDAY'; --end ends one")
    cron_times.parse(cron)


def schedule_work(folder: FleetFolder, name: str, cron: str | None, suite: Path | None) -> tuple[Schedule, tuple[str, ...]]:
    """Return the order, and notes on it; without a suite it ends the schedule. Raises EdgemeterError as `packing.pack_file`."""
    if suite is None:
        return Schedule(name=name), ()
    packed = pack(folder, suite)
    return Schedule(name=name, cron=cron or "", work=packed.work), packed.notes
