"""Plans a campaign: the devices and their groups, frozen; the cells models x modes x devices, and why some of them are impossible."""

import math
import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

import msgspec

from edgemeter.agent.engine import suites
from edgemeter.agent.engine.suites import Settings, SuiteFile
from edgemeter.agent.errors import ConfigError
from edgemeter.provisioning.campaigns import campaigns, changes
from edgemeter.provisioning.campaigns.campaign_file import CampaignFile, Mode
from edgemeter.provisioning.campaigns.campaign_file import Rules as GroupRules
from edgemeter.provisioning.campaigns.campaigns import Campaign, Cell
from edgemeter.provisioning.content.store import ContentStore
from edgemeter.provisioning.inventory import selection
from edgemeter.provisioning.inventory.fleet_file import FleetFile
from edgemeter.provisioning.jobs import jobs, packing
from edgemeter.provisioning.jobs.data_packing import DataPacker
from edgemeter.provisioning.jobs.jobs import NewJob
from edgemeter.provisioning.jobs.packing import Find, Packed
from edgemeter.provisioning.jobs.rules import Place, Rules, why_never
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.registry import Registry


@dataclass(frozen=True, slots=True)
class Plan:
    """A campaign that has not begun: the work of each (model, mode), the group of each device, and all cells."""

    written: CampaignFile
    devices: tuple[Device, ...]
    waves: Mapping[str, int]
    work: Mapping[tuple[str, str], Packed]
    cells: tuple[Cell, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """What somebody should know about the suites."""
        notes = dict.fromkeys(note for packed in self.work.values() for note in packed.notes)
        return (*notes, packing.size_note(packed.work for packed in self.work.values()))


@dataclass(frozen=True, slots=True)
class Source:
    """Where a plan comes from: the file, the folder that its models stand beside, the fleet's file, and where content is kept."""

    written: CampaignFile
    folder: Path
    said: FleetFile | None
    store: ContentStore
    find: Find | None = None


def plan(source: Source, devices: Sequence[Device]) -> Plan:
    """Return the plan for these devices.

    Raises:
        ConfigError: a model or a mode is wrong, or no cell is possible.
        UnavailableError: a model cannot be fetched.
    """
    written = source.written
    waves = groups(devices, written.rules)
    modes = {mode.name: mode for mode in written.modes}
    fits = {mode.name: selection.parse(mode.on).fits for mode in written.modes if mode.on is not None}
    cells = [
        Cell(model, name, device.device, waves[device.device], None, why_impossible(model, mode, device, source.said, fits.get(name)))
        for model in written.models
        for name, mode in modes.items()
        for device in devices
    ]
    possible = dict.fromkeys((cell.model, cell.mode) for cell in cells if cell.impossible is None)
    if not possible:
        message = f"campaign {written.name!r}: no cell is possible; the first: {cells[0].impossible}"
        raise ConfigError(message)
    data = DataPacker(source.store)
    work = {
        (model, name): packing.pack(_suite(written, model, modes[name]), source.folder, source.store, source.find, data)
        for model, name in possible
    }
    return Plan(written, tuple(devices), waves, work, tuple(cells))


def start(registry: Registry, made: Plan, now_ns: int) -> None:
    """Keep a campaign, its jobs and its cells, and let the first group begin.

    Raises:
        ConfigError: there is one of that name.
    """
    written = made.written
    fleets = {one.device: one.fleet for one in made.devices}
    with registry.transaction() as connection:
        _refuse_twice(connection, written.name)
        named = []
        for (model, mode), packed in made.work.items():
            own = [cell for cell in made.cells if (cell.model, cell.mode) == (model, mode)]
            targets = [(cell.device, fleets[cell.device]) for cell in own if cell.impossible is None]
            new = NewJob(
                packed.work,
                f"{packed.title}: {model}, {mode}",
                written.timeout_s,
                written.retries,
                cool_down_s=written.cool_down_s,
                exclusive=written.exclusive,
                campaign=written.name,
            )
            job = jobs.add(connection, new, targets, now_ns, state="held", waves=dict(made.waves))
            named += [cell if cell.impossible else replace(cell, job=job) for cell in own]
        named += [cell for cell in made.cells if (cell.model, cell.mode) not in made.work]
        waves = max(made.waves.values()) + 1
        campaigns.insert(connection, Campaign(written.name, "running", None, 0, waves, written.rules, now_ns, 0), named)
        changes.release(registry, connection, written.name, 0)


def groups(devices: Sequence[Device], rules: GroupRules) -> dict[str, int]:
    """Return the group of each device, from 0: the canary group first, boards of every type in turn, so that each type is tried early."""
    ordered = _mixed(devices)
    canary = rules.canary or (math.ceil(rules.canary_ratio * len(ordered)) if rules.canary_ratio else 0)
    size = rules.group or len(ordered)
    found = {}
    for place, device in enumerate(ordered):
        found[device.device] = 0 if place < canary else (place - canary) // size + (1 if canary else 0)
    return found


def why_impossible(model: str, mode: Mode, device: Device, said: FleetFile | None, fits: object) -> str | None:
    """Return why a device cannot measure a model in a mode, None when it can as far as is known here."""
    if callable(fits) and not fits(device):
        return f"mode {mode.name!r} is for {mode.on}"
    entry = said.device.get(device.device) if said else None
    if mode.power_mode is not None and (entry is None or entry.power_mode != mode.power_mode):
        has = f"is in power mode {entry.power_mode!r}" if entry and entry.power_mode else "has none in fleet.toml"
        return f"mode {mode.name!r} needs power mode {mode.power_mode!r}, the device {has}"
    runtime = mode.case.runtime
    if isinstance(runtime, str) and Path(model).suffix.lower() in suites.FORMATS and not suites.reads(runtime, Path(model)):
        return f"{runtime} does not read {Path(model).name}"
    circuits_w = {name: circuit.limit_w for name, circuit in said.circuit.items()} if said else {}
    return why_never(Place(device.circuit, device.power_w), Rules(circuits_w=circuits_w))


def _suite(written: CampaignFile, model: str, mode: Mode) -> SuiteFile:
    case = msgspec.structs.replace(mode.case, model=model, mode=mode.case.mode or "quick")
    return SuiteFile(name=written.name, case=[case], defaults=Settings())


def _mixed(devices: Sequence[Device]) -> list[Device]:
    by_board = defaultdict(list)
    for device in devices:
        by_board[device.board].append(device)
    return [one for row in zip_longest(*by_board.values()) for one in row if one is not None]


def _refuse_twice(connection: sqlite3.Connection, name: str) -> None:
    if connection.execute("SELECT 1 FROM campaigns WHERE campaign = ?", (name,)).fetchone():
        message = f"there is a campaign named {name!r} already: give the new one another `name`, or resume that one"
        raise ConfigError(message)
