"""Any chip that the kernel shows in /sys/class/hwmon with watts or joules of its own: graphics cards, power supplies, regulators.

Where: hwmonN with powerN_input or powerN_average in uW, energyN_input in uJ, and powerN_label. Chips with a sensor of their own here
(ina3221, INA2xx, powerz) and batteries are left to those. What a chip measures is known for a few drivers only; for any other no
energy is given until `scope` is set. Of several channels one is the total: the user's, or none. A counter that goes back was reset, or
has wrapped at a width that the kernel does not show: measure again.
A mean's interval is read from powerN_average_interval (ACPI power meters), that of new values from update_interval; both are in ms.
Source: Linux Documentation/hwmon/sysfs-interface.rst, and the drivers' pages for the names in KNOWN.

    [sensors.power_hwmon]
    device = "corsairpsu"        # the chip: its name, hwmonN or bus address; needed where there are several
    channel = "power1"           # or its label; "power1,power2" adds up what does not overlap
    scope = "board-input"        # what it measures

Gain and steps are the driver's affair and unknown.
Tested with: trees of this form; not yet on a machine.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.contract.record_figures import Scope
from edgemeter.agent.power import ROOT, AbsentError, Description, Rail, Reading, ina2xx, powerz
from edgemeter.agent.power.sysfs import HwmonChip, LocatedSensor, hwmon_chips, list_folder, optional_number
from edgemeter.agent.power.values import Averaging, as_unavailable, averaging_by, plausible_power_w, scope_setting

PERIOD_MS = 100.0
# More than any server draws.
HIGHEST_W = 100_000.0
CHANNEL = re.compile(r"(?P<id>(?P<kind>power|energy)(?P<number>\d+))_(?P<source>input|average)")
BATTERY = re.compile(r"BAT\d*|ucsi_source_psy.*|CMB\d+|macsmc_battery", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Kind:
    """The quantity that a driver's chips measure."""

    scope: Scope
    excludes: tuple[str, ...]
    warning: str | None = None


# Source: Linux Documentation/gpu/amdgpu/thermal.rst, Documentation/hwmon/{acpi_power_meter,fam15h_power}.rst,
# Documentation/ABI/testing/sysfs-driver-intel-{i915,xe}-hwmon.
KNOWN: Mapping[str, _Kind] = {
    "amdgpu": _Kind("gpu-board", ("mainboard", "processor", "power-supply loss"), "in an APU this is the whole chip, processor included"),
    "i915": _Kind("gpu-board", ("mainboard", "processor", "power-supply loss")),
    "xe": _Kind("gpu-board", ("mainboard", "processor", "power-supply loss")),
    "fam15h_power": _Kind("cpu-package", ("mainboard", "memory", "disks", "GPU", "fans", "power-supply loss")),
    "power_meter": _Kind(
        "board-input",
        ("power-supply loss",),
        'the firmware does not show whether it measures before or after the power supply: set scope = "wall-ac" where it is before',
    ),
}
UNKNOWN = _Kind("soc-rails", ("whatever the chip does not see",))


@dataclass(frozen=True, slots=True)
class _Channel:
    """One powerN or energyN of a chip."""

    chip: HwmonChip
    id: str
    file: str
    label: str | None

    @property
    def is_energy(self) -> bool:
        return self.id.startswith("energy")

    @property
    def name(self) -> str:
        return self.label or self.id


