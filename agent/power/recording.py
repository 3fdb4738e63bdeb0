"""A recording of what a sensor reads, as people attach it to bug reports: the world in which our readers run on it.

A folder is a tree laid out as `/`; one that holds only `hwmonN` or `intel-rapl:N`, or the files of one such device, is put in its
place. A file is what a command printed, what a meter answered, or its bytes; or a shell's transcript of files that were shown, whose
tree is built.
"""

import codecs
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from edgemeter.agent import power
from edgemeter.agent.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.agent.power import AbsentError, Description, PowerSensor, Reading, places
from edgemeter.agent.power.detect import rank
from edgemeter.agent.power.transcript import files_shown
from edgemeter.agent.power.world import Printed, Stream, World

# Above this a file is no recording of a sensor, and would only fill the memory.
LARGEST_BYTES = 64 << 20
# What a text begins with that a Windows shell has written.
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
HEX = re.compile(rb"(?:[0-9a-fA-F]{2}\s*)+")


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one sensor said of a recording."""

    name: str
    description: Description
    reading: Reading


class Recording:
    """A recording, open; leave the context to give its temporary tree back. `settings` are those of the sensors on the recorded machine.

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
            self._give_back()
            raise
        except OSError as error:
            self._give_back()
            message = f"cannot read the recording {str(path)!r}: {error.strerror}: correct the path, or its rights"
            raise ConfigError(message) from error

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
            except EdgemeterError as error:
                # What lacks a setting is not in the tree; what has a wrong one may be.
                if name in self._settings or not isinstance(error, ConfigError):
                    reasons.append(error)
        if found:
            return min(found, key=lambda one: (one.description.blocked is not None, rank(one.description.scope)))
        if reasons:
            raise reasons[0]
        message = f"there is no power sensor in the tree {str(self._path)!r}: it must be laid out as / (sys/class/hwmon/...)"
        raise UnavailableError(message)

    def _read(self, name: str) -> Recorded:
        # The recording stands for the file that a replay is told to play.
        settings = {key: value for key, value in self._settings.get(name, {}).items() if key != "path"}
        sensor: PowerSensor = power.create(name, **settings, world=self.world)
        try:
            found = sensor.describe()
            warnings = tuple(map(self._said, found.warnings))
            blocked = None if found.blocked is None else self._said(found.blocked)
            return Recorded(name, replace(found, warnings=warnings, blocked=blocked), sensor.read())
        except EdgemeterError as error:
            if self._kept is None:
                raise
            raise type(error)(self._said(str(error))) from error
        finally:
            sensor.close()

    def _said(self, message: str) -> str:
        # Where our tree of links lies says nothing to whoever sent the recording.
        return message if self._kept is None else message.replace(self._kept.name, "")

    def _tree(self, path: Path) -> World:
        children = {child.name for child in path.iterdir()}
        name = path.resolve().name
        if children & places.ROOT_FOLDERS:
            return _world_of_tree(path)
        # As an archive is unpacked into a folder of its own.
        if len(children) == 1 and any((path / child / root).is_dir() for child in children for root in places.ROOT_FOLDERS):
            return _world_of_tree(path / children.pop())
        if above := places.of_folder(name):
            return _world_of_tree(self._linked(f"{above}/{name}", path))
        place = next(filter(None, map(places.of_folder, sorted(children))), None) or places.of_files(children)
        return _world_of_tree(self._linked(place, path) if place else path)

    def _file(self, path: Path) -> World:
        with path.open("rb") as file:
            content = file.read(LARGEST_BYTES + 1)
        if len(content) > LARGEST_BYTES:
            message = f"{str(path)!r} is larger than {LARGEST_BYTES >> 20} MiB: cut the part that shows the sensor"
            raise ConfigError(message)
        if content.startswith(UTF_16):
            content = content.decode("utf-16", errors="replace").encode()
        if HEX.fullmatch(content):
            # Bytes as people put them into a text.
            content = bytes.fromhex(content.decode())
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
