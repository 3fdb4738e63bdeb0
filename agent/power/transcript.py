"""A shell's transcript of small files that were shown: `cat`, `head`, `tail`, `grep .`; and which files of which tree it shows."""

import re
from collections.abc import Iterable

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.power import places, sysfs_file

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
# What `cat` and the like say of a file that they may not read, or whose driver gives no value.
REFUSED = re.compile(r"^(?:cat|grep|head|tail): (?:(?:cannot open|error reading) ')?(?P<path>[^\s']+)'?(?: for reading)?: (?P<why>[^:]+)$")
NUMBER = re.compile(r"\s*-?\d+\s*")
# The same within a device's folder, or in the one above it.
SHORT = (
    r"(?:\./)?(?P<file>(?:(?:hwmon\d+|BAT\d+|iio:device\d+|intel-rapl:\d+(?::\d+)?)/)?(?:name|label|type|status|present|scope|online|capacity"
    r"|shunt_resistor|update_interval|(?:in|curr|power|energy|shunt)\d+_[a-z]+|rail_name_\d|in_[a-z]+\d_input"
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
    """Return the files that a shell's transcript shows, path: content; empty where it is no such transcript.

    Raises:
        ConfigError: which value is which file's is not known, as some are missing or there are too many.
    """
    found = _Files()
    for line in text.splitlines():
        # No file of the kernel is longer than a page.
        if len(line) <= LONGEST_LINE:
            found.take(line)
    found.check_whole()
    return found.files | found.placed()


class _Files:
    """What the lines so far have shown."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self._short: dict[str, str] = {}
        # The files whose values are to come, the next first; one without a folder is not in a tree yet.
        self._waiting: list[str] = []
        self._asked = 0
        self._folder: str | None = None
        self._uevent = UEVENT_PLACE.format("recorded")

    def take(self, line: str) -> None:
        """Take the next line."""
        if self._is_command(line):
            return
        if (refused := REFUSED.match(line)) and _is_safe(path := self._whole(refused.group("path"))):
            if refused.group("why").encode() in sysfs_file.ERRORS:
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
        """See that each file of the last command had its value, or none of them.

        Raises:
            ConfigError: there were too few.
        """
        if 0 < len(self._waiting) < self._asked:
            raise ConfigError(MISCOUNTED.format(self._asked, "fewer"))

    def placed(self) -> dict[str, str]:
        """Return the files that were shown without their folder, in the place where those of their names lie."""
        # A line like `name: x` stands in any text; one like `in1_input:5000` does not.
        place = places.of_files(path.rpartition("/")[2] for path in self._short)
        if place is None:
            return {}
        return {f"/{_folder_of(path, place)}/{path.rpartition('/')[2]}": value for path, value in self._short.items()}

    def _add(self, path: str, line: str) -> None:
        self.files[path] = f"{self.files[path]}\n{line}" if path in self.files else line

    def _is_command(self, line: str) -> bool:
        """Say whether the line shows no value but tells which come, or where."""
        if shown := SHOWN.match(line) or HEADED.match(line):
            # A shell's user writes iio\:device0.
            words = shown.group("words").replace("\\", "").split()
            self._wait_for(path for word in words for path in _expanded(word))
        elif shown := SHORT_HEADED.match(line):
            self._waiting, self._asked = [shown.group("file")], 1
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


def _folder_of(path: str, place: str) -> str:
    folder = path.rpartition("/")[0]
    above = places.of_folder(folder)
    return f"{above}/{folder}" if above else place


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