class PowerHwmon(LocatedSensor[tuple[_Channel, ...]]):
    """Reads one channel of one chip, or the sum of those that the user names."""

    def __init__(
        self, device: str = "", channel: str = "", scope: str = "", root: Path = ROOT, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        super().__init__(root, clock)
        self._device = device
        self._wanted = tuple(filter(None, map(str.strip, channel.split(","))))
        self._scope = scope_setting("power_hwmon", scope) if scope else None
        self._last_uj: dict[str, int] = {}

    def describe(self) -> Description:
        """Return which channels are read and what they are known to measure."""
        with as_unavailable():
            self._located = channels = self._find()
            self.read()
        chip = channels[0].chip
        kind = KNOWN.get(chip.name or "", UNKNOWN)
        is_unknown = self._scope is None and kind is UNKNOWN
        blocked = (
            f"what {chip.known_as} measures is not known, {kind.scope} is only the least it can be: "
            'set scope in [sensors.power_hwmon], to "board-input" for one'
        )
        return Description(
            id=f"power_hwmon:{chip.name or chip.folder.name}:{'+'.join(channel.id for channel in channels)}",
            scope=self._scope or kind.scope,
            excludes=kind.excludes if self._scope in {None, kind.scope} else (),
            kind="energy" if channels[0].is_energy else "power",
            period_ms=PERIOD_MS,
            warnings=(kind.warning,) if kind.warning and self._scope is None else (),
            blocked=blocked if is_unknown else None,
            averaging=_averaging(channels),
        )

    def read(self) -> Reading:
        """Return the watts or joules of the channels."""
        channels = self._parts()
        begin = self._clock()
        numbers = [channel.chip.number(channel.file) for channel in channels]
        taken_ns = (begin + self._clock()) // 2
        if channels[0].is_energy:
            for channel, number_uj in zip(channels, numbers, strict=True):
                self._check_counter(channel, number_uj)
            rails = tuple(Rail(channel.name, None) for channel in channels)
            return Reading(taken_ns=taken_ns, energy_mj=sum(numbers) / 1000, rails=rails)
        rails = tuple(Rail(channel.name, number_uw / 1e6) for channel, number_uw in zip(channels, numbers, strict=True))
        power_w = plausible_power_w(sum(numbers) / 1e6, HIGHEST_W, channels[0].chip.known_as)
        return Reading(taken_ns=taken_ns, power_w=power_w, rails=rails)

    def close(self) -> None:
        """Forget the chip."""
        super().close()
        self._last_uj = {}

    def _find(self) -> tuple[_Channel, ...]:
        channels_of_chip = {chip: channels for chip in hwmon_chips(self._root) if (channels := self._channels_of(chip))}
        if not channels_of_chip:
            raise AbsentError(f"no chip in {str(self._root / 'sys/class/hwmon')!r} shows powerN_input, powerN_average or energyN_input")
        meant = [chip for chip in channels_of_chip if not self._device or chip.answers_to(self._device)]
        if len(meant) != 1:
            chips_text = "; ".join(f"{chip.known_as}: {_seen(channels)}" for chip, channels in channels_of_chip.items())
            raise UnavailableError(
                f"device = {self._device!r} matches {len(meant)} of the {len(channels_of_chip)} chips with power of their own: "
                f"{chips_text}; name one as device in [sensors.power_hwmon]"
            )
        return self._total(meant[0], channels_of_chip[meant[0]])

    def _total(self, chip: HwmonChip, channels: Sequence[_Channel]) -> tuple[_Channel, ...]:
        if self._wanted:
            selected = tuple(channel for channel in channels if {channel.id, channel.label} & set(self._wanted))
            if len(selected) == len(self._wanted) and len({channel.is_energy for channel in selected}) == 1:
                return selected
            raise UnavailableError(
                f"channel = {','.join(self._wanted)!r} in [sensors.power_hwmon] does not fit {chip.known_as}: it has {_seen(channels)}"
            )
        counters = tuple(channel for channel in channels if channel.is_energy)
        # One counter beside one power is the same thing counted.
        likely = counters if len(counters) == 1 and len(channels) <= 2 else tuple(channels)
        if len(likely) == 1:
            return likely
        raise UnavailableError(
            f"it is unknown which channel of {chip.known_as} is the total: {_seen(channels)}; "
            f'set channel = "{channels[0].id}" in [sensors.power_hwmon], or several that do not overlap, joined by commas'
        )

    def _channels_of(self, chip: HwmonChip) -> list[_Channel]:
        if chip.name == "ina3221" or ina2xx.is_ina2xx(chip) or powerz.is_powerz(chip) or self._is_battery(chip):
            return []
        matches = [match for path in list_folder(chip.folder, "channels") if (match := CHANNEL.fullmatch(path.name))]
        # `_average` sorts before `_input`, which is the newer value and takes its place.
        matches.sort(key=lambda match: (match["kind"], int(match["number"]), match["source"]))
        return list({match["id"]: _Channel(chip, match["id"], match[0], chip.text(f"{match['id']}_label")) for match in matches}.values())

    def _is_battery(self, chip: HwmonChip) -> bool:
        # The kernel's hwmon for a power supply bears its name, with dashes made underscores.
        supplies = {path.name.replace("-", "_") for path in (self._root / "sys/class/power_supply").glob("*")}
        is_named_so = chip.name is not None and (BATTERY.fullmatch(chip.name) is not None or chip.name in supplies)
        return is_named_so or chip.text("device/type") in {"Battery", "Mains", "UPS", "USB"}

    def _check_counter(self, channel: _Channel, now_uj: int) -> None:
        last_uj = self._last_uj.get(channel.id)
        if last_uj is not None and now_uj < last_uj:
            raise UnavailableError(
                f"{channel.name} of {channel.chip.known_as} went back from {last_uj} to {now_uj} uJ: it was reset or wrapped, measure again"
            )
        self._last_uj[channel.id] = now_uj


def _averaging(channels: Sequence[_Channel]) -> Averaging | None:
    """Return what the kernel shows of it, the slowest of the channels: the interval of a mean, and of new values, both ms."""
    means = [channel.chip.folder / f"{channel.file}_interval" for channel in channels if channel.file.endswith("_average")]
    updates = [channel.chip.folder / "update_interval" for channel in channels]
    mean_ms, update_ms = (max((optional_number(path) or 0 for path in paths), default=0) for paths in (means, updates))
    return averaging_by("driver", window_s=mean_ms / 1000, update_interval_s=update_ms / 1000)


def _seen(channels: Sequence[_Channel]) -> str:
    texts = []
    for channel in channels:
        number = optional_number(channel.chip.folder / channel.file)
        value = "unreadable" if number is None else f"{number / 1e6:.3f} {'J' if channel.is_energy else 'W'}"
        texts.append(f"{channel.id}{f' ({channel.label})' if channel.label else ''} {value}")
    return ", ".join(texts)
