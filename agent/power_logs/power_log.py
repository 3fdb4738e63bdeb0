"""The energy of a run that is over, from the log of a power meter: tegrastats with times, nvidia-smi's CSV, or any CSV.

It is that of straight lines between the readings (trapezoids). What the power did between two of them is not in the log: the interval
holds every course that stays between each two neighbours, and the digits that the log leaves out of powers and stamps; the meter's own
error is not in it. Of readings further apart than three times the usual distance nothing is counted: the coverage is what is left, and
below nine tenths there is no energy.
"""

import csv
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path

import numpy as np

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.agent.power import Rail, jetson_rails

GAP_RATIO, LEAST_COVERED_RATIO = 3.0, 0.9
# ISO 8601 and nvidia-smi's slashes; tegrastats' own; those of `ts`, which have no year.
STAMP = re.compile(
    r"(?P<day>\d{4}[-/]\d\d[-/]\d\d|\d\d-\d\d-\d{4}|[A-Z][a-z]{2} +\d{1,2})"
    r"[T ](?P<clock>\d\d:\d\d:\d\d)(?:[.,](?P<digits>\d{1,9}))?(?P<zone>Z|[+-]\d\d:?\d\d)?"
)
CLOCK = re.compile(r"(\d\d:\d\d)(:\d\d(?:\.\d+)?)?")
NUMBER = re.compile(r"([+-]?\d+(?:[.,](\d+))?(?:[eE][+-]?\d+)?)\s*([A-Za-zµ]*)")
SECONDS = {"s": 1.0, "seconds": 1.0, "ms": 1e-3, "milliseconds": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
WATTS = {"w": 1.0, "watts": 1.0, "mw": 1e-3, "milliwatts": 1e-3, "uw": 1e-6, "µw": 1e-6, "kw": 1e3}
# A unit that ends a column's name and is none of power: one without a unit is taken as W.
OTHER_UNIT = re.compile(r"(?:[\[(]\s*|_)(?:[mk]?(?:a|v|j|wh)|%)\s*[\])]?$", re.IGNORECASE)
# A rail of tegrastats, `NAME now/mean`, in mW; what is in brackets behind a memory is none.
RAIL = re.compile(r"(?<![@\w])(?P<name>[A-Z][A-Z0-9_]*) (?P<now>-?\d+)(?:mW)?/-?\d+(?:mW)?(?:/-?\d+(?:mW)?)?(?![\w(.])")
MEMORY = re.compile(r"\bI?(?:RAM|SWAP) \d+/\d+\s?[kMG]?B")
# What tells the GPUs of one log of nvidia-smi apart.
DEVICES = ("index", "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id")


@dataclass(frozen=True, slots=True)
class Moment:
    """A time as a log writes it: `at_s` counts from 1970, in UTC where there is a zone, or from where the log's numbers do."""

    at_s: float
    step_s: float
    day: str = ""
    zone: str = ""


@dataclass(slots=True)
class PowerLog:
    """The readings of a log by device, each its moment and W; `source` is what they are of."""

    source: str
    readings: dict[str, list[tuple[Moment, float]]] = field(default_factory=dict)
    step_w: float = 0.0
    unit_s: float | None = None


@dataclass(frozen=True, slots=True)
class LoggedEnergy:
    """Energy, J, with the interval that holds it, and mean power of the covered time; `coverage_ratio` is its share of the window.

    `interval` says what the interval is of, and what is not in it.
    """

    source: str
    energy_j: float
    low_j: float
    high_j: float
    mean_power_w: float
    window_s: float
    coverage_ratio: float
    readings: int
    interval: str = "whatever the power did between its readings without leaving them, and the log's digits; not the meter's own error"


def parse_moment(text: str, unit_s: float | None = None, zone: str = "") -> Moment | None:
    """Return the first date in a text, or the number that it is; None if it is neither.

    `unit_s` is the unit of a number, `zone` that of a date without one.
    """
    if stamp := STAMP.search(text):
        day, digits, zone = stamp["day"].replace("/", "-"), stamp["digits"] or "", stamp["zone"] or zone
        date, form = (f"2000 {day}", "%Y %b %d") if day[0].isalpha() else (day, "%m-%d-%Y" if day[2] == "-" else "%Y-%m-%d")
        try:
            wall = datetime.strptime(f"{date} {stamp['clock']}{zone or 'Z'}", f"{form} %H:%M:%S%z")
        except ValueError:
            return None
        return Moment(wall.timestamp() + float(f"0.{digits or 0}"), 10.0 ** -len(digits), day, zone)
    number = NUMBER.fullmatch(text)
    if number is None or number[3].lower() not in {"", *SECONDS}:
        return None
    value = float(number[1].replace(",", "."))
    # Without a unit the size of a time since 1970 tells it.
    usual_s = next((unit for highest, unit in ((1e11, 1.0), (1e14, 1e-3), (1e17, 1e-6)) if abs(value) < highest), 1e-9)
    scale_s = SECONDS.get(number[3].lower()) or unit_s or usual_s
    return Moment(value * scale_s, scale_s * 10.0 ** -len(number[2] or ""))


def read_log(path: Path, time_column: str | None = None, power_column: str | None = None) -> PowerLog:
    """Return the readings of a log; raises ConfigError if it cannot be read, has no power or no times, or its stamps go backwards."""
    try:
        lines = [line for line in path.read_text(encoding="utf-8-sig", errors="replace").splitlines() if line.strip()]
        is_csv = time_column or power_column or not any(map(_rails, lines))
        log = _read_csv(str(path), lines, time_column, power_column) if is_csv else _read_tegrastats(str(path), lines)
    except (OSError, csv.Error) as error:
        raise ConfigError(f"cannot read the log {str(path)!r}: {error}: correct it") from error
    for before, after in (pair for readings in log.readings.values() for pair in pairwise(moment for moment, _ in readings)):
        if bool(after.day) != bool(before.day):
            raise ConfigError(f"{str(path)!r} has numbers and dates as stamps: keep the lines of one of them")
        if after.at_s < before.at_s:
            raise ConfigError(f"the stamps of {str(path)!r} go backwards, by {before.at_s - after.at_s:.3g} s: cut the log there")
    if not any(log.readings.values()):
        raise ConfigError(f"no line of {str(path)!r} has a time and a power of {log.source}: log both, or name other columns")
    return log


def _rails(line: str) -> list[Rail]:
    matches = RAIL.finditer(MEMORY.sub(" ", line))
    return [Rail(match["name"], int(match["now"]) / 1000) for match in matches if jetson_rails.is_rail(match["name"])]


def _read_tegrastats(path: str, lines: Sequence[str]) -> PowerLog:
    log, board = PowerLog("a Jetson's total", {"": []}, step_w=0.001), None
    for line in lines:
        try:
            rails = _rails(line)
            board = board or jetson_rails.board_of([rail.name for rail in rails])
            power_w = jetson_rails.total_w(board, rails)
        except EdgemeterError:
            continue
        # What `ts` or a container's log puts before the line is finer than its own seconds.
        moment = parse_moment(line.split()[0]) or parse_moment(line)
        if moment is None:
            raise ConfigError(f"the lines of {path!r} have no times: log with `tegrastats | ts '%.s'`")
        log.readings[""].append((moment, power_w))
        log.source = f"{'+'.join(board.total)} ({board.scope}, without {', '.join(board.excludes)})"
    return log


def _read_csv(path: str, lines: Sequence[str], time_column: str | None, power_column: str | None) -> PowerLog:
    # What stands before the heading is none of its rows.
    for number, line in enumerate(lines, 1):
        delimiter = next((sign for sign in ";\t" if sign in line), ",")
        names = [name.strip("# ") for name in next(csv.reader([line], delimiter=delimiter, skipinitialspace=True))]
        time_at = _column(names, time_column or "timestamp")
        power_at = _column(names, power_column or next((name for name in names if name.startswith("power.draw")), ""))
        if time_at is not None and power_at is not None:
            rows = csv.reader(lines[number:], delimiter=delimiter, skipinitialspace=True)
            break
    else:
        if not lines:
            raise ConfigError(f"{path!r} is empty: log to it first")
        begins = lines[0][:120]
        raise ConfigError(f"{path!r} begins with {begins!r}: name two of its columns by --time-column and --power-column")
    device_at = None if power_column else next((at for name in DEVICES if (at := _column(names, name)) is not None), None)
    log = PowerLog(names[power_at], unit_s=_unit(names[time_at], SECONDS))
    if OTHER_UNIT.search(names[power_at]):
        raise ConfigError(f"column {names[power_at]!r} of {path!r} is no power by its unit: name one in W, mW, uW or kW (--power-column)")
    for cells in rows:
        time, power_text, device = ([*cells, *names][at].strip() for at in (time_at, power_at, device_at or 0))
        power, moment = NUMBER.fullmatch(power_text), parse_moment(time, log.unit_s)
        if power is None or moment is None or power[3].lower() not in {"", *WATTS}:
            continue
        unit_w = WATTS.get(power[3].lower()) or _unit(names[power_at], WATTS) or 1.0
        log.step_w = min(log.step_w or unit_w, unit_w * 10.0 ** -len(power[2] or ""))
        readings = log.readings.setdefault("" if device_at is None else device, [])
        if not power_column and readings and readings[-1][0].at_s == moment.at_s:
            raise ConfigError(
                f"{path!r} has two powers at {time}, of several GPUs: log `nvidia-smi --query-gpu=timestamp,index,power.draw`"
            )
        readings.append((moment, unit_w * float(power[1].replace(",", "."))))
    return log


def _column(names: Sequence[str], title: str) -> int | None:
    """Return where a column is, by its name with or without its unit."""
    plain = [re.sub(r"\s*[\[(].*", "", name).casefold() for name in names]
    return next((at for at, name in enumerate(names) if title.casefold() in (name.casefold(), plain[at])), None)


def _unit(name: str, units: Mapping[str, float]) -> float | None:
    """Return the unit that ends a column's name: `power [mW]`, `t_ms`."""
    last_word = re.search(r"([A-Za-zµ]+)\W*$", name)
    return units.get(last_word[1].lower()) if last_word else None


def energy_of(log: PowerLog, between: tuple[str, str] | None = None) -> LoggedEnergy:
    """Return the energy between two moments, by default of the whole log; raises UnavailableError if too few readings lie there."""
    moments = [moment for readings in log.readings.values() for moment, _ in readings]
    begin_s, end_s = min(moment.at_s for moment in moments), max(moment.at_s for moment in moments)
    if between is not None:
        begin_s, end_s = (_asked_s(text, moments[0], log.unit_s) for text in between)
        if end_s <= begin_s:
            raise ConfigError(f"{between[1]!r} is not after {between[0]!r}: give the beginning first")
    step_s = min(moment.step_s for moment in moments)
    parts = [_integral(readings, (begin_s, end_s), log.step_w, step_s) for readings in log.readings.values()]
    energies_j, lows_j, highs_j, covered_s = zip(*parts, strict=True)
    if not all(covered_s) or min(covered_s) < LEAST_COVERED_RATIO * (end_s - begin_s):
        first, last = (_clock(moment) for moment in (moments[0], moments[-1]))
        raise UnavailableError(
            f"readings of {log.source} cover {min(covered_s):.3g} s of these {end_s - begin_s:.4g} s, and the log goes from {first} to "
            f"{last}: give a time that has readings all along"
        )
    if sum(energies_j) <= 0:
        raise UnavailableError(f"{log.source} is 0 W or less: the meter is reversed or disconnected, or the column is another one")
    return LoggedEnergy(
        source=log.source + (f" of {len(parts)} GPUs" if len(parts) > 1 else ""),
        energy_j=sum(energies_j),
        low_j=sum(lows_j),
        high_j=sum(highs_j),
        mean_power_w=sum(energy_j / part_s for energy_j, part_s in zip(energies_j, covered_s, strict=True)),
        window_s=end_s - begin_s,
        coverage_ratio=min(covered_s) / (end_s - begin_s),
        readings=sum(begin_s <= moment.at_s <= end_s for moment in moments),
    )


def _clock(moment: Moment) -> str:
    zone = " UTC" if moment.zone else ""
    return f"{datetime.fromtimestamp(moment.at_s, timezone.utc):%H:%M:%S}{zone}" if moment.day else f"{moment.at_s:.10g} s"


def _asked_s(text: str, first: Moment, unit_s: float | None) -> float:
    """Return a moment that the user gives, in the log's seconds."""
    if (clock := CLOCK.fullmatch(text)) and first.day:
        text = f"{first.day} {clock[1]}{clock[2] or ':00'}"
    moment = parse_moment(text, unit_s, first.zone)
    if moment is None or (not moment.day, not moment.zone) != (not first.day, not first.zone):
        kind = "numbers" if not first.day else "dates with a zone" if first.zone else "dates without a zone"
        raise ConfigError(f"{text!r} is no moment of this log, whose stamps are {kind}: write it as they are")
    return moment.at_s


def _integral(
    readings: Sequence[tuple[Moment, float]], window_s: tuple[float, float], step_w: float, step_s: float
) -> tuple[float, float, float, float]:
    """Return the energy within a window and its bounds, J, and the time that it covers, s."""
    powers_w = np.array([power_w for _, power_w in readings])
    # A coarse clock stamps several readings alike: their mean is taken, and their least and highest power as bounds.
    at_s, groups = np.unique([moment.at_s for moment, _ in readings], return_index=True)
    mean_w = np.add.reduceat(powers_w, groups) / np.diff(np.append(groups, powers_w.size))
    low_w, high_w = np.minimum.reduceat(powers_w, groups), np.maximum.reduceat(powers_w, groups)
    steps_s = np.diff(at_s)
    first_s, last_s = np.maximum(at_s[:-1], window_s[0]), np.minimum(at_s[1:], window_s[1])
    counts = (last_s > first_s) & (steps_s <= GAP_RATIO * statistics.median_low(steps_s.tolist() or [0.0]))
    if not counts.any():
        return 0.0, 0.0, 0.0, 0.0
    first_s, last_s = first_s[counts], last_s[counts]
    lengths_s, ends_w = last_s - first_s, np.interp([first_s[0], last_s[-1]], at_s, mean_w)
    energy_j = lengths_s @ np.interp((first_s + last_s) / 2, at_s, mean_w)
    low_j = lengths_s @ np.minimum(low_w[:-1], low_w[1:])[counts]
    high_j = lengths_s @ np.maximum(high_w[:-1], high_w[1:])[counts]
    # Each power is off by half its last digit, and each stamp by one of its own, which cancels between equal powers.
    changes_w = np.abs(np.diff(mean_w))[counts]
    off_j = step_w / 2 * lengths_s.sum() + step_s * (changes_w.sum() + np.abs(ends_w).sum())
    return float(energy_j), float(low_j - off_j), float(high_j + off_j), float(lengths_s.sum())
