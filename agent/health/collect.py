"""Collects the health of this device, in a process of its own: `python -m edgemeter.agent.health.collect ORDER`, JSON to stdout.

It looks at everything that the agent that stays must not hold in memory. It measures nothing and costs about a second of one core.
"""

import datetime as dt
import math
import os
import sys
import time
from pathlib import Path

import msgspec

from edgemeter.agent import config
from edgemeter.agent.delivery import shedding, sqlite_file
from edgemeter.agent.delivery.outbox_file import FORMAT
from edgemeter.agent.errors import EdgemeterError
from edgemeter.agent.health import certificate, disk, releases, reset_reason, verdict_log
from edgemeter.agent.health.contract import Clock, Health, LastWords, Sensor, encode
from edgemeter.agent.identity import board_serial, clock_floor, own
from edgemeter.agent.identity.own import Identity
from edgemeter.agent.machine import clock, fingerprint, temperatures, throttling
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine
from edgemeter.agent.power import calibration_file, detect
from edgemeter.agent.update import place

S_PER_DAY = 86_400
OUTBOX = "outbox.sqlite"
LONGEST_LINE = 500


class Collecting(msgspec.Struct, frozen=True, kw_only=True):
    """Whose health, and what only the agent that stays knows; `config` is the file of the configuration, None for the usual places."""

    device: str
    fleet: str
    session: int
    config: str | None
    floor_ns: int
    last_words: LastWords


def read(order: Collecting, machine: Machine = THIS_MACHINE) -> Health:
    """Return the health of this device; what cannot be had is None."""
    settings = config.read(Path(order.config) if order.config else None)
    home = config.home()
    here = fingerprint.read(machine)
    held = throttling.read(machine)
    waiting, dropped = _outbox(home / OUTBOX, order.device)
    previous, bad = releases.read(Path(sys.prefix), home)
    identity = _identity(home)
    floor_ns = max(order.floor_ns, clock_floor.floor_ns(identity.seen_ns if identity else None))
    told_ns = time.time_ns()
    return Health(
        device=order.device,
        fleet=order.fleet,
        session=order.session,
        told_ns=told_ns,
        agent=here.agent,
        release=place.HERE.version if place.HERE else None,
        previous_agent=previous,
        bad_agents=bad,
        board=here.board,
        serial=_serial(identity, machine),
        os=here.os,
        kernel=here.kernel,
        power_mode=here.power_mode,
        governor=here.governor,
        python=here.python,
        glibc=_glibc(),
        arch=here.arch,
        sensors=_sensors(here.board, settings, told_ns),
        certificate_not_after_ns=certificate.not_after_ns(certificate.place(settings, home), machine),
        clock=_clock(machine, floor_ns, told_ns),
        disk=disk.read(home, machine),
        waiting_records=waiting,
        dropped_records=dropped.records,
        dropped_traces=dropped.traces,
        runs=verdict_log.read(home),
        temperatures_c={name[:LONGEST_LINE]: round(value_c, 1) for name, value_c in temperatures.read(machine).items()},
        is_throttled_since_boot=held.since_boot,
        is_under_voltage_since_boot=held.under_voltage_since_boot,
        throttle_events=dict(held.events),
        uptime_s=_uptime_s(machine),
        boot_id=here.boot_id,
        reset_reason=reset_reason.read(machine),
        last_words=order.last_words,
    )


def _sensors(board: str | None, settings: config.Config, now_ns: int) -> tuple[Sensor, ...]:
    found = []
    for one in detect.detect(settings.sensors):
        if one.description is not None:
            age_days, trouble = _calibration(board, one, now_ns)
            described = one.description
            found.append(
                Sensor(name=one.name, id=described.id, scope=described.scope, calibration_age_days=age_days, trouble=_line(trouble))
            )
        elif not one.is_absent:
            found.append(Sensor(name=one.name, trouble=_line(one.reason)))
    return tuple(found)


def _calibration(board: str | None, sensor: detect.Found, now_ns: int) -> tuple[float | None, str | None]:
    """Return the age of a sensor's calibration in days, and what is wrong with its file or the sensor."""
    if sensor.description is None:
        return None, sensor.reason
    blocked = sensor.description.blocked
    try:
        known = calibration_file.find(board, sensor.description)
    except EdgemeterError as error:
        return None, str(error)
    if known is None:
        return None, blocked
    try:
        made_s = dt.datetime.fromisoformat(known.made_at).timestamp()
    except ValueError:
        return None, f"its calibration does not tell when it was made ({known.made_at!r})"
    return round((now_ns / 1e9 - made_s) / S_PER_DAY, 2), blocked


def _clock(machine: Machine, floor_ns: int, now_ns: int) -> Clock:
    kernel = clock.kernel_clock_of(machine)
    is_right = clock.synchronised(machine)
    return Clock(
        is_synchronised=is_right,
        # A kernel that nobody corrects knows neither.
        offset_ms=kernel.offset_ms if kernel and is_right and math.isfinite(kernel.offset_ms) else None,
        error_ms=kernel.error_ms if kernel and is_right else None,
        floor_ns=floor_ns or None,
        is_behind_floor=now_ns < floor_ns,
    )


def _outbox(path: Path, device: str) -> tuple[int, shedding.Dropped]:
    # Opening it as an outbox would begin a session.
    try:
        connection = sqlite_file.connect(path, FORMAT, "read")
    except EdgemeterError:
        return 0, shedding.Dropped()
    try:
        with sqlite_file.mapped(path, FORMAT):
            waiting = connection.execute("SELECT count(*) FROM records WHERE device = ?", (device,)).fetchone()[0]
            return int(waiting), shedding.count(connection, device)
    except EdgemeterError:
        return 0, shedding.Dropped()
    finally:
        connection.close()


def _identity(home: Path) -> Identity | None:
    try:
        return own.read(home)
    except EdgemeterError:
        return None


def _serial(identity: Identity | None, machine: Machine) -> str | None:
    """Return the serial number by which the fleet knows this board, else the one that it has; None where it has none."""
    if identity is not None:
        return identity.serial
    found = board_serial.read(machine)
    return None if found.source == "made" else found.serial


def _glibc() -> str | None:
    try:
        told = os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        return None
    return told.removeprefix("glibc ") if told else None


def _uptime_s(machine: Machine) -> float | None:
    first = (machine.text("proc/uptime") or "").split()
    try:
        return float(first[0]) if first else None
    except ValueError:
        return None


def _line(text: str | None) -> str | None:
    return None if text is None else text[:LONGEST_LINE]


if __name__ == "__main__":
    sys.stdout.buffer.write(encode(read(msgspec.json.decode(sys.argv[1], type=Collecting))))
