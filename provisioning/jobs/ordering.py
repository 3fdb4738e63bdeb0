"""Shared code of the commands that give orders: which devices are selected, and what is packed."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.content.store import ContentStore
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.inventory.selection import select_devices
from edgemeter.provisioning.jobs import packing
from edgemeter.provisioning.jobs.packing import PackedSuite
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.jobs import Target
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
    def targets(self) -> list[Target]:
        """Each of them as a device of a new job."""
        return [Target(device.device, device.fleet) for device in self.devices]


def pick(folder: FleetFolder, registry: Registry, selection: str) -> OrderTargets:
    """Return the accepted devices of a selection; raises ConfigError if it cannot be read, or none of its devices takes orders."""
    devices = select_devices(folder, registry, selection)
    accepted = tuple(device for device in devices if device.trust == "accepted")
    left_out = [device for device in devices if device.trust != "accepted"]
    notes = tuple(f"{device.device} is skipped: it is {device.trust}, and only accepted devices take orders" for device in left_out)
    if not accepted:
        states = ", ".join(sorted({device.trust for device in left_out}))
        remedy = "they have to join first" if states == "expected" else "`edgemeter fleet accept` takes them back"
        count = f"{len(devices)} device{'s match' if len(devices) != 1 else ' matches'}"
        raise ConfigError(f"{count} {selection!r}, but none accepts orders ({states}): {remedy}")
    return OrderTargets(accepted, notes)


def pack(folder: FleetFolder, suite: Path, *, is_dry_run: bool = False) -> PackedSuite:
    """Return a suite as work, its models and images in the fleet's content, or nowhere in a dry run; raises as `packing.pack_file`."""
    with Console(stderr=True).status(f"packing {suite.name}"):
        if not is_dry_run:
            return packing.pack_file(suite, ContentStore(folder.content))
        with TemporaryDirectory(dir=folder.path) as rehearsal:
            return packing.pack_file(suite, ContentStore(Path(rehearsal)))
