"""A recording of what a sensor reads, as people attach it to bug reports: the world in which our readers run on it.

A folder is a tree laid out as `/`; one that holds only `hwmonN` or `intel-rapl:N`, or the files of one such device, is put in its
place. A file is what a command printed, what a meter answered, or its bytes; or a shell's transcript of files that were shown, whose
tree is built.
"""

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent import power
from edgemeter.agent.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.agent.power import AbsentError, Description, PowerSensor, Reading, sysfs_file
from edgemeter.agent.power.detect import rank
from edgemeter.agent.power.world import Printed, Stream, World

# Above this a file is no recording of a sensor, and would only fill the memory.
LARGEST_BYTES = 64 << 20
ROOT_FOLDERS = frozenset({"sys", "proc", "dev", "etc", "run"})
# Where a folder belongs that was recorded without those above it.
PLACES = (
    (re.compile(r"intel-rapl(-mmio)?:\d+(:\d+)?"), "sys/class/powercap"),
    (re.compile(r"hwmon\d+"), "sys/class/hwmon"),
    (re.compile(r"thermal_zone\d+"), "sys/class/thermal"),
    (re.compile(r"ina3221x?"), "sys/bus/i2c/drivers"),
    (re.compile(r"\d+-00[0-7][0-9a-f]"), "sys/bus/i2c/devices"),
    (re.compile(r"iio:device\d+"), "sys/bus/iio/devices"),
    (re.compile(r"class|bus|devices|firmware"), "sys"),
    (re.compile(r"BAT\d+"), "sys/class/power_supply"),
)
DEVICE_FILES = (
    (re.compile(r"(in|curr|power|energy)\d+_(input|average)"), "sys/class/hwmon/hwmon0"),
    (re.compile(r"rail_name_\d"), "sys/bus/i2c/drivers/ina3221x/0-0040/iio:device0"),
    (re.compile(r"(energy|voltage|current|power)_now"), "sys/class/power_supply/recorded"),
    (re.compile(r"energy_uj|max_energy_range_uj"), "sys/class/powercap/intel-rapl:0"),
)
# `$ cat /sys/class/hwmon/hwmon2/{in0_input,name}` and the values below it, a line each.
SHOWN = re.compile(r"^(?:[^\n]*[$#]\s)?[^\n/]*\b(?:cat|head|tail)\s+(?P<paths>/.*)$")
BRACES = re.compile(r"\{([^{}]*)\}")
# What `grep . /sys/class/hwmon/hwmon2/*` and `tail -n +1` print.
NAMED_LINE = re.compile(r"^(?P<path>/(?:sys|proc|dev|etc)/(?:[^\s/]*[^\s/:]/)*[^\s/:]+):\s?(?P<value>.*)$")
# What `cat` and the like say of a file that they may not read, or whose driver gives no value.
REFUSED = re.compile(r"^(?:cat|grep|head|tail): (?:(?:cannot open|error reading) ')?(?P<path>/[^\s']+)'?(?: for reading)?: (?P<why>[^:]+)$")
# `grep . *` within a chip's folder, or in the one above it.
SHORT_LINE = re.compile(
    r"^(?:\./)?(?P<file>(?:hwmon\d+/)?(?:name|label|shunt_resistor|update_interval|(?:in|curr|power|energy)\d+_[a-z]+)):\s?(?P<value>.*)$"
)
# A power supply's uevent holds a line for each property.
UEVENT_LINE = re.compile(r"^POWER_SUPPLY_[A-Z_]+=")
UEVENT_PLACE = "/sys/class/power_supply/recorded/uevent"
HEADED = re.compile(r"^==> (?P<path>/\S+) <==$")


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one sensor said of a recording."""

    name: str
    description: Description
    reading: Reading


class Recording:
    """A recording, open; leave the context to give its temporary tree back.

    Raises:
        ConfigError: there is nothing at the path that can be read.
    """

    def __init__(self, path: Path) -> None:
        self._kept: tempfile.TemporaryDirectory[str] | None = None
        self._path = path
        try:
            self.world = self._tree(path) if path.is_dir() else self._file(path)
        except ConfigError:
            self._give_back()
            raise

    def __enter__(self) -> "Recording":  # noqa: PYI034 - Self is not in Python 3.10
        return self

    def __exit__(self, *_: object) -> None:
        self._give_back()

    def read(self, name: str | None = None) -> Recorded:
        """Return what the sensor `name`, or the one that knows this form, says of the recording.

        Raises:
            ConfigError: no sensor knows it.
            UnavailableError, TransientError: the recording is of a sensor that could not be read; says why.
        """
        if name is not None:
            return self._read(name)
        return self._widest() if self.world.content is None else self._recognised(self.world.content)

    def _recognised(self, content: bytes) -> Recorded:
        if not content.strip():
            message = f"the recording {str(self._path)!r} is empty: record it again"
            raise UnavailableError(message)
        names = [name for name in power.SENSORS if power.sensor_class(name).recognises(content)]
        if not names:
            message = f"no sensor knows what {str(self._path)!r} is: name one with --as ({', '.join(power.names())})"
            raise ConfigError(message)
        return self._read(names[0])

    def _widest(self) -> Recorded:
        found, reasons = [], []
        for name in power.SENSORS:
            try:
                found.append(self._read(name))
            except AbsentError:
                continue
            except ConfigError:
                continue
            except EdgemeterError as error:
                reasons.append(error)
        if found:
            return min(found, key=lambda one: (one.description.blocked is not None, rank(one.description.scope)))
        if reasons:
            raise reasons[0]
        message = f"there is no power sensor in the tree {str(self._path)!r}: it must be laid out as / (sys/class/hwmon/...)"
        raise UnavailableError(message)

    def _read(self, name: str) -> Recorded:
        sensor: PowerSensor = power.create(name, world=self.world)
        try:
            return Recorded(name, sensor.describe(), sensor.read())
        except EdgemeterError as error:
            if self._kept is None:
                raise
            # Where our tree of links lies says nothing to whoever sent the recording.
            raise type(error)(str(error).replace(self._kept.name, "")) from error
        finally:
            sensor.close()

    def _tree(self, path: Path) -> World:
        children = {child.name for child in path.iterdir()}
        if children & ROOT_FOLDERS:
            return _world_of_tree(path)
        for pattern, place in PLACES:
            if pattern.fullmatch(path.resolve().name):
                return _world_of_tree(self._linked(f"{place}/{path.resolve().name}", path))
            if any(pattern.fullmatch(child) for child in children):
                return _world_of_tree(self._linked(place, path))
        for pattern, place in DEVICE_FILES:
            if any(pattern.fullmatch(child) for child in children):
                return _world_of_tree(self._linked(place, path))
        return _world_of_tree(path)

    def _file(self, path: Path) -> World:
        try:
            with path.open("rb") as file:
                content = file.read(LARGEST_BYTES + 1)
        except OSError as error:
            message = f"cannot read the recording {str(path)!r}: {error.strerror}: correct the path"
            raise ConfigError(message) from error
        if len(content) > LARGEST_BYTES:
            message = f"{str(path)!r} is larger than {LARGEST_BYTES >> 20} MiB: cut the part that shows the sensor"
            raise ConfigError(message)
        shown = files_shown(content.decode(errors="replace"))
        if shown:
            return _world_of_tree(self._built(shown))
        return _world_of_file(path, content)

    def _linked(self, place: str, path: Path) -> Path:
        at = self._folder() / place
        at.parent.mkdir(parents=True, exist_ok=True)
        at.symlink_to(path.resolve())
        return self._folder()

    def _built(self, files: dict[str, str]) -> Path:
        root = self._folder()
        for name, value in files.items():
            file = root / name.lstrip("/")
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(value + "\n")
            except OSError as error:
                message = f"the transcript {str(self._path)!r} shows {name!r} as a file and as a folder: cut it to one machine's"
                raise ConfigError(message) from error
        return root

    def _give_back(self) -> None:
        if self._kept is not None:
            self._kept.cleanup()

    def _folder(self) -> Path:
        if self._kept is None:
            self._kept = tempfile.TemporaryDirectory(prefix="edgemeter-recording-")
        return Path(self._kept.name)


def files_shown(text: str) -> dict[str, str]:
    """Return the files that a shell's transcript shows, path: content; empty where it is no such transcript."""
    lines = text.splitlines()
    files: dict[str, str] = {}
    short: dict[str, str] = {}
    waiting: list[str] = []
    uevent = UEVENT_PLACE
    for line in lines:
        if (shown := SHOWN.match(line)) or (shown := HEADED.match(line)):
            # A shell's user writes iio\:device0.
            paths = (shown.groupdict().get("paths") or shown.group("path")).replace("\\", "")
            waiting = [path for word in paths.split() for path in _expanded(word) if _is_safe(path)]
        elif (refused := REFUSED.match(line)) and _is_safe(refused.group("path")):
            if refused.group("why").encode() in sysfs_file.ERRORS:
                files[refused.group("path")] = line
            waiting = [path for path in waiting if path != refused.group("path")]
        elif (named := NAMED_LINE.match(line)) and _is_safe(named.group("path")):
            files[named.group("path")] = named.group("value")
        elif UEVENT_LINE.match(line):
            uevent = waiting.pop(0) if waiting else uevent
            files[uevent] = f"{files[uevent]}\n{line}" if uevent in files else line
        elif not waiting and (value := SHORT_LINE.match(line)):
            file = value.group("file")
            short[f"/sys/class/hwmon/{file}" if "/" in file else f"/sys/class/hwmon/hwmon0/{file}"] = value.group("value")
        elif waiting and line.strip():
            files[waiting.pop(0)] = line
    # A line like `name: x` stands in any text; one like `in1_input:5000` does not.
    return files | short if any(path.endswith(("_input", "_average")) for path in short) else files


