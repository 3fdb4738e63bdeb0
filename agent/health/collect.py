"""Collects the health of this device, in a separate process.

It is `python -m edgemeter.agent.health.collect ORDER`, with JSON to stdout.
"""

import math
import os
import signal
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from edgemeter.agent.base import config, sqlite_file
from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.contract.health import Clock, Disk, Health, LastStop, Sensor, encode_health
from edgemeter.agent.delivery.outbox_file import (
    FORMAT,
    OUTBOX,
    Dropped,
    dropped_count,
    waiting_count,
)
from edgemeter.agent.delivery.verdict_log import recent_runs
from edgemeter.agent.health.health_handler import certificate_end_ns, certificate_path
from edgemeter.agent.identity.identity import (
    Identity,
    clock_floor_ns,
    read_board_serial,
    read_identity,
)
from edgemeter.agent.identity.service_signature import read_refused_orders
from edgemeter.agent.machine import clock, fingerprint, temperatures, throttling
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine, whole_number
from edgemeter.agent.power import detect
from edgemeter.agent.update.release import RELEASES_FOLDER, RUNNING_RELEASE, read_journal

STEP_RATIO = 0.1
WORN_OUT = 0x0B

# PRE_EOL_INFO: 1 normal, 2 80% of the spare blocks are used, 3 urgent.
URGENT = 3


def read_disk(home: Path, machine: Machine) -> Disk:
    try:
        file_system = os.statvfs(home)
        number = home.stat().st_dev
    except OSError:
        return Disk()
    block = f"sys/dev/block/{os.major(number)}:{os.minor(number)}"
    wear_ratio, is_worn_out = wear(block, machine)
    return Disk(
        free_bytes=file_system.f_bavail * file_system.f_frsize,
        size_bytes=file_system.f_blocks * file_system.f_frsize,
        wear_ratio=wear_ratio,
        is_worn_out=is_worn_out,
        written_bytes=_written_mb(block, machine),
    )


def wear(block: str, machine: Machine) -> tuple[float | None, bool | None]:
    """Return the used share of an eMMC's lifetime, and whether its end is announced.

    None if the medium does not report it.
    """
    for device in (f"{block}/device", f"{block}/../device"):
        used = [
            stage
            for word in (machine.text(f"{device}/life_time") or "").split()
            if (stage := whole_number(word, 16))
        ]
        end = whole_number(machine.text(f"{device}/pre_eol_info"), 16)
        if used or end:
            ratio = min(1.0, STEP_RATIO * max(used)) if used else None
            return ratio, max(used, default=0) >= WORN_OUT or (end or 0) >= URGENT
    return None, None


def _written_mb(block: str, machine: Machine) -> int | None:
    try:
        name = (machine.root / block).resolve().name
    except OSError:
        return None
    kilobytes = machine.number(f"sys/fs/ext4/{name}/lifetime_write_kbytes")
    return None if kilobytes is None else kilobytes << 10


def other_release(prefix: Path) -> str | None:
    folder = prefix.resolve().parent
    if folder.name != RELEASES_FOLDER:
        return None
    try:
        other_folders = sorted(
            (
                path
                for path in folder.iterdir()
                if path.is_dir() and path.name != prefix.resolve().name
            ),
            key=_changed,
        )
    except OSError:
        return None
    return other_folders[-1].name if other_folders else None


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


RSTS = ("proc/device-tree/chosen/bootloader/rsts", "proc/device-tree/chosen/bootloader/pm_rsts")
POWER_ON, WATCHDOG, SOFTWARE = 0x1000, 0x0070, 0x0700
# Reset reasons that the watchdog reports, the most certain first.
WATCHDOG_REASONS = {0x0020: "watchdog", 0x0001: "overheated", 0x0010: "power fault"}
PANIC = "the kernel crashed (its record is in /sys/fs/pstore)"


def read_reset_reason(machine: Machine) -> str | None:
    """Return the reason in words; None if unknown."""
    # The kernel's crash record is more precise than the hardware's reason.
    if any(path.name.startswith("dmesg-") for path in machine.find("sys/fs/pstore/*")):
        return PANIC
    pmc = (
        *machine.find("sys/devices/platform/*pmc*/reset_reason"),
        *machine.find("sys/devices/platform/*/*pmc*/reset_reason"),
    )
    tegra = next((reason for path in pmc if (reason := machine.line(path))), None)
    statuses = (
        machine.number(path) or 0
        for path in machine.find("sys/class/watchdog/watchdog*/bootstatus")
    )
    watchdog = next(
        (
            reason
            for status in statuses
            for flag, reason in WATCHDOG_REASONS.items()
            if status & flag
        ),
        None,
    )
    return _raspberry_pi(machine) or tegra or watchdog


def _raspberry_pi(machine: Machine) -> str | None:
    for path in RSTS:
        try:
            value = int.from_bytes((machine.root / path).read_bytes()[:4], "big")
        except OSError:
            continue
        if value & POWER_ON:
            return "power on"
        # A Raspberry Pi restarts itself through its watchdog: on request, or because it hung.
        if value & (WATCHDOG | SOFTWARE):
            return "restart or watchdog"
    return None


LONGEST_LINE = 500


class CollectOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The device, and the facts that only the daemon knows.

    `config` is the configuration file, None for the usual places.
    """

    device: str
    fleet: str
    session: int
    config: str | None
    floor_ns: int
    last_words: LastStop


class _OutboxState(NamedTuple):
    """The records that wait and were dropped, or why nothing is known of them."""

    waiting: int | None
    dropped: Dropped | None
    trouble: str | None


def read_health(order: CollectOrder, machine: Machine = THIS_MACHINE) -> Health:
    """Return the health of this device; unknown parts are None."""
    settings = config.read(Path(order.config) if order.config else None)
    home = config.home()
    environment = fingerprint.read(machine)
    shared = {
        name: getattr(environment, name)
        for name in environment.__struct_fields__
        if name in Health.__struct_fields__
    }
    throttled = throttling.read(machine)
    outbox = _outbox(home / OUTBOX, order.device)
    identity: Identity | None = None
    with suppress(EdgemeterError):
        identity = read_identity(home)
    floor_ns = max(order.floor_ns, clock_floor_ns(identity.issued_ns if identity else None))
    now_ns = time.time_ns()
    return Health(
        device=order.device,
        fleet=order.fleet,
        session=order.session,
        told_ns=now_ns,
        release=RUNNING_RELEASE.version if RUNNING_RELEASE else None,
        previous_agent=other_release(Path(sys.prefix)),
        bad_agents=tuple(sorted(read_journal().bad_versions)),
        serial=_serial(identity, machine),
        python=environment.libraries["python"],
        glibc=_glibc(),
        sensors=_sensors(settings),
        certificate_not_after_ns=certificate_end_ns(certificate_path(settings, home), machine),
        clock=_clock(machine, floor_ns, now_ns),
        disk=read_disk(home, machine),
        waiting_records=outbox.waiting,
        dropped_records=outbox.dropped.records if outbox.dropped else None,
        dropped_traces=outbox.dropped.traces if outbox.dropped else None,
        outbox_trouble=outbox.trouble[:LONGEST_LINE] if outbox.trouble else None,
        refused_orders=read_refused_orders(home),
        runs=recent_runs(home),
        temperatures_c={
            name[:LONGEST_LINE]: round(value_c, 1)
            for name, value_c in temperatures.read(machine).items()
        },
        is_throttled_since_boot=throttled.throttled_since_boot,
        is_under_voltage_since_boot=throttled.under_voltage_since_boot,
        throttle_events=dict(throttled.throttle_events),
        uptime_s=_uptime_s(machine),
        reset_reason=read_reset_reason(machine),
        last_words=order.last_words,
        **shared,
    )


def _sensors(settings: config.Config) -> tuple[Sensor, ...]:
    sensors = []
    for detected in detect.detect_sensors(settings.sensors):
        if detected.description is not None:
            described = detected.description
            sensors.append(
                Sensor(
                    name=detected.name,
                    id=described.id,
                    scope=described.scope,
                    trouble=_line(described.blocked),
                )
            )
        elif not detected.is_absent:
            sensors.append(Sensor(name=detected.name, trouble=_line(detected.reason)))
    return tuple(sensors)


def _clock(machine: Machine, floor_ns: int, now_ns: int) -> Clock:
    kernel = clock.kernel_clock_of(machine)
    is_right = clock.synchronised(machine)
    return Clock(
        is_synchronised=is_right,
        # Without clock synchronisation the kernel knows neither.
        offset_ms=kernel.offset_ms
        if kernel and is_right and math.isfinite(kernel.offset_ms)
        else None,
        error_ms=kernel.error_ms if kernel and is_right else None,
        floor_ns=floor_ns or None,
        is_behind_floor=now_ns < floor_ns,
    )


def _outbox(path: Path, device: str) -> _OutboxState:
    if not path.exists():
        return _OutboxState(0, Dropped(), None)
    try:
        # Opening it as an outbox would begin a session.
        with (
            closing(sqlite_file.connect(path, FORMAT, "read")) as connection,
            sqlite_file.mapped(path, FORMAT),
        ):
            return _OutboxState(
                waiting_count(connection, device), dropped_count(connection, device), None
            )
    except EdgemeterError as error:
        return _OutboxState(None, None, str(error))


def _serial(identity: Identity | None, machine: Machine) -> str | None:
    """Return the serial number by which the fleet knows this board, else its own.

    None without one.
    """
    if identity is not None:
        return identity.board.serial
    board_serial = read_board_serial(machine)
    return None if board_serial.source == "made" else board_serial.serial


def _glibc() -> str | None:
    try:
        version = os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        return None
    return version.removeprefix("glibc ") if version else None


def _uptime_s(machine: Machine) -> float | None:
    first = (machine.text("proc/uptime") or "").split()
    try:
        return float(first[0]) if first else None
    except ValueError:
        return None


def _line(text: str | None) -> str | None:
    return None if text is None else text[:LONGEST_LINE]


def main() -> int | str:
    """Write the health that the order in the first argument requests.

    Returns the exit status, or the error in one line.
    """
    # If the agent has ended, nobody reads the output: exit silently.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        payload = encode_health(read_health(msgspec.json.decode(sys.argv[1], type=CollectOrder)))
    except EdgemeterError as error:
        return str(error)
    sys.stdout.buffer.write(payload)
    return 0


if __name__ == "__main__":
    sys.exit(main())
