"""Where a folder or a file belongs that was recorded without the folders above it."""

import re
from collections.abc import Iterable

ROOT_FOLDERS = frozenset({"sys", "proc", "dev", "etc", "run"})
FOLDERS = (
    (re.compile(r"intel-rapl(-mmio)?:\d+(:\d+)?"), "sys/class/powercap"),
    (re.compile(r"hwmon\d+"), "sys/class/hwmon"),
    (re.compile(r"thermal_zone\d+"), "sys/class/thermal"),
    (re.compile(r"ina3221x?"), "sys/bus/i2c/drivers"),
    (re.compile(r"\d+-00[0-7][0-9a-f]"), "sys/bus/i2c/devices"),
    (re.compile(r"iio:device\d+"), "sys/bus/iio/devices"),
    (re.compile(r"class|bus|devices|firmware"), "sys"),
    (re.compile(r"BAT\d+"), "sys/class/power_supply"),
)
FILES = (
    (re.compile(r"(in|curr|power|energy)\d+_(input|average)"), "sys/class/hwmon/hwmon0"),
    (re.compile(r"rail_name_\d"), "sys/bus/i2c/drivers/ina3221x/0-0040/iio:device0"),
    (re.compile(r"(energy|voltage|current|power)_now"), "sys/class/power_supply/recorded"),
    (re.compile(r"energy_uj|max_energy_range_uj"), "sys/class/powercap/intel-rapl:0"),
)


def of_folder(name: str) -> str | None:
    """Return the folder in which one of that name lies, None of any other."""
    return next((place for pattern, place in FOLDERS if pattern.fullmatch(name)), None)


def of_files(names: Iterable[str]) -> str | None:
    """Return the folder of the device that has files of these names, None where they tell none."""
    known = set(names)
    return next((place for pattern, place in FILES if any(map(pattern.fullmatch, known))), None)
