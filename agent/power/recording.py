"""A recording of what a sensor reads, as people attach it to bug reports: the world in which our readers run on it.

A recording is a tree of files, a file with what a command printed, or a shell's transcript of small files
(`cat`, `head`, `tail`, `grep .`).
"""

import codecs
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from edgemeter.agent import power
from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.agent.power import AbsentError, Description, PowerSensor, Reading
from edgemeter.agent.power.detect import scope_rank
from edgemeter.agent.power.sysfs import ERRNO_OF_TEXT
from edgemeter.agent.power.world import CommandOutput, SensorWorld

ROOT_FOLDERS = frozenset({"sys", "proc", "dev", "etc", "run"})
FOLDER_PLACES = (
    (re.compile(r"intel-rapl(-mmio)?:\d+(:\d+)?"), "sys/class/powercap"),
    (re.compile(r"hwmon\d+"), "sys/class/hwmon"),
    (re.compile(r"thermal_zone\d+"), "sys/class/thermal"),
    (re.compile(r"ina3221x?"), "sys/bus/i2c/drivers"),
    (re.compile(r"\d+-00[0-7][0-9a-f]"), "sys/bus/i2c/devices"),
    (re.compile(r"iio:device\d+"), "sys/bus/iio/devices"),
    (re.compile(r"class|bus|devices|firmware"), "sys"),
    (re.compile(r"BAT\d+"), "sys/class/power_supply"),
)
FILE_PLACES = (
    (re.compile(r"(in|curr|power|energy)\d+_(input|average)"), "sys/class/hwmon/hwmon0"),
    (re.compile(r"rail_name_\d"), "sys/bus/i2c/drivers/ina3221x/0-0040/iio:device0"),
    (re.compile(r"(energy|voltage|current|power)_now"), "sys/class/power_supply/recorded"),
    (re.compile(r"energy_uj|max_energy_range_uj"), "sys/class/powercap/intel-rapl:0"),
)


def place_of_folder(name: str) -> str | None:
    """Return the folder in which one of that name lies, None of any other."""
    return next((folder for pattern, folder in FOLDER_PLACES if pattern.fullmatch(name)), None)


def place_of_files(names: Iterable[str]) -> str | None:
    """Return the folder of the device that has files of these names, None if there is no such place."""
    file_names = set(names)
    return next((folder for pattern, folder in FILE_PLACES if any(map(pattern.fullmatch, file_names))), None)


# `$ cat /sys/class/hwmon/hwmon2/{in0_input,name}` and the values below it, a line each.
SHOWN = re.compile(r"^(?:[^\n]*[$#]\s)?[^\n/]*\b(?:cat|head|tail)\s+(?P<words>/.*)$")
# `pi@pi:/sys/class/hwmon/hwmon2$ cat name in1_input`, and `$ cd /sys/class/hwmon/hwmon2 && cat name`.
WITHIN = re.compile(
    r"^(?:[^\n]*?(?::(?P<prompt>/[^\s$#]*))?\s*[$#]\s+)?(?:cd\s+(?P<cd>/[^\s;&]*)\s*(?:&&\s*|;\s*|$))?"
    r"(?:(?:sudo\s+)?(?:cat|head|tail)\s+(?P<words>[\w{][^|;&<>*?]*))?$"
)
BRACES = re.compile(r"\{([^{}]*)\}")
# What `grep . /sys/class/hwmon/hwmon2/*` and `tail -n +1` print.
NAMED_LINE = re.compile(r"^(?P<path>/(?:sys|proc|dev|etc)/(?:[^\s/]*[^\s/:]/)*[^\s/:]+):\s?(?P<value>.*)$")
# What `cat` and the like print for a file that they may not read, or whose driver gives no value.
REFUSED = re.compile(r"^(?:cat|grep|head|tail): (?:(?:cannot open|error reading) ')?(?P<path>[^\s']+)'?(?: for reading)?: (?P<why>[^:]+)$")
NUMBER = re.compile(r"\s*-?\d+\s*")
# The same within a device's folder, or in the one above it.
SHORT = (
    r"(?:\./)?(?P<file>(?:(?:hwmon\d+|BAT\d+|iio:device\d+|intel-rapl:\d+(?::\d+)?)/)?(?:name|label|type|status|present|scope|online|capacity"
    r"|shunt_resistor|update_interval|(?:in|curr|power|energy|shunt)\d+_[a-z]+(?:_interval)?|rail_name_\d|in_[a-z]+\d_input"
    r"|energy_uj|max_energy_range_uj|(?:power|energy|current|voltage|charge)_now))"
)
SHORT_LINE = re.compile(rf"^{SHORT}:\s?(?P<value>.*)$")
SHORT_HEADED = re.compile(rf"^==> {SHORT} <==$")
# A power supply's uevent holds a line for each property.
UEVENT_LINE = re.compile(r"^POWER_SUPPLY_(?:NAME=(?P<name>[^/\s]+)|[A-Z_]+=)")
UEVENT_PLACE = "/sys/class/power_supply/{}/uevent"
HEADED = re.compile(r"^==> (?P<words>/\S+) <==$")
LONGEST_PATH, LONGEST_LINE = 250, 4096
MISCOUNTED = "the transcript shows {} files by one command and {} values: which is whose is not known; record it whole, or file by file"


