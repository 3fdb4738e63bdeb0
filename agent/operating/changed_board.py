"""A board that is set to power modes and governors for a measurement, and put back as it was found, whatever ends that.

The restore record, a file of root's, has what was found; it is on the disk before the first write, until the board is put back. The next
command to start puts back what a killed process left. Power modes overwrite clocks, so these are in the record of a sweep of modes too.
Only the process that holds the run lock changes a board or puts it back; nvpmodel, which may outlive a process that is killed, inherits it.
Source: Linux Documentation/admin-guide/pm/cpufreq.rst, Documentation/ABI/testing/sysfs-class-devfreq.
"""

import os
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

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
POLICY = "sys/devices/system/cpu/cpufreq/policy*"
# 17000000.gpu (JetPack 6), .ga10b (5), .gv11b and .gp10b (Xavier, TX2), 57000000.gpu (Nano), gpu-gpc-0 (Thor).
GPU = r"gpu|\.g[apv]\d+b"
REMEDY = '`sudo -E "$(command -v edgemeter)" doctor` puts them back'


class RestoreRecord(msgspec.Struct, kw_only=True):
    """The settings as found: the power mode, and what is in files, by their paths below the root."""

    boot_id: str | None
    original: dict[str, str]


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
            for path in files and [*files, (machine.root / RECORD).parent]:
                if not os.access(path, os.W_OK):
                    raise UnavailableError(f"no right to write {str(path)!r}: run it as root (`sudo -E`), outside of a container")
    except SettingError as error:
        raise UnavailableError(f"the board cannot be set: {error}") from error


def read_settings(machine: Machine, *, has_modes: bool) -> dict[str, str]:
    """Return by name, as they are now, the settings that a sweep of governors changes, or one of modes; raises SettingError as nvpmodel."""
    settings = {MODE: board_settings.power_mode_now()[0]} if has_modes else {}
    paths = [*machine.find(f"{POLICY}/scaling_governor"), *machine.find(f"{POLICY}/scaling_setspeed")]
    if has_modes:
        paths += machine.find(f"{POLICY}/scaling_m*_freq")
        paths += [path for path in machine.find("sys/class/devfreq/*/m*_freq") if re.search(GPU, path.parent.name)]
    # `<unsupported>` is no value, and the files of a CPU that is off have none.
    return settings | {str(path): value for path in paths if re.fullmatch(r"\w+", value := machine.text(path) or "")}


class ChangedBoard:
    """The board, found with the settings of `record`; each point is set from there. A change of others is undone by the next point."""

    def __init__(self, machine: Machine, record: RestoreRecord) -> None:
        self._machine, self._record = machine, record
        # Mode and governor that it is set to, None while they are not, and how it was left.
        self._state: tuple[str | None, str | None] | None = (record.original.get(MODE), None)
        self._left = self._read()

    def set(self, point: OperatingPoint | None) -> tuple[OperatingPoint | None, bool]:
        """Set the board to `point` (None: as found) or raise UnavailableError; return it as read back, and whether it was written."""
        power_mode, governor = (point.power_mode, point.governor) if point else (None, None)
        found_mode = self._record.original.get(MODE)
        try:
            mode = board_settings.power_mode_of(power_mode, self._machine.root) if power_mode else found_mode
            is_written = (mode, governor) != self._state or self._read() != self._left
            if is_written:
                self._state = None
                if not (path := self._machine.root / RECORD).exists():
                    durable_file.write(path, msgspec.json.encode(self._record))
                restore(self._machine, self._record)
                if mode and mode != found_mode:
                    board_settings.set_power_mode(mode)
                if governor:
                    for name in self._read().keys() - {MODE}:
                        board_settings.write(self._machine.root / name, governor)
                self._state, self._left = (mode, governor), self._read()
            mode_name = board_settings.power_mode_now()[1] if power_mode else None
        except SettingError as error:
            raise UnavailableError(f"the board was not set to {point.words if point else 'what it was'}: {error}") from error
        return point and OperatingPoint(power_mode=mode_name, governor=governor), is_written

    def _read(self) -> dict[str, str]:
        """Return mode and governors: clocks read lower while the chip is hot."""
        settings = read_settings(self._machine, has_modes=MODE in self._record.original)
        return {name: value for name, value in settings.items() if name == MODE or name.endswith("governor")}


