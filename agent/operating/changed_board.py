"""A board that is set to power modes and governors for a measurement, and put back whatever ends that.

The restore record of what was found is on the disk before the first write; the next command to start puts back what a killed process left.
Clocks are in it too, because a power mode overwrites them. Only the process that holds the run lock changes a board or puts it back;
nvpmodel, which may outlive a process that is killed, inherits the lock.
Source: Linux Documentation/admin-guide/pm/cpufreq.rst, Documentation/ABI/testing/sysfs-class-devfreq.
"""

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import msgspec

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.errors import EdgemeterError, UnavailableError
from edgemeter.agent.base.file_lock import RunLock, run_lock, run_lock_descriptors
from edgemeter.agent.base.progress import warn
from edgemeter.agent.contract.operating_point import OperatingPoint
from edgemeter.agent.machine import clock
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine
from edgemeter.agent.machine.throttling import is_slowed_to_cool
from edgemeter.agent.operating import board_settings
from edgemeter.agent.operating.board_settings import RECORD, SettingError

MODE = "power_mode"
# The settings by name, and their values. Root may find a record in a user's folder: nothing else that it holds is written.
NAMES = (
    rf"\A({MODE}|sys/devices/system/cpu/cpufreq/policy\d+/scaling_(governor|max_freq|min_freq|setspeed)"
    # 17000000.gpu (JetPack 6), .ga10b (5), .gv11b and .gp10b (Xavier, TX2), 57000000.gpu (Nano), gpu-gpc-0 (Thor).
    r"|sys/class/devfreq/[\w.-]*(gpu|\.g[apv]\d+b)[\w.-]*/(max|min)_freq)\Z"
)
VALUES = r"\A\w+\Z"
SettingName = Annotated[str, msgspec.Meta(pattern=NAMES)]
REMEDY = '`sudo -E "$(command -v edgemeter)" doctor` puts them back'