def files_shown(text: str) -> dict[str, str]:
    """Return the files that a shell's transcript shows, path: content; empty if it is not such a transcript.

    Raises:
        ConfigError: which value is which file's is not known, as some are missing or there are too many.
    """
    transcript = _Transcript()
    for line in text.splitlines():
        # No file of the kernel is longer than a page.
        if len(line) <= LONGEST_LINE:
            transcript.take(line)
    transcript.check_whole()
    return transcript.files | transcript.placed()


class _Transcript:
    """The result of the lines so far."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self._short: dict[str, str] = {}
        # The files whose values are to come, the next first; one without a folder is not in a tree yet.
        self._waiting: list[str] = []
        self._asked = 0
        self._folder: str | None = None
        self._uevent = UEVENT_PLACE.format("recorded")

    def take(self, line: str) -> None:
        if self._is_command(line):
            return
        if (refused := REFUSED.match(line)) and _is_safe(path := self._whole(refused.group("path"))):
            if refused.group("why").encode() in ERRNO_OF_TEXT:
                self.files[path] = line
            self._waiting = [other for other in self._waiting if other != path]
        elif (named := NAMED_LINE.match(line)) and _is_safe(named.group("path")):
            path, value = named.group("path"), named.group("value")
            if UEVENT_LINE.match(value):
                self._add(path, value)
            else:
                self.files[path] = value
        elif property_line := UEVENT_LINE.match(line):
            self._uevent = self._waiting.pop(0) if self._waiting else self._uevent
            # Several may stand one after the other: each begins with its name.
            self._uevent = UEVENT_PLACE.format(property_line["name"]) if property_line["name"] else self._uevent
            self._add(self._uevent, line)
        elif not self._waiting and (value := SHORT_LINE.match(line)):
            self._short[value.group("file")] = value.group("value")
        elif self._waiting and line.strip():
            path = self._waiting.pop(0)
            (self.files if path.startswith("/") else self._short)[path] = line
        elif self._asked > 1 and NUMBER.fullmatch(line):
            raise ConfigError(MISCOUNTED.format(self._asked, "more"))

    def check_whole(self) -> None:
        """See that each file of the last command had its value, or none of them."""
        if 0 < len(self._waiting) < self._asked:
            raise ConfigError(MISCOUNTED.format(self._asked, "fewer"))

    def placed(self) -> dict[str, str]:
        """Return the files that were shown without their folder, in the place where those of their names lie."""
        # A line like `name: x` occurs in any text; one like `in1_input:5000` does not.
        folder = place_of_files(path.rpartition("/")[2] for path in self._short)
        if folder is None:
            return {}
        placed = {}
        for path, value in self._short.items():
            own_folder, _, file = path.rpartition("/")
            above = place_of_folder(own_folder)
            placed[f"/{above}/{own_folder}/{file}" if above else f"/{folder}/{file}"] = value
        return placed

    def _add(self, path: str, line: str) -> None:
        self.files[path] = f"{self.files[path]}\n{line}" if path in self.files else line

    def _is_command(self, line: str) -> bool:
        """Return whether the line shows no value but a command: which values follow, or the folder."""
        if command := SHOWN.match(line) or HEADED.match(line):
            # A shell's user writes iio\:device0.
            words = command.group("words").replace("\\", "").split()
            self._wait_for(path for word in words for path in _expanded(word))
        elif command := SHORT_HEADED.match(line):
            self._waiting, self._asked = [command.group("file")], 1
        elif (within := WITHIN.match(line)) and any(within.groups()):
            self._folder = within["cd"] or within["prompt"] or self._folder
            words = (within["words"] or "").replace("\\", "").split()
            self._wait_for(self._whole(path) for word in words for path in _expanded(word))
        else:
            return False
        return True

    def _wait_for(self, paths: Iterable[str]) -> None:
        self.check_whole()
        self._waiting = [path for path in paths if _is_safe(path)]
        self._asked = len(self._waiting)

    def _whole(self, path: str) -> str:
        return f"{self._folder}/{path}" if self._folder and not path.startswith("/") else path


def _expanded(word: str) -> list[str]:
    braces = BRACES.search(word)
    if braces is None:
        return [word]
    return [path for part in braces.group(1).split(",") for path in _expanded(word[: braces.start()] + part + word[braces.end() :])]


def _is_safe(path: str) -> bool:
    return (
        path.startswith(("/sys/", "/proc/", "/dev/", "/etc/"))
        and ".." not in path.split("/")
        and "\0" not in path
        and len(path) < LONGEST_PATH
    )


# Above this a file is not a recording of a sensor, and would only fill the memory.
LARGEST_BYTES = 64 << 20
# What a text begins with that a Windows shell has written.
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
HEX = re.compile(rb"(?:[0-9a-fA-F]{2}\s*)+")


@dataclass(frozen=True, slots=True)
class RecordedSensor:
    """The readings of one sensor from a recording."""

    name: str
    description: Description
    reading: Reading


class PowerRecording(AbstractContextManager["PowerRecording"]):
    """A recording, open; leave the context to remove its temporary tree. `settings` are those of the sensors on the recorded machine.

    Raises:
        ConfigError: there is nothing at the path that can be read.
    """

    def __init__(self, path: Path, settings: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self._settings = settings or {}
        self._kept: tempfile.TemporaryDirectory[str] | None = None
        self._path = path
        try:
            self.world = self._tree(path) if path.is_dir() else self._file(path)
        except ConfigError:
            self._remove()
            raise
        except OSError as error:
            self._remove()
            raise ConfigError(f"cannot read the recording {str(path)!r}: {error.strerror}: correct the path or its permissions") from error

    def __exit__(self, *_: object) -> None:
        self._remove()

    def read(self, name: str | None = None) -> RecordedSensor:
        """Return what the sensor `name`, or the one that recognises this form, reads from the recording."""
        if name is not None:
            return self._read(name)
        return self._widest() if self.world.content is None else self._recognised(self.world.content)

    def _recognised(self, content: bytes) -> RecordedSensor:
        if not content.strip():
            raise UnavailableError(f"the recording {str(self._path)!r} is empty: record it again")
        names = [name for name in power.SENSORS if power.sensor_class(name).recognises(content)]
        if not names:
            raise ConfigError(f"no sensor recognises {str(self._path)!r}: name one with --as ({', '.join(power.names())})")
        return self._read(names[0])

    def _widest(self) -> RecordedSensor:
        sensors, reasons = [], []
        for name in power.SENSORS:
            try:
                sensors.append(self._read(name))
            except AbsentError:
                continue
            except EdgemeterError as error:
                # What lacks a setting is not in the tree; what has a wrong one may be.
                if name in self._settings or not isinstance(error, ConfigError):
                    reasons.append(error)
        if sensors:
            return min(sensors, key=lambda sensor: (sensor.description.blocked is not None, scope_rank(sensor.description.scope)))
        if reasons:
            raise reasons[0]
        raise UnavailableError(f"there is no power sensor in the tree {str(self._path)!r}: it must be laid out as / (sys/class/hwmon/...)")

    def _read(self, name: str) -> RecordedSensor:
        # The recording stands for the file that a replay is configured with.
        settings = {key: value for key, value in self._settings.get(name, {}).items() if key != "path"}
        sensor: PowerSensor = power.create(name, **settings, world=self.world)
        try:
            description = sensor.describe()
            warnings = tuple(map(self._without_folder, description.warnings))
            blocked = None if description.blocked is None else self._without_folder(description.blocked)
            return RecordedSensor(name, replace(description, warnings=warnings, blocked=blocked), sensor.read())
        except EdgemeterError as error:
            if self._kept is None:
                raise
            raise type(error)(self._without_folder(str(error))) from error
        finally:
            sensor.close()

    def _without_folder(self, message: str) -> str:
        # The place of our temporary tree means nothing to the person who sent the recording.
        return message if self._kept is None else message.replace(self._kept.name, "")

    def _tree(self, path: Path) -> SensorWorld:
        children = {child.name for child in path.iterdir()}
        name = path.resolve().name
        if children & ROOT_FOLDERS:
            return _world_of_tree(path)
        # As an archive is unpacked into a folder of its own.
        if len(children) == 1 and any((path / child / root).is_dir() for child in children for root in ROOT_FOLDERS):
            return _world_of_tree(path / children.pop())
        if above := place_of_folder(name):
            return _world_of_tree(self._linked(f"{above}/{name}", path))
        folder = next(filter(None, map(place_of_folder, sorted(children))), None) or place_of_files(children)
        return _world_of_tree(self._linked(folder, path) if folder else path)

    def _file(self, path: Path) -> SensorWorld:
        with path.open("rb") as file:
            content = file.read(LARGEST_BYTES + 1)
        if len(content) > LARGEST_BYTES:
            raise ConfigError(f"{str(path)!r} is larger than {LARGEST_BYTES >> 20} MiB: cut the part that shows the sensor")
        if content.startswith(UTF_16):
            content = content.decode("utf-16", errors="replace").encode()
        if HEX.fullmatch(content):
            # Bytes as people put them into a text.
            content = bytes.fromhex(content.decode())
        text = content.decode(errors="replace")
        if files := files_shown(text):
            return _world_of_tree(self._built(files))
        # Nothing lies below a file: whatever looks for a tree finds it absent.
        return SensorWorld(path, lambda _: CommandOutput(text), lambda _: _Lines(text), content)

    def _linked(self, folder: str, path: Path) -> Path:
        at = self._folder() / folder
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
                raise ConfigError(
                    f"the transcript {str(self._path)!r} shows {name!r} as a file and as a folder: keep the files of one machine"
                ) from error
        return root

    def _remove(self) -> None:
        if self._kept is not None:
            self._kept.cleanup()

    def _folder(self) -> Path:
        if self._kept is None:
            self._kept = tempfile.TemporaryDirectory(prefix="edgemeter-recording-")
        return Path(self._kept.name)


def _world_of_tree(root: Path) -> SensorWorld:
    return SensorWorld(root, _no_command, _no_command, None)


def _no_command(arguments: Sequence[str]) -> NoReturn:
    raise AbsentError(f"there is no command {arguments[0]!r} in a recorded tree: record what it prints as a file")


class _Lines:
    """The lines of a recording, each once, as the command printed them."""

    def __init__(self, text: str) -> None:
        self._lines = iter(text.splitlines())

    def line(self, timeout_s: float) -> str:  # noqa: ARG002 - a recording keeps nobody waiting
        """Return the next line."""
        for line in self._lines:
            return line
        raise UnavailableError("the recording has ended")

    def close(self) -> None:
        """Leave the rest unread."""
