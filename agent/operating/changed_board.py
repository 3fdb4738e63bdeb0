"""Sets a board to power modes and governors for a measurement, and then restores it.

It is restored, whatever ends the measurement.

The restore record, a file of root, has the original settings. It is on the disk from before the
first write until the board is restored. If the process is killed, the next command restores the
board. Power modes overwrite clocks, so the record of a sweep of modes has clocks too. Only the
process with the run lock changes or restores a board; nvpmodel, which may outlive a killed process,
inherits the lock.
Source: Linux Documentation/admin-guide/pm/cpufreq.rst,
Documentation/ABI/testing/sysfs-class-devfreq.
"""

import logging
import os
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.errors import EdgemeterError, UnavailableError
from edgemeter.agent.base.file_lock import RunLock, run_lock, run_lock_descriptors
from edgemeter.agent.contract.operating_point import OperatingPoint
from edgemeter.agent.machine import clock
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine
from edgemeter.agent.machine.throttling import is_slowed_to_cool
from edgemeter.agent.operating import board_settings
from edgemeter.agent.operating.board_settings import RECORD, SettingError

logger = logging.getLogger(__name__)
MODE = "power_mode"
POLICY = "sys/devices/system/cpu/cpufreq/policy*"
# 17000000.gpu (JetPack 6), .ga10b (5), .gv11b and .gp10b (Xavier, TX2), 57000000.gpu (Nano),
# gpu-gpc-0 (Thor).
GPU = r"gpu|\.g[apv]\d+b"
REMEDY = '`sudo -E "$(command -v edgemeter)" doctor` restores them'


class RestoreRecord(msgspec.Struct, kw_only=True):
    """The original settings: the power mode, and texts of files by their paths below the root."""

    boot_id: str | None
    original: dict[str, str]


def check(points: Collection[OperatingPoint], machine: Machine = THIS_MACHINE) -> None:
    """Check that the board has these modes and governors, and this user may set them.

    Raises:
        UnavailableError: it does not, or the user may not.
    """
    try:
        for point in points:
            files: list[Path] = []
            if point.governor:
                files = board_settings.governor_files(machine.root / "sys")
                board_settings.check_governor(files, point.governor)
            if (
                point.power_mode
                and board_settings.power_mode_of(point.power_mode, machine.root)
                != board_settings.power_mode_now()[0]
            ):
                # The file with the mode for the next boot.
                files += machine.root.glob("var/lib/nvpmodel/status")
            for path in files and [*files, (machine.root / RECORD).parent]:
                if not os.access(path, os.W_OK):
                    raise UnavailableError(
                        f"no right to write {str(path)!r}: run it as root (`sudo -E`), outside "
                        "of a container"
                    )
    except SettingError as error:
        raise UnavailableError(f"the board cannot be set: {error}") from error


def read_settings(machine: Machine, *, has_modes: bool) -> dict[str, str]:
    """Return the current settings that a sweep of governors, or of modes, changes.

    Raises:
        SettingError: nvpmodel fails.
    """
    settings = {MODE: board_settings.power_mode_now()[0]} if has_modes else {}
    paths = [
        *machine.find(f"{POLICY}/scaling_governor"),
        *machine.find(f"{POLICY}/scaling_setspeed"),
    ]
    if has_modes:
        paths += machine.find(f"{POLICY}/scaling_m*_freq")
        paths += [
            path
            for path in machine.find("sys/class/devfreq/*/m*_freq")
            if re.search(GPU, path.parent.name)
        ]
    # Some values are `<unsupported>`, and the files of a CPU that is off are empty.
    return settings | {
        str(path): value
        for path in paths
        if re.fullmatch(r"\w+", value := machine.text(path) or "")
    }