def _expanded(word: str) -> list[str]:
    braces = BRACES.search(word)
    if braces is None:
        return [word]
    return [path for part in braces.group(1).split(",") for path in _expanded(word[: braces.start()] + part + word[braces.end() :])]


def _is_safe(path: str) -> bool:
    return path.startswith(("/sys/", "/proc/", "/dev/", "/etc/")) and ".." not in path.split("/") and "\0" not in path and len(path) < 250


def _world_of_tree(root: Path) -> World:
    return World(root, _no_command, _no_stream, None)


def _world_of_file(path: Path, content: bytes) -> World:
    text = content.decode(errors="replace")
    # Nothing lies below a file: whatever looks for a tree finds it absent.
    return World(path, lambda _: Printed(text), lambda _: _Lines(text), content)


def _no_command(arguments: Sequence[str]) -> Printed:
    message = f"there is no command {arguments[0]!r} in a recorded tree: record what it prints as a file"
    raise AbsentError(message)


def _no_stream(arguments: Sequence[str]) -> Stream:
    message = f"there is no command {arguments[0]!r} in a recorded tree: record what it prints as a file"
    raise AbsentError(message)


class _Lines:
    """The lines of a recording, each once, as the command printed them."""

    def __init__(self, text: str) -> None:
        self._lines = iter(text.splitlines())

    def line(self, timeout_s: float) -> str:  # noqa: ARG002 - a recording keeps nobody waiting
        """Return the next line."""
        for line in self._lines:
            return line
        message = "the recording is at its end"
        raise UnavailableError(message)

    def close(self) -> None:
        """Leave the rest unread."""