class RestoreRecord(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The settings as found; `written` has all values that process `pid` wrote over them, or was about to."""

    pid: int
    boot_id: str | None
    original: dict[SettingName, Annotated[str, msgspec.Meta(pattern=VALUES)]]
    written: dict[SettingName, set[str]] = {}


def check(points: Collection[OperatingPoint], machine: Machine = THIS_MACHINE) -> None:
    """Check that the board has these modes and governors, and that this user may set them; raises UnavailableError if not."""
    try:
        for point in points:
            files: list[Path] = []
            if point.governor:
                files = board_settings.governor_files(machine.root / "sys")
                board_settings.check_governor(files, point.governor)
            if point.power_mode and board_settings.power_mode_of(point.power_mode, machine.root) != board_settings.power_mode_now()[0]:
                # Where nvpmodel keeps the mode for the next boot.
                files += machine.root.glob("var/lib/nvpmodel/status")
            for path in files:
                if not os.access(path, os.W_OK):
                    raise UnavailableError(f"no right to write {str(path)!r}: run it as root (`sudo -E`), outside of a container")
    except SettingError as error:
        raise UnavailableError(f"the board cannot be set: {error}") from error


def read_settings(machine: Machine) -> dict[str, str]:
    """Return all settings that are put back, by name, as they are now."""
    settings = {}
    with suppress(SettingError):
        settings[MODE] = board_settings.power_mode_now()[0]
    for path in (*machine.find("sys/devices/system/cpu/cpufreq/policy*/scaling_*"), *machine.find("sys/class/devfreq/*/*_freq")):
        if re.match(NAMES, str(path)) and re.match(VALUES, value := machine.text(path) or ""):
            settings[str(path)] = value
    return settings


class ChangedBoard:
    """The board while its settings may differ from those of `record`, which is at `path` from before the first write on."""

    def __init__(self, machine: Machine, path: Path, record: RestoreRecord) -> None:
        self._machine, self._path, self._record = machine, path, record
        # The mode that the board is wholly in: nvpmodel that was ended half way reports the one before.
        self._mode = None if MODE in record.written else record.original.get(MODE)

    def set(self, point: OperatingPoint | None) -> tuple[OperatingPoint, bool]:
        """Set the board to `point` (None: as found) or raise UnavailableError; return it as read back, and whether it was written."""
        point = point or OperatingPoint()
        try:
            is_written = self._apply(point)
            mode = board_settings.power_mode_now()[1] if point.power_mode else None
        except SettingError as error:
            raise UnavailableError(f"the board was not set to {point.words or 'what it was'}: {error}") from error
        return OperatingPoint(power_mode=mode, governor=point.governor), is_written

    def put_back(self) -> None:
        """Put the board back as it was found and remove the record, or raise UnavailableError; twice does no harm."""
        try:
            self._apply(OperatingPoint())
            with suppress(FileNotFoundError):
                self._path.unlink()
                durable_file.sync(self._path.parent)
        except (SettingError, OSError) as error:
            raise UnavailableError(f"the board's settings are not put back ({error}): {REMEDY}") from error

    def _apply(self, point: OperatingPoint) -> bool:
        """Set what `point` names, the rest as found or as another mode has it; return whether it wrote. Raises SettingError after all."""
        now, problems = self._accept_changes_of_others(), dict[str, str]()
        original = self._record.original
        if point.power_mode and MODE not in original:
            raise SettingError("nvpmodel did not report the mode to which it would be put back")
        mode = board_settings.power_mode_of(point.power_mode, self._machine.root) if point.power_mode else original.get(MODE)
        is_entered = not mode == self._mode == now.get(MODE)
        if mode and is_entered:
            self._note({MODE: mode})
            self._mode = None
            try:
                board_settings.set_power_mode(mode)
                self._mode = mode
            except SettingError as error:
                problems[MODE] = str(error)
            now = read_settings(self._machine)
        values = {name: value for name in now if name.endswith("governor") and (value := point.governor or original.get(name))}
        if mode == original.get(MODE):
            # What a mode and a governor overwrite. Governors of CPUs that are off now fail: the CPUs would come back with what was written.
            endings = ("_freq",) * is_entered + ("setspeed", "governor") * (not point.governor)
            values |= {name: value for name, value in original.items() if name.endswith(endings)}
        # By name: governor and limits come before the clock of `userspace`.
        changes = {name: value for name, value in sorted(values.items()) if is_entered or now.get(name) != value}
        self._note(changes)
        # In two rounds: the kernel refuses a highest clock below the lowest.
        for name, value in [*changes.items()] * 2:
            try:
                board_settings.write(self._machine.root / name, value)
                problems.pop(name, None)
            except SettingError as error:
                problems[name] = str(error)
        if problems:
            raise SettingError("; ".join(problems.values()))
        return is_entered or bool(changes)

    def _accept_changes_of_others(self) -> dict[str, str]:
        """Let what somebody else has set meanwhile be what the board is put back to, and say so; return the settings now."""
        now, record = read_settings(self._machine), self._record
        for name in [name for name in now if name == MODE or name.endswith("governor")]:
            if now[name] not in {record.original.get(name, now[name]), *record.written.get(name, ())}:
                warn(f"somebody else has set {name} to {now[name]}: the board is put back to that, not to {record.original[name]}")
                if name == MODE:
                    # It has clocks of its own.
                    record.original = {other: value for other, value in record.original.items() if not other.endswith("_freq")}
                    self._mode = now[name]
                record.original[name] = now[name]
                durable_file.write_struct(self._path, record)
        return now

    def _note(self, values: Mapping[str, str]) -> None:
        """Put in the record, before it is done, what is written."""
        original, written = self._record.original, self._record.written
        if new := [(name, value) for name, value in values.items() if value not in {original.get(name), *written.get(name, ())}]:
            for name, value in new:
                written.setdefault(name, set()).add(value)
            durable_file.write_struct(self._path, self._record)


@contextmanager
def changed_board(home: Path, machine: Machine = THIS_MACHINE) -> Iterator[ChangedBoard]:
    """Yield the board, to be set in the block and put back at its end; hold the run lock. Raises UnavailableError if it cannot be begun."""
    if remaining := restore_leftover(home, machine, holds_run_lock=True):
        raise UnavailableError("; ".join(remaining))
    if is_slowed_to_cool(machine):
        raise UnavailableError("the kernel holds clocks back to cool the chip, and hides their settings: let the board cool, and try again")
    for descriptor in run_lock_descriptors(home):
        os.set_inheritable(descriptor, True)
    path = machine.root / RECORD
    path = path if os.access(path.parent, os.W_OK) else home / "restore.json"
    record = RestoreRecord(pid=os.getpid(), boot_id=clock.boot_id(machine), original=read_settings(machine))
    changed = ChangedBoard(machine, path, record)
    try:
        yield changed
    finally:
        try:
            changed.put_back()
        except EdgemeterError as error:
            # What ended the block is raised.
            warn(str(error))


def restore_leftover(home: Path, machine: Machine = THIS_MACHINE, *, holds_run_lock: bool = False) -> list[str]:
    """Put back what a killed process left changed, and say so; return why what is left is not put back, with the remedy."""
    paths = board_settings.restore_records(machine.root, home)
    lock, remaining = RunLock(home), list[str]()
    try:
        # Another process would be disturbed, or has changed the board itself.
        if paths and not holds_run_lock and not lock.take("edgemeter: the board is put back"):
            return [f"the board's settings are changed, and {lock.holder()} is in progress: start a command after it to put them back"]
        for path in paths:
            try:
                _restore(path, machine)
            except EdgemeterError as error:
                remaining.append(str(error))
    finally:
        lock.release()
    return remaining


def _restore(path: Path, machine: Machine) -> None:
    if not os.access(path.parent, os.W_OK):
        raise UnavailableError(f"the board's settings are changed, as {str(path)!r} records: {REMEDY}")
    remedy = f"check the board's settings, then remove it: `rm {path}`"
    if (record := durable_file.read_struct(path, RestoreRecord, "restore record", remedy)) is None:
        return
    if record.boot_id != clock.boot_id(machine):
        # Only the power mode outlives a reboot.
        record.original = {name: value for name, value in record.original.items() if name == MODE}
        record.written = {name: values for name, values in record.written.items() if name == MODE}
    ChangedBoard(machine, path, record).put_back()
    if settings := dict.fromkeys(f"{name.rpartition('/')[2]} {value}" for name, value in record.original.items() if name in record.written):
        warn(f"the board was put back as it was before a run that was cut off (pid {record.pid}): {', '.join(settings)}")


@contextmanager
def quiet_board(home: Path, holder: str, report: Callable[[str], None]) -> Iterator[None]:
    """Hold the run lock for the block as `run_lock` does, after putting back what a killed process left."""
    with run_lock(home, holder, report):
        for line in restore_leftover(home, holds_run_lock=True):
            report(line)
        yield