class ChangedBoard:
    """The board with its original settings, from which each point is set.

    The next point undoes changes by others.
    """

    def __init__(self, machine: Machine, record: RestoreRecord) -> None:
        self._machine, self._record = machine, record
        # The mode and governor that are set (None: while they are being set), and the settings
        # after that.
        self._state: tuple[str | None, str | None] | None = (record.original.get(MODE), None)
        self._left = self._read()

    def set(self, point: OperatingPoint | None) -> tuple[OperatingPoint | None, bool]:
        """Set the board to `point` (None: original).

        Returns the point as read back, and whether something was written.

        Raises:
            UnavailableError: the board cannot be set.
        """
        power_mode, governor = (point.power_mode, point.governor) if point else (None, None)
        found_mode = self._record.original.get(MODE)
        try:
            mode = (
                board_settings.power_mode_of(power_mode, self._machine.root)
                if power_mode
                else found_mode
            )
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
            raise UnavailableError(
                "the board was not set "
                f"to {point.words if point else 'its original settings'}: {error}"
            ) from error
        return point and OperatingPoint(power_mode=mode_name, governor=governor), is_written

    def _read(self) -> dict[str, str]:
        """Return mode and governors; clocks would read lower while the chip is hot."""
        settings = read_settings(self._machine, has_modes=MODE in self._record.original)
        return {
            name: value
            for name, value in settings.items()
            if name == MODE or name.endswith("governor")
        }


def restore(machine: Machine, record: RestoreRecord) -> None:
    """Write all original settings, even if they read as set.

    An interrupted nvpmodel shows the former mode, a hot chip lower clocks.

    Raises:
        SettingError: some settings cannot be written; the others are.
    """
    problems = dict.fromkeys(record.original, "")
    # Sorted by name: the mode, then governors and limits before the clock of `userspace`. Twice,
    # because the kernel refuses a highest clock below the present lowest one.
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
    """Restore the board and remove the record from the disk, or raise UnavailableError."""
    try:
        restore(machine, record)
        (machine.root / RECORD).unlink()
        durable_file.sync((machine.root / RECORD).parent)
    except (SettingError, OSError) as error:
        raise UnavailableError(
            f"the board's settings were not restored ({error}): {REMEDY}"
        ) from error


@contextmanager
def changed_board(
    home: Path, points: Collection[OperatingPoint], machine: Machine = THIS_MACHINE
) -> Iterator[ChangedBoard]:
    """Yield the board, which is restored at the end; the caller holds the run lock.

    Raises UnavailableError if it cannot be set.
    """
    if why := restore_leftover(home, machine, holds_run_lock=True):
        raise UnavailableError(why)
    if is_slowed_to_cool(machine):
        raise UnavailableError(
            "the kernel lowers clocks to cool the chip, which hides their settings: let the "
            "board cool, and try again"
        )
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
                # An error of the block is raised instead.
                logger.warning("%s", error)


def restore_leftover(
    home: Path, machine: Machine = THIS_MACHINE, *, holds_run_lock: bool = False
) -> str:
    """Restore the settings that a killed process left changed, with a warning.

    Returns why they are not restored, or an empty text.
    """
    path, lock = machine.root / RECORD, RunLock(home)
    if not path.is_file():
        return ""
    try:
        # Another run would be disturbed, or has changed the board itself.
        if not holds_run_lock and not lock.take("edgemeter: the board is restored"):
            return (
                f"the board's settings are changed, and {lock.holder()} is in progress: start a "
                "command after it to restore them"
            )
        if not os.access(path.parent, os.W_OK):
            return f"the board's settings are changed, as {str(path)!r} records: {REMEDY}"
        remedy = f"check the board's settings, then remove it: `rm {path}`"
        record = durable_file.read_struct(path, RestoreRecord, "restore record", remedy)
        if record is None:
            return ""
        if record.boot_id != clock.boot_id(machine):
            # Only the power mode outlives a reboot.
            record.original = {
                name: value for name, value in record.original.items() if name == MODE
            }
        put_back(machine, record)
    except EdgemeterError as error:
        return str(error)
    finally:
        lock.release()
    if settings := dict.fromkeys(
        f"{Path(name).name} {value}"
        for name, value in record.original.items()
        if not name.endswith("_freq")
    ):
        logger.warning(
            "restored the board's settings after a run that was cut off: %s", ", ".join(settings)
        )
    return ""


@contextmanager
def quiet_board(home: Path, holder: str, report: Callable[[str], None]) -> Iterator[None]:
    """Hold the run lock for the block as `run_lock` does.

    Before, the settings that a killed process left are restored.
    """
    with run_lock(home, holder, report):
        if why := restore_leftover(home, holds_run_lock=True):
            report(why)
        yield
