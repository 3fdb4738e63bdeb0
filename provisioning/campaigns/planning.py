"""The campaign file, and the plan made from it: devices and groups, frozen; the cells models x modes x devices.

`sample_campaign.toml` beside this file shows every key.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.toml import read_toml
from edgemeter.agent.base.types import Name
from edgemeter.agent.contract.case_settings import Settings
from edgemeter.agent.contract.model_formats import FORMATS, reads
from edgemeter.agent.contract.orders import JobId
from edgemeter.agent.contract.suite import SuiteFile
from edgemeter.provisioning.campaigns.campaign_handler import in_groups, start_campaign
from edgemeter.provisioning.content.store import ContentStore
from edgemeter.provisioning.inventory import selection
from edgemeter.provisioning.inventory.fleet_file import FleetFile, Tag
from edgemeter.provisioning.jobs import packing
from edgemeter.provisioning.jobs.packing import DataPacker, PackedSuite
from edgemeter.provisioning.registry.campaigns import CampaignCell, GroupRules
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.jobs import NewJob
from edgemeter.provisioning.registry.registry import Registry

SAMPLE = Path(__file__).with_name("sample_campaign.toml")
CampaignSeconds = Annotated[float, msgspec.Meta(gt=0, le=604_800)]


class CampaignMode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to measure: the keys of a suite's case, and the power mode that a device needs (as named in fleet.toml)."""

    name: Name
    power_mode: str | None = None
    # A selection of the devices that it is for; others count as impossible.
    on: str | None = None
    case: Settings = Settings()


class CampaignFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file; without modes there is one, `quick`."""

    name: JobId
    on: str
    models: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    modes: tuple[CampaignMode, ...] = (CampaignMode(name="quick"),)
    timeout_s: CampaignSeconds = 3600.0
    retries: Annotated[int, msgspec.Meta(ge=0, le=10)] = 1
    exclusive: tuple[Tag, ...] = ()
    rules: GroupRules = GroupRules()


def read_campaign_file(path: Path) -> CampaignFile:
    """Return the campaign file at `path`; raises ConfigError if it cannot be read, has a wrong or unknown key, or two modes of one name."""
    campaign_file = read_toml(path, CampaignFile, "campaign file")
    for fault in faults(campaign_file):
        raise ConfigError(f"campaign file {str(path)!r}: {fault}")
    return campaign_file


def faults(campaign_file: CampaignFile, _path: Path | None = None) -> Iterator[str]:
    """Yield what is wrong with a file whose keys are right: no mode, or two of one name."""
    names = [mode.name for mode in campaign_file.modes]
    if not names:
        yield "`modes` is empty: leave it out, or add [[modes]] with a name"
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            yield f"two modes are named {name!r}: rename one"


@dataclass(frozen=True, slots=True)
class CampaignPlan:
    """A campaign that has not started: the work of each (model, mode), and all cells with the groups of their devices."""

    written: CampaignFile
    devices: tuple[Device, ...]
    work: Mapping[tuple[str, str], PackedSuite]
    cells: tuple[CampaignCell, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the suites."""
        notes = dict.fromkeys(note for packed in self.work.values() for note in packed.notes)
        return (*notes, packing.size_note(packed.work for packed in self.work.values()))


def plan(written: CampaignFile, folder: Path, fleet_file: FleetFile | None, store: ContentStore, devices: Sequence[Device]) -> CampaignPlan:
    """Return the plan of a campaign file, whose paths are relative to `folder`; raises as `packing.pack`, or ConfigError for no cell."""
    waves = in_groups({device.device: device.board for device in devices}, written.rules.groups)
    modes = {mode.name: mode for mode in written.modes}
    fits = {mode.name: selection.parse(mode.on).fits for mode in written.modes if mode.on is not None}
    cells = [
        CampaignCell(
            model, name, device.device, waves[device.device], None, why_impossible(model, mode, device, fleet_file, fits.get(name))
        )
        for model in written.models
        for name, mode in modes.items()
        for device in devices
    ]
    possible = dict.fromkeys((cell.model, cell.mode) for cell in cells if cell.impossible is None)
    if not possible:
        raise ConfigError(f"campaign {written.name!r}: no cell is possible; the first: {cells[0].impossible}")
    data = DataPacker(store)
    work = {(model, name): packing.pack(_suite(written, model, modes[name]), folder, store, data=data) for model, name in possible}
    return CampaignPlan(written, tuple(devices), work, tuple(cells))


def start(registry: Registry, plan: CampaignPlan, now_ns: int) -> None:
    """Write a campaign, its jobs and its cells, and release the first group; raises ConfigError if there is one of that name."""
    written = plan.written
    possible = defaultdict(list)
    for cell in plan.cells:
        if cell.impossible is None:
            possible[cell.model, cell.mode].append(cell)
    work = [
        (
            NewJob(
                packed.work,
                f"{packed.title}: {model}, {mode}",
                written.timeout_s,
                written.retries,
                exclusive=written.exclusive,
            ),
            possible[model, mode],
        )
        for (model, mode), packed in plan.work.items()
    ]
    fleets = {device.device: device.fleet for device in plan.devices}
    impossible = [cell for cell in plan.cells if cell.impossible is not None]
    start_campaign(registry, written.name, written.rules, work, fleets, now_ns, impossible=impossible)


def why_impossible(model: str, mode: CampaignMode, device: Device, fleet_file: FleetFile | None, fits: object) -> str | None:
    """Return why a device cannot measure a model in a mode, None when it can as far as the server knows."""
    if callable(fits) and not fits(device):
        return f"mode {mode.name!r} is for {mode.on}"
    entry = fleet_file.device.get(device.device) if fleet_file else None
    if mode.power_mode is not None and (entry is None or entry.power_mode != mode.power_mode):
        has = f"is in power mode {entry.power_mode!r}" if entry and entry.power_mode else "has none in fleet.toml"
        return f"mode {mode.name!r} needs power mode {mode.power_mode!r}, the device {has}"
    runtime = mode.case.runtime
    if isinstance(runtime, str) and Path(model).suffix.lower() in FORMATS and not reads(runtime, Path(model)):
        return f"{runtime} does not read {Path(model).name}"
    return None


def _suite(written: CampaignFile, model: str, mode: CampaignMode) -> SuiteFile:
    case = msgspec.structs.replace(mode.case, model=model, mode=mode.case.mode or "quick")
    return SuiteFile(name=written.name, case=[case], defaults=Settings())
