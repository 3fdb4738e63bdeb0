"""The restore record: what a board was set to before a measurement changed it, on the disk until it is put back.

It is the board's, not a home's: whoever measures next finds it, whatever its user and home. It lies in `/var/lib` if something may be
changed that outlives a reboot (a power mode), else beside the run lock, which is gone after one; in the home where that cannot be written.
"""

import os
import stat
import time
import uuid
from contextlib import suppress
from pathlib import Path

import msgspec

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.errors import ConfigError, UnavailableError, os_error_as
from edgemeter.agent.base.file_lock import SharedLock
from edgemeter.agent.machine import board, clock
from edgemeter.agent.machine.machine import Machine
from edgemeter.agent.operating.board_settings import BOOT_RECORD, DURABLE_RECORD, SettingError
from edgemeter.agent.operating.knobs import KNOBS, MODE_FILE

RECORD = "restore.json"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class RestoreRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings as found, raw, by knob and file; of which boot and board, and of which process (`token` is its own).

    Of the knobs in `begun` a value may have been written, wholly or half; others are put back only where they differ.
    """

    token: str
    pid: int
    since: str
    boot_id: str | None
    board: str | None
    settings: dict[str, dict[str, str]]
    begun: tuple[str, ...] = tuple(KNOBS)

    @property
    def words(self) -> str:
        """The same in words: `power mode 2, governor schedutil, clocks`."""
        named = {"power_mode": "power mode", "governor": "governor"}
        values = {name: "+".join(dict.fromkeys(self.settings[name].values())) for name in named if name in self.settings}
        clocks = ["clocks"] if set(self.settings) - set(named) else []
        return ", ".join([*(f"{named[name]} {value}" for name, value in values.items()), *clocks])


class RestoreLock(SharedLock):
    """Held by who changes the board or puts it back, and by each command that it runs until that has ended: one for all homes."""

    def __init__(self, home: Path, machine: Machine) -> None:
        wide = (machine.root / BOOT_RECORD).with_name("edgemeter-restore.lock")
        can_be_there = wide.exists() or os.access(wide.parent, os.W_OK)
        super().__init__(wide if can_be_there else home / "restore.lock")

    def take(self, holder: str = "") -> bool:
        """Return whether this process holds the lock now, and the commands that it runs will."""
        if self.path.name == "restore.lock":
            home = self.path.parent
            with os_error_as(UnavailableError, f"cannot make {str(home)!r}, which is to hold a lock", "set EDGEMETER_HOME"):
                durable_file.make_folder(home)
        is_ours = super().take(holder)
        if is_ours:
            os.set_inheritable(self.descriptor(), True)
        return is_ours


def record_now(machine: Machine) -> RestoreRecord:
    """Return the settings of the board now, none of them begun; raises SettingError if one cannot be read."""
    settings = {name: values for name, knob in KNOBS.items() if (values := knob.read(machine))}
    since = time.strftime("%Y-%m-%d %H:%M")
    return RestoreRecord(
        token=uuid.uuid4().hex,
        pid=os.getpid(),
        since=since,
        boot_id=clock.boot_id(machine),
        board=board.board_key(machine),
        settings=settings,
        begun=(),
    )


def keep_record(record: RestoreRecord, home: Path, machine: Machine) -> Path:
    """Put the record on the disk, where all homes find it if that can be written, and return its path.

    Raises:
        ConfigError: it cannot be written, or others could change it.
    """
    mode_file = machine.root / MODE_FILE
    may_change_mode = not mode_file.exists() or os.access(mode_file, os.W_OK)
    is_durable = may_change_mode and any(KNOBS[name].survives_boot for name in record.settings)
    wide = machine.root / (DURABLE_RECORD if is_durable else BOOT_RECORD)
    if wide.parent.is_dir():
        with suppress(ConfigError):
            return _keep(record, wide)
    return _keep(record, home / RECORD)


def _keep(record: RestoreRecord, path: Path) -> Path:
    durable_file.write_struct(path, record)
    if owner_problem(path) or _open_to_others(path):
        remove_record(path)
        folder = str(path.parent)
        raise ConfigError(
            f"the board is not changed: others can change {folder!r}, which would hold its restore record: set EDGEMETER_HOME"
        )
    return path


def find_record(token: str, home: Path, machine: Machine) -> tuple[Path, RestoreRecord] | None:
    """Return the record of that process and where it lies, None if it is gone."""
    for path in record_paths(home, machine):
        # Another that is damaged is not this one.
        with suppress(ConfigError):
            if not owner_problem(path) and (record := read_record(path, machine)) is not None and record.token == token:
                return path, record
    return None


def record_paths(home: Path, machine: Machine) -> list[Path]:
    """Return the paths where a record lies: of this board, or in this home."""
    return [path for path in (machine.root / DURABLE_RECORD, machine.root / BOOT_RECORD, home / RECORD) if os.path.lexists(path)]


def read_record(path: Path, machine: Machine) -> RestoreRecord | None:
    """Return the restore record at `path`, None if there is none.

    Raises:
        ConfigError: it is damaged, of another board, or others can write it.
    """
    remedy = f"nothing was written: check the board's settings, then remove it: `rm {path}`"
    with suppress(FileNotFoundError):
        if problem := _open_to_others(path):
            raise ConfigError(f"restore record {str(path)!r} {problem}: {remedy}")
    record = durable_file.read_struct(path, RestoreRecord, "restore record", remedy)
    if record is None:
        return None
    key = board.board_key(machine)
    if record.board is not None and key is not None and record.board != key:
        raise ConfigError(f"restore record {str(path)!r} is of another board: {remedy}")
    if unknown := {*record.settings, *record.begun} - set(KNOBS):
        raise ConfigError(f"restore record {str(path)!r} names {min(unknown)!r}, which is no setting of a board: {remedy}")
    return record


def put_back(record: RestoreRecord, machine: Machine) -> list[str]:
    """Put back every setting that can be, and return why others were not.

    After a reboot only what outlives one: the rest is as the kernel sets it.
    """
    boot_id = clock.boot_id(machine)
    is_same_boot = None in (record.boot_id, boot_id) or record.boot_id == boot_id
    problems = []
    for name, knob in KNOBS.items():
        if name in record.settings and (is_same_boot or knob.survives_boot):
            try:
                knob.put_back(machine, record.settings[name], is_begun=is_same_boot and name in record.begun)
            except SettingError as error:
                problems.append(f"{name}: {error}")
    return problems


def owner_problem(path: Path) -> str | None:
    """Return why this user does not act on the record: it is another's; None if it is not. Anybody can put one beside the run lock."""
    with suppress(FileNotFoundError):
        if (owner := path.lstat().st_uid) != os.geteuid():
            return f"restore record {str(path)!r} is of user {owner}, and each user acts on their own only"
    return None


