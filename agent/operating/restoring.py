"""The restore record: what a board was set to before a measurement changed it, on the disk until it is put back."""

import os
import time
import uuid
from pathlib import Path

import msgspec

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.errors import ConfigError, UnavailableError, os_error_as
from edgemeter.agent.machine import board, clock
from edgemeter.agent.machine.machine import Machine
from edgemeter.agent.operating.board_settings import SettingError
from edgemeter.agent.operating.knobs import KNOBS

RECORD, LOCK = "restore.json", "restore.lock"


class RestoreRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings as found, raw, by knob and file; of which boot and board, and of which process (`token` is its own)."""

    token: str
    pid: int
    since: str
    boot_id: str | None
    board: str | None
    settings: dict[str, dict[str, str]]

    @property
    def words(self) -> str:
        """The same in words: `power mode 2, governor schedutil, clocks`."""
        named = {"power_mode": "power mode", "governor": "governor"}
        values = {name: "+".join(dict.fromkeys(self.settings[name].values())) for name in named if name in self.settings}
        clocks = ["clocks"] if set(self.settings) - set(named) else []
        return ", ".join([*(f"{named[name]} {value}" for name, value in values.items()), *clocks])


def record_now(machine: Machine) -> RestoreRecord:
    """Return the settings of the board now; raises SettingError if one cannot be read."""
    settings = {name: values for name, knob in KNOBS.items() if (values := knob.read(machine))}
    since = time.strftime("%Y-%m-%d %H:%M")
    return RestoreRecord(
        token=uuid.uuid4().hex,
        pid=os.getpid(),
        since=since,
        boot_id=clock.boot_id(machine),
        board=board.board_key(machine),
        settings=settings,
    )


def read_record(home: Path, machine: Machine) -> RestoreRecord | None:
    """Return the restore record in `home`, None if there is none; raises ConfigError if it is damaged, or of another board."""
    path = home / RECORD
    remedy = f"nothing was written: check the board's settings, then remove it: `rm {path}`"
    record = durable_file.read_struct(path, RestoreRecord, "restore record", remedy)
    if record is None:
        return None
    key = board.board_key(machine)
    if record.board is not None and key is not None and record.board != key:
        raise ConfigError(f"restore record {str(path)!r} is of another board: {remedy}")
    if unknown := set(record.settings) - set(KNOBS):
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
                knob.put_back(machine, record.settings[name])
            except SettingError as error:
                problems.append(f"{name}: {error}")
    return problems


def remove_record(home: Path) -> None:
    """Remove the restore record, on the disk too; raises UnavailableError if it cannot be removed."""
    with os_error_as(UnavailableError, f"cannot remove {str(home / RECORD)!r}", "remove it: the board is as it was"):
        (home / RECORD).unlink(missing_ok=True)
        durable_file.sync(home)