def restore(machine: Machine, record: RestoreRecord) -> None:
    """Set all as found, whatever it reads: after nvpmodel that was ended half way the mode before, of a hot chip lower clocks.

    Raises:
        SettingError: some of it cannot be set; the rest is.
    """
    problems = dict.fromkeys(record.original, "")
    # By name: the mode, then a governor and limits before the clock of `userspace`. A highest clock below the lowest is refused at first.
    for name in (*sorted(problems), *sorted(problems.keys() - {MODE})):
        try:
            if name == MODE:
                board_settings.set_power_mode(record.original[name])
            elif name in problems:
                board_settings.write(machine.root / name, record.original[name])
            problems.pop(name, None)
        except SettingError as error:
            problems[name] = str(error)
    if problems:
        raise SettingError("; ".join(problems.values()))


def put_back(machine: Machine, record: RestoreRecord) -> None:
    """Put the board back as it was found and remove the record from the disk, or raise UnavailableError."""
    try:
        restore(machine, record)
        (machine.root / RECORD).unlink()
        durable_file.sync((machine.root / RECORD).parent)
    except (SettingError, OSError) as error:
        raise UnavailableError(f"the board's settings are not put back ({error}): {REMEDY}") from error


@contextmanager
def changed_board(home: Path, points: Collection[OperatingPoint], machine: Machine = THIS_MACHINE) -> Iterator[ChangedBoard]:
    """Yield the board, to be set to `points` and put back at the end; hold the run lock. Raises UnavailableError if it cannot be."""
    if why := restore_leftover(home, machine, holds_run_lock=True):
        raise UnavailableError(why)
    if is_slowed_to_cool(machine):
        raise UnavailableError("the kernel holds clocks back to cool the chip, and hides their settings: let the board cool, and try again")
    for descriptor in run_lock_descriptors(home):
        os.set_inheritable(descriptor, True)
    try:
        original = read_settings(machine, has_modes=any(point.power_mode for point in points))
        record = RestoreRecord(boot_id=clock.boot_id(machine), original=original)
        board = ChangedBoard(machine, record)
    except SettingError as error:
        raise UnavailableError(f"the board cannot be set: {error}") from error
    try:
        yield board
    finally:
        if (machine.root / RECORD).exists():
            try:
                put_back(machine, record)
            except EdgemeterError as error:
                # What ended the block is raised.
                warn(str(error))


def restore_leftover(home: Path, machine: Machine = THIS_MACHINE, *, holds_run_lock: bool = False) -> str:
    """Put back what a killed process left changed, and say so; return why it is not put back, with the remedy, or an empty text."""
    path, lock = machine.root / RECORD, RunLock(home)
    if not path.is_file():
        return ""
    try:
        # Another process would be disturbed, or has changed the board itself.
        if not holds_run_lock and not lock.take("edgemeter: the board is put back"):
            return f"the board's settings are changed, and {lock.holder()} is in progress: start a command after it to put them back"
        if not os.access(path.parent, os.W_OK):
            return f"the board's settings are changed, as {str(path)!r} records: {REMEDY}"
        remedy = f"check the board's settings, then remove it: `rm {path}`"
        record = durable_file.read_struct(path, RestoreRecord, "restore record", remedy)
        if record is None:
            return ""
        if record.boot_id != clock.boot_id(machine):
            # Only the power mode outlives a reboot.
            record.original = {name: value for name, value in record.original.items() if name == MODE}
        put_back(machine, record)
    except EdgemeterError as error:
        return str(error)
    finally:
        lock.release()
    if settings := dict.fromkeys(f"{Path(name).name} {value}" for name, value in record.original.items() if not name.endswith("_freq")):
        warn(f"the board was put back as it was before a run that was cut off: {', '.join(settings)}")
    return ""


@contextmanager
def quiet_board(home: Path, holder: str, report: Callable[[str], None]) -> Iterator[None]:
    """Hold the run lock for the block as `run_lock` does, after putting back what a killed process left."""
    with run_lock(home, holder, report):
        if why := restore_leftover(home, holds_run_lock=True):
            report(why)
        yield
