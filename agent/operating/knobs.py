"""The table of the settings of a board: how each is found and put back, and how power mode and governor are checked and written.

Source: Linux Documentation/admin-guide/pm/cpufreq.rst (kHz), Documentation/ABI/testing/sysfs-class-devfreq (Hz); NVIDIA nvpmodel.conf:
PARAM NAME=EMC is the cap of the memory clock (Hz, 0 for none), *_POWER_GATING what changes only with a reboot.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.contract.operating_point import SETTINGS, OperatingPoint
from edgemeter.agent.machine.machine import Machine, whole_number
from edgemeter.agent.machine.throttling import CPUS, GPU_DEVICE, is_slowed_to_cool
from edgemeter.agent.operating import board_settings
from edgemeter.agent.operating.board_settings import SettingError, UnknownSettingError

# Where nvpmodel keeps the mode for the next boot: who may not write it may not change the mode.
MODE_FILE = "var/lib/nvpmodel/status"
EMC_CAPS = ("sys/kernel/nvpmodel_clk_cap/emc", "sys/kernel/nvpmodel_emc_cap/emc_iso_cap")

# What a knob was found at: raw values by the file (below the root) or command that they came from.
RawSettings = Mapping[str, str]


class Knob(Protocol):
    """A setting of the board; every method may block while a command of the board runs."""

    # Whether it outlives a reboot; what does not is the kernel's own again.
    survives_boot: bool

    def read(self, machine: Machine) -> dict[str, str]:
        """Return the raw values now, for `put_back`; none where the board has no such setting. Raises SettingError."""
        ...

    def put_back(self, machine: Machine, settings: RawSettings, *, is_begun: bool) -> None:
        """Write raw values as they were found; those that read so already only if a change was begun: what is read may not be all of it.

        Raises SettingError; for a name that is no file of this knob, before it writes anything.
        """
        ...


class SettableKnob(Knob, Protocol):
    """A setting that a case names."""

    def check(self, machine: Machine, value: str) -> None:
        """Check a value, and that it may be written. Raises ConfigError, UnavailableError, SettingError."""
        ...

    def write(self, machine: Machine, value: str) -> str:
        """Write a value that was checked, and return it as read back. Raises SettingError if it was not taken."""
        ...


class PowerModeKnob:
    """The power mode of a Jetson, by nvpmodel."""

    survives_boot = True

    def read(self, machine: Machine) -> dict[str, str]:
        """Return the number of the mode."""
        del machine
        return {"nvpmodel": board_settings.power_mode_now().number} if board_settings.has_power_modes() else {}

    def check(self, machine: Machine, value: str) -> None:
        """Refuse an unknown mode, and one from which the board comes back only by a reboot."""
        if not board_settings.has_power_modes():
            raise UnavailableError(f"power_mode = {value!r} cannot be set here: there is no nvpmodel, which is a Jetson's")
        modes = self._modes(machine)
        mode, now = board_settings.power_mode_of(value, modes), board_settings.power_mode_now()
        gates = {entry.number: entry.gates for entry in modes}
        if gates.get(now.number, mode.gates) != mode.gates:
            raise UnavailableError(
                f"power mode {mode.name!r} needs a reboot from {now.name!r} (it switches other parts of the chip off): "
                f"`sudo nvpmodel -m {mode.number}`, answer yes, and measure then without setting it"
            )
        if mode.number != now.number and (machine.root / MODE_FILE).exists():
            check_rights(machine, f"power mode {mode.name!r}", [MODE_FILE])

    def write(self, machine: Machine, value: str) -> str:
        """Return the name of the mode that was set, in which its clocks are its own."""
        board_settings.set_power_mode(board_settings.power_mode_of(value, self._modes(machine)))
        return board_settings.power_mode_now().name

    def put_back(self, machine: Machine, settings: RawSettings, *, is_begun: bool) -> None:
        """Set the mode of that number: nvpmodel that was ended half way reports the old one, and has switched cores and clocks."""
        if set(settings) - {"nvpmodel"} or not all(value.isdecimal() for value in settings.values()):
            raise SettingError(f"{dict(settings)} is no power mode")
        for number in settings.values():
            if is_begun or board_settings.power_mode_now().number != number:
                names = {mode.number: mode.name for mode in self._modes(machine)}
                board_settings.set_power_mode(board_settings.PowerMode(number, names.get(number, number)))

    def number_of(self, machine: Machine, value: str) -> str:
        """Return the number of a mode that was checked."""
        return board_settings.power_mode_of(value, self._modes(machine)).number

    def _modes(self, machine: Machine) -> list[board_settings.PowerMode]:
        return board_settings.power_modes(machine.root / board_settings.POWER_MODES)


class GovernorKnob:
    """The CPU governor of every policy."""

    survives_boot = False

    def read(self, machine: Machine) -> dict[str, str]:
        """Return the governor of each policy."""
        return {str(path): value for path in self._files(machine) if (value := machine.text(path)) is not None}

    def check(self, machine: Machine, value: str) -> None:
        """Refuse a governor that a policy has not."""
        files = self._files(machine)
        if not files:
            raise UnavailableError(f"governor = {value!r} cannot be set here: the kernel has no CPU governors, as in a virtual machine")
        board_settings.check_governor([machine.root / path for path in files], value)
        check_rights(machine, f"governor {value!r}", files)

    def write(self, machine: Machine, value: str) -> str:
        """Return the governor of all policies."""
        files = self._files(machine)
        for path in files:
            board_settings.write(machine.root / path, value)
        for path in files:
            if (now := machine.text(path)) != value:
                raise SettingError(f"the kernel did not take governor {value!r}: {str(path)!r} reads {now!r}: end what sets it too")
        return value

    def put_back(self, machine: Machine, settings: RawSettings, *, is_begun: bool) -> None:
        """Write the governors."""
        put_files_back(machine, settings, ("scaling_governor",), f"{CPUS}/", is_begun=is_begun)

    def _files(self, machine: Machine) -> list[Path]:
        return [path.relative_to(machine.root) for path in board_settings.governor_files(machine.root / "sys")]


class ClockKnob:
    """The highest and lowest clocks of all CPUs, of the GPU, or of the memory, which a power mode overwrites."""

    survives_boot = False

    def __init__(self, paths: Callable[[Machine], Iterator[Path]]) -> None:
        self._paths = paths

    def read(self, machine: Machine) -> dict[str, str]:
        """Return the raw value of each file."""
        return {str(path): value for path in self._paths(machine) if (value := machine.text(path)) is not None}

    def put_back(self, machine: Machine, settings: RawSettings, *, is_begun: bool) -> None:
        """Write lowest and highest clock of each device, then what `userspace` runs at."""
        of_cpus = ("scaling_max_freq", "scaling_min_freq", "scaling_setspeed")
        names = (*of_cpus, "max_freq", "min_freq", *(Path(path).name for path in EMC_CAPS))
        put_files_back(machine, settings, names, f"{CPUS}/", "sys/class/devfreq/", *EMC_CAPS, is_begun=is_begun)


def _cpu_clocks(machine: Machine) -> Iterator[Path]:
    policies = [
        policy for policy in machine.find(f"{CPUS}/cpufreq/policy[0-9]*") if machine.number(policy / "scaling_max_freq") is not None
    ]
    for policy in policies:
        yield from (policy / "scaling_min_freq", policy / "scaling_max_freq")
    # What the governor `userspace` runs at has to lie between them.
    yield from (path for policy in policies if machine.number(path := policy / "scaling_setspeed") is not None)


def _gpu_clocks(machine: Machine) -> Iterator[Path]:
    return _devfreq_clocks(machine, lambda name: bool(GPU_DEVICE.search(name)))


def _memory_clocks(machine: Machine) -> Iterator[Path]:
    # Rockchip's memory controller.
    yield from _devfreq_clocks(machine, lambda name: name.endswith("dmc"))
    # A kernel that has both names has one cap.
    yield from [Path(cap) for cap in EMC_CAPS if machine.number(cap) is not None][:1]


def _devfreq_clocks(machine: Machine, is_meant: Callable[[str], bool]) -> Iterator[Path]:
    for device in machine.find("sys/class/devfreq/*"):
        if is_meant(device.name) and machine.text(device / "max_freq") is not None:
            yield from (device / "min_freq", device / "max_freq")


def write_all(machine: Machine, values: RawSettings) -> None:
    """Write raw values to files, those of one device together; raises SettingError once all are tried.

    In two rounds if need be: the kernel refuses a highest clock below the lowest, and which has to be first depends on what they were.
    """
    error: SettingError | None = None
    for _ in range(2):
        error = None
        for name, value in values.items():
            try:
                board_settings.write(machine.root / name, value)
            except SettingError as refusal:
                error = error or refusal
        if error is None and all(machine.text(name) == value for name, value in values.items()):
            return
    if error is not None:
        raise error


def put_files_back(machine: Machine, settings: RawSettings, names: tuple[str, ...], *above: str, is_begun: bool) -> None:
    """Write raw values to files of these names below these folders, and check that they are read back.

    What reads so already is written too if a change was begun: a limit on top of it, as to cool the chip, may hide what was asked for.

    Raises:
        SettingError: a name or value is none of a setting's (nothing is written then), a file does not take its value, or is gone, as of a
            CPU that is switched off: it would come back with the changed one.
    """
    for name, value in settings.items():
        path = Path(name)
        if path.name not in names or ".." in path.parts or not name.startswith(above) or not value.replace("_", "").isalnum():
            raise SettingError(f"{name!r} = {value!r} is no setting of a board")
    present = {name: value for name, value in settings.items() if (machine.root / name).exists()}
    write_all(machine, {name: value for name, value in present.items() if is_begun or machine.text(name) != value})
    for name, value in present.items():
        # While it cools the chip, the kernel reports a lower clock than the one that was written.
        is_capped = is_slowed_to_cool(machine) and (machine.number(name) or math.inf) <= (whole_number(value) or 0)
        if (now := machine.text(name)) != value and not is_capped:
            raise SettingError(f"{name!r} reads {now!r} after {value!r} was written")
    if absent := sorted({*settings} - {*present}):
        raise SettingError(f"{absent[0]!r} is gone, and was {settings[absent[0]]!r}: switch its CPU on, or reboot")


def check_rights(machine: Machine, label: str, files: "list[Path] | list[str]") -> None:
    """Check that this user may write the files; raises UnavailableError if not."""
    for path in files:
        if not os.access(machine.root / path, os.W_OK):
            raise UnavailableError(f"{label} cannot be set here: no right to write {str(machine.root / path)!r}: run it as root (`sudo`)")


POWER_MODE = PowerModeKnob()
SETTABLE: Mapping[str, SettableKnob] = {"power_mode": POWER_MODE, "governor": GovernorKnob()}
KNOBS: Mapping[str, Knob] = {
    **SETTABLE,
    "cpu_clocks": ClockKnob(_cpu_clocks),
    "gpu_clocks": ClockKnob(_gpu_clocks),
    "memory_clocks": ClockKnob(_memory_clocks),
}


def settings_of(point: OperatingPoint) -> dict[str, str]:
    """Return the settings that a point names, in the order in which they are written: a power mode sets clocks itself."""
    return {name: value for name in SETTINGS if (value := getattr(point, name)) is not None}


def check_setting(machine: Machine, setting: str, value: str) -> None:
    """Check one setting; raises ConfigError if the board does not know the value, UnavailableError if it cannot be set."""
    try:
        SETTABLE[setting].check(machine, value)
    except UnknownSettingError as error:
        raise ConfigError(f"{error}") from error
    except SettingError as error:
        raise UnavailableError(f"{setting} cannot be set here: {error}") from error