def _open_to_others(path: Path) -> str | None:
    """Return why others could have written the record of this user, None if they could not; of root's the folders count too."""
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        # A pipe that somebody put there would block for ever.
        return "is damaged (not a regular file)"
    if status.st_mode & _OTHERS_WRITE:
        return "can be written by others"
    if os.geteuid() == 0 and not all(map(_is_roots, (path.parent.resolve() / path.name).parents)):
        return "lies in a folder that others can change"
    return None


def _is_roots(folder: Path) -> bool:
    with suppress(OSError):
        status = folder.stat()
        # In a sticky folder like /run/lock each replaces their own only.
        return status.st_uid == 0 and (not status.st_mode & _OTHERS_WRITE or bool(status.st_mode & stat.S_ISVTX))
    return False


def removal_problem(path: Path) -> str | None:
    """Return why this user cannot remove the record, None if it can: what it put back would be put back once more."""
    return None if os.access(path.parent, os.W_OK) else f"no right to remove {str(path)!r}"


def remove_record(path: Path) -> None:
    """Remove the restore record, on the disk too; raises UnavailableError if it cannot be removed."""
    with os_error_as(UnavailableError, f"cannot remove {str(path)!r}", "remove it: the board is as it was"):
        path.unlink(missing_ok=True)
        durable_file.sync(path.parent)
