"""What the commands that give orders share: who is picked, what is packed, and how one waits for the end."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
from rich.console import Console

from edgemeter.agent.errors import ConfigError
from edgemeter.provisioning.content.store import ContentStore, Rehearsal
from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.inventory import known
from edgemeter.provisioning.jobs import following, jobs, packing, rulebook, rules, shown
from edgemeter.provisioning.jobs.executions import Execution
from edgemeter.provisioning.jobs.packing import Packed
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.registry import Registry

# Wide enough for a reason where no terminal says how wide it is.
PLAIN_WIDTH = 160


@dataclass(frozen=True, slots=True)
class Picked:
    """The devices of a selection that take orders, and what is to be said of the others."""

    devices: tuple[Device, ...]
    notes: tuple[str, ...] = ()

    @property
    def targets(self) -> list[tuple[str, str]]:
        """Name and fleet of each."""
        return [(one.device, one.fleet) for one in self.devices]


def pick(folder: FleetFolder, registry: Registry, selection: str) -> Picked:
    """Return the accepted devices of a selection.

    Raises:
        ConfigError: it cannot be read, or none of its devices takes orders.
    """
    found = known.select(folder, registry, selection)
    accepted = tuple(one for one in found if one.standing == "accepted")
    left_out = [one for one in found if one.standing != "accepted"]
    notes = tuple(f"{one.device} is left out: it is {one.standing}, and only accepted devices take orders" for one in left_out)
    if not accepted:
        standings = ", ".join(sorted({one.standing for one in left_out}))
        remedy = "they have to join first" if standings == "expected" else "`edgemeter fleet accept` takes them back"
        count = f"{len(found)} device{'s fit' if len(found) != 1 else ' fits'}"
        message = f"{count} {selection!r}, and none takes orders ({standings}): {remedy}"
        raise ConfigError(message)
    return Picked(accepted, notes)


def without_power(folder: FleetFolder, registry: Registry, picked: Picked) -> Picked:
    """Return what was picked without those that may never measure: they draw more than their circuit gives.

    Raises:
        ConfigError: nobody is left.
    """
    rule = rulebook.read(folder, registry)
    why = {one.device: rules.why_never(rule.places.get(one.device, rules.Place()), rule) for one in picked.devices}
    left = tuple(one for one in picked.devices if why[one.device] is None)
    notes = tuple(f"{device} is left out: {reason}" for device, reason in why.items() if reason)
    if not left:
        message = f"none of them may measure; {notes[0]}: correct power_w or limit_w in fleet.toml"
        raise ConfigError(message)
    return Picked(left, (*picked.notes, *notes))


def pack(folder: FleetFolder, suite: Path, *, is_rehearsal: bool = False) -> Packed:
    """Return a suite as work, its models and photographs in the fleet's content; a rehearsal keeps nothing.

    Raises:
        EdgemeterError: as `packing.pack_file`.
    """
    store = Rehearsal() if is_rehearsal else ContentStore(folder.content)
    with Console(stderr=True).status(f"packing {suite.name}"):
        packed = packing.pack_file(suite, store)
    return replace(packed, notes=(*packed.notes, packing.size_note([packed.work])))


def say_rehearsed(packed: Packed, picked: Picked, *, as_json: bool) -> None:
    """Print what would be sent to whom."""
    contents = packed.work.contents
    if as_json:
        said = [{"name": one.name, "sha256": one.sha256, "size_bytes": one.size_bytes} for one in contents]
        click.echo(json.dumps({"title": packed.title, "devices": [one.device for one in picked.devices], "contents": said}, indent=2))
        return
    for one in contents:
        click.echo(f"would send {one.name} ({one.size_bytes} bytes, sha256 {one.sha256[:12]})")
    for device in picked.devices:
        click.echo(f"would order {device.device}: {packed.title}")


def wait(folder: FleetFolder, registry: Registry, job: str, *, as_json: bool) -> bool:
    """Follow a job to its end, print what came of it, and return whether all is done."""
    try:
        ended = following.follow(folder, registry, job, Console(stderr=True))
    except KeyboardInterrupt:
        click.echo(f"edgemeter: {job} goes on: `edgemeter fleet jobs {job}` shows it, `edgemeter fleet cancel {job}` ends it", err=True)
        raise
    show(registry, job, ended, {}, as_json=as_json)
    return all(one.state == "done" for one in ended)


def show(registry: Registry, job: str, held: Sequence[Execution], why: dict[int, str | None], *, as_json: bool) -> None:
    """Print a job with its executions."""
    found = jobs.named(registry, job)
    if as_json:
        click.echo(json.dumps(shown.document(found, held, why), indent=2))
        return
    console = Console()
    console = console if console.is_terminal else Console(width=PLAIN_WIDTH)
    console.print(f"{found.job}: {found.title}", markup=False, highlight=False)
    console.print(shown.table(held, lambda one: why.get(one.id), time.time_ns()))
    console.print(shown.summary(held), markup=False, highlight=False)
