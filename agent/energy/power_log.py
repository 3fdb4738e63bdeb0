"""The energy of a finished run from the log of a power meter.

The log is one of tegrastats with times, nvidia-smi's CSV, or any CSV.

The energy is the area below straight lines between the readings (trapezoids). The log does not show
the power between two readings, so the interval holds any power between those of neighbouring
readings. It also has the digits that powers and timestamps lack, but not the error of the meter.
Gaps of more than three times the usual distance do not count; if less than nine tenths are covered,
there is no energy.
"""

import csv
import math
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.agent.base.foreign_text import log_text, with_points
from edgemeter.agent.base.stamps import (
    DAY_S,
    EARLIEST_S,
    NUMBER,
    SECONDS,
    Moment,
    in_order,
    parse_moment,
    parse_prefix,
)
from edgemeter.agent.power import Rail, jetson_rails

GAP_RATIO, LEAST_COVERED_RATIO = 3.0, 0.9
# Larger powers without a unit may be mW; larger voltages are those of mains, where volts times
# amperes are no power.
LARGE_W, LARGE_V = 1000.0, 60.0
WATTS = {"w": 1.0, "watt": 1.0, "watts": 1.0, "mw": 1e-3, "milliwatts": 1e-3, "uw": 1e-6, "kw": 1e3}
SCALES = {**WATTS, "v": 1.0, "mv": 1e-3, "a": 1.0, "ma": 1e-3, "ua": 1e-6}
CLOCK = re.compile(r"(\d\d:\d\d)(:\d\d(?:\.\d+)?)?")

# `VDD_IN 4873mW/4900mW`: a rail of tegrastats with its power now and its mean, mW; some releases
# have a third number. The numbers of `RAM 2147/7620MB (lfb 2x4MB)` are no powers.
RAIL = re.compile(
    r"""
    (?<![@\w]) (?P<name>[A-Z][A-Z0-9_]*) [ ]
    (?P<now>-?\d+)(?:mW)? / -?\d+(?:mW)? (?: / -?\d+(?:mW)? )?
    (?![\w(.])
    """,
    re.VERBOSE,
)
MEMORY = re.compile(r"\bI?(?:RAM|SWAP) \d+/\d+\s?[kMG]?B")
TOTALS = {name for board in jetson_rails.JETSON_BOARDS for name in board.total}


def _heading(names: str, units: Mapping[str, float]) -> re.Pattern[str]:
    """Return the pattern of a column's heading, such as `Main Avg Power (mW)`.

    It consists of further words (`kind`), one of the names, and its `unit`.
    """
    return re.compile(
        rf"""
        (?P<kind>                           # Further words, but none of another quantity.
            (?!.*(?<![a-z])
                (?:max|min|peak|limit|apparent|reactive|inference|latency|delta)(?![a-z]))
            .*[^a-z]
        )??
        (?:{names})
        (?:[ _/]* [\[(]? (?P<unit>{"|".join(units)}) [\])]?)?
        """,
        re.IGNORECASE | re.VERBOSE,
    )


# `timestamp`, `Date/Time`, `t_s`, `time (ms)`.
TIME = _heading(r"time(?:[ _]?stamp)? | date(?:[ /_]?time)? | ts?", SECONDS)
# `power.draw [W]`, `active power`, `apower`, `pwr`, `P[mW]`; or the unit alone: `Watts`.
POWER = _heading(
    rf"(?:active[ _]?|a)?power(?:\.draw)? | pwr | p | (?=(?:{'|'.join(WATTS)})[\])]?$)", WATTS
)
# `Main Voltage (V)`, `vbus_mV` and `Main (mA)`, `current_A`.
VOLTS = re.compile(r".*(?:volt|vbus|\bu\b).*[\[(_ ]m?v[\])]?", re.IGNORECASE)
AMPERES = re.compile(r".*[\[(_ ][mu]?a[\])]?", re.IGNORECASE)
# A heading that ends in the unit of another quantity: `Power (VA)`, `power_mJ`.
OTHER_UNIT = re.compile(
    r"(?:[\[(]\s*|_)(?:[munk]?(?:a|v|j|ah|wh|as|ws|va|var)|%)\s*[\])]?$", re.IGNORECASE
)
BRACKETS = re.compile(r"\s*[\[(].*")
# Headings of columns that name the device of a row: GPUs of nvidia-smi, whose powers are added up,
# and others, which are refused.
GPUS = ("index", "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "gpu")
DEVICES = (
    "device",
    "host",
    "hostname",
    "channel",
    "phase",
    "sensor",
    "rail",
    "entity_id",
    "_field",
    "plug",
    "port",
    "name",
    *GPUS[1:],
)


@dataclass(slots=True)
class PowerLog:
    """The readings of a log by device, each its time and power in W.

    `source` names the column or rails; `unit_s` is the unit of times.
    """

    source: str
    readings: dict[str, list[tuple[Moment, float]]] = field(default_factory=dict)
    step_w: float = 0.0
    unit_s: float | None = None


@dataclass(frozen=True, slots=True)
class LoggedEnergy:
    """An energy with its `interval`, in J, and the mean power of the covered time.

    `coverage_ratio` is the covered share of the window.
    """

    source: str
    energy_j: float
    low_j: float
    high_j: float
    mean_power_w: float
    window_s: float
    coverage_ratio: float
    readings: int
    interval: str = (
        "any power between neighbouring readings, and the digits of the log; not the "
        "error of the meter"
    )


def read_log(
    path: Path, time_column: str | None = None, power_column: str | None = None
) -> PowerLog:
    """Return the readings of a log.

    Raises:
        ConfigError: it cannot be read, has no powers or times, or has times that go backwards.
    """
    try:
        return _read(log_text(path.read_bytes()), time_column, power_column)
    except ConfigError as error:
        raise ConfigError(f"{str(path)!r} {error}") from error
    except (OSError, csv.Error) as error:
        raise ConfigError(f"cannot read the log {str(path)!r}: {error}: correct it") from error


def _read(text: str, time_column: str | None, power_column: str | None) -> PowerLog:
    lines = [line.strip(" ") for line in text.splitlines() if line.strip()]
    if not lines:
        raise ConfigError("is empty: log to it first")
    is_csv = (
        time_column
        or power_column
        or not any(
            MEMORY.search(line) or TOTALS & {rail.name for rail in _rails(line)} for line in lines
        )
    )
    log = (
        _read_csv(lines, time_column, power_column, is_cut=text[-1] not in "\r\n")
        if is_csv
        else _read_tegrastats(lines)
    )
    for readings in log.readings.values():
        readings[:] = zip(
            in_order(moment for moment, _ in readings),
            [power_w for _, power_w in readings],
            strict=True,
        )
    return log


def _rails(line: str) -> list[Rail]:
    matches = RAIL.finditer(MEMORY.sub(" ", line))
    return [
        Rail(match["name"], int(match["now"]) / 1000)
        for match in matches
        if jetson_rails.is_rail(match["name"])
    ]


def _read_tegrastats(lines: Sequence[str]) -> PowerLog:
    """Return the total powers of lines with all rails.

    Raises:
        ConfigError: there are no rails or no times, or the lines are of two boards.
    """
    log, board, sources, time_before = (
        PowerLog("", {"": []}, step_w=0.001),
        None,
        Counter[str](),
        None,
    )
    for line in lines:
        begin = next(
            (match.start() for match in (MEMORY.search(line), RAIL.search(line)) if match),
            len(line),
        )
        moment, source = parse_prefix(line[:begin])
        try:
            rails = _rails(line)
            board = board or jetson_rails.board_of([rail.name for rail in rails])
            power_w = jetson_rails.total_w(board, rails)
        except EdgemeterError:
            # A loop may print `date` on a line of its own.
            time_before = moment if moment and " " not in source else time_before
            continue
        # The log of a container in JSON has the time at the end.
        moment = moment or time_before or parse_moment(line[begin:])
        if moment is None:
            raise ConfigError("has no times before its lines: log with `tegrastats | ts '%.s'`")
        sources[source] += 1
        log.readings[""].append((moment, power_w))
    if board is None:
        raise ConfigError(
            "has no line with the rails of a Jetson's total: log with `sudo tegrastats`"
        )
    repeated = [repr(source) for source, count in sources.most_common(3) if count > 1]
    if len(repeated) > 1:
        raise ConfigError(
            f"has lines of several sources ({', '.join(repeated)}): keep those of one by grep"
        )
    log.source = f"{'+'.join(board.total)} ({board.scope}, without {', '.join(board.excludes)})"
    return log


def _read_csv(
    lines: Sequence[str], time_title: str | None, power_title: str | None, *, is_cut: bool
) -> PowerLog:
    """Return the readings below the first heading with columns of time and power.

    `is_cut` says that the last line has no end.
    """
    source = ""
    for index in range(len(lines)):
        delimiter, names, first_row = _names(lines, index)
        times = _columns(names, time_title, TIME, SECONDS, "--time-column")
        powers = _columns(names, power_title, POWER, WATTS, "--power-column")
        if not powers and not power_title:
            powers = _volts_and_amperes(names)
        if not (times and powers):
            continue
        log = _read_rows(
            names,
            _rows(lines[first_row:], delimiter, len(names), (*times, *powers), is_cut=is_cut),
            times,
            powers,
        )
        stamps = [moment for readings in log.readings.values() for moment, _ in readings]
        if not stamps:
            source = source or log.source
            continue
        if not (time_title or log.unit_s) and all(
            not stamp.day and stamp.at_s < EARLIEST_S and stamp.at_s % 1 == 0 for stamp in stamps
        ):
            raise ConfigError(
                "has whole numbers as times: name their unit, as in --time-column "
                f"'{names[min(times)]} [ms]'"
            )
        return log
    if source:
        raise ConfigError(
            f"has no line with a time and a power of {source}: log both, or name other columns"
        )
    raise ConfigError(
        f"begins with {lines[0][:120]!r}: name two of its columns by --time-column and "
        "--power-column, or make it a CSV"
    )


class _Heading(NamedTuple):
    """A line of headings: its delimiter, the names of its columns, and the first row below."""

    delimiter: str
    names: list[str]
    first_row: int


def _names(lines: Sequence[str], index: int) -> _Heading:
    """Return the heading at a line, with the units from the next line, if there are any."""
    delimiter = next((sign for sign in ";\t," if sign in lines[index]), " ")
    names, *below = csv.reader(lines[index : index + 2], delimiter=delimiter, skipinitialspace=True)
    # nvidia-smi with `noheader`: the line itself is a row.
    if any(re.fullmatch(r"[\d.]+ W", name) for name in names):
        return _Heading(
            delimiter,
            [
                "power.draw [W]" if name.endswith(" W") else "timestamp" if "/" in name else ""
                for name in names
            ],
            index,
        )
    units = (
        [cell.strip("[() ]") for cell in below[0]]
        if below and not any(map(NUMBER.fullmatch, below[0]))
        else []
    )
    pairs = zip_longest([name.strip("# ") for name in names], units, fillvalue="")
    return _Heading(
        delimiter,
        [
            f"{name} [{unit}]" if unit.lower() in {*SECONDS, *WATTS} else name
            for name, unit in pairs
        ],
        index + 1,
    )


def _rows(
    lines: Sequence[str], delimiter: str, width: int, columns: Sequence[int], *, is_cut: bool
) -> list[list[str]]:
    """Return the rows of a table, filled up to its width.

    The numbers of these columns have decimal points.
    """
    rows = [
        [cell.strip() for cell in cells]
        for cells in csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    ]
    if is_cut and _ends_early(rows, max(columns)):
        rows.pop()
    rows = [cells + [""] * (width - len(cells)) for cells in rows]
    cells_of_numbers = [(cells, column) for cells in rows for column in columns]
    numbers = with_points(
        [cells[column] for cells, column in cells_of_numbers], parted_by=delimiter
    )
    for (cells, column), number in zip(cells_of_numbers, numbers, strict=True):
        cells[column] = number
    return rows


def _ends_early(rows: Sequence[Sequence[str]], column: int) -> bool:
    """Return whether the last row is cut off.

    It is if it lacks cells, or if this column is the last and has another form or fewer digits.
    """
    forms = [
        (re.sub(r"\d+", "0", cells[column]), len(re.split(r"\D+", cells[column].rstrip("WZ "))[-1]))
        for cells in rows
        if column == len(cells) - 1
    ]
    is_other = bool(forms) and all(
        forms[-1][0] != form or forms[-1][1] < digits for form, digits in forms[:-1]
    )
    return bool(rows) and (is_other or len(rows[-1]) < max(map(len, rows)))


def _unit(name: str, units: Mapping[str, float]) -> str:
    last_word = re.search(r"([A-Za-z]+)\W*$", name)
    return last_word[1].lower() if last_word and last_word[1].lower() in units else ""


def _columns(
    names: Sequence[str],
    title: str | None,
    heading: re.Pattern[str],
    units: Mapping[str, float],
    option: str,
) -> dict[int, str]:
    """Return the indices and units of the columns with this title or such a heading.

    A date and a time may be two columns.
    """
    if title is None:
        matches = {
            index: match for index, name in enumerate(names) if (match := heading.fullmatch(name))
        }
        exact = {index: match for index, match in matches.items() if not match["kind"]}
        columns = {
            index: (match["unit"] or "").lower() for index, match in (exact or matches).items()
        }
    else:
        bare = [BRACKETS.sub("", name).lower() for name in names]
        titles = title.lower(), BRACKETS.sub("", title).lower()
        fitting = [
            index
            for index, name in enumerate(names)
            if name.lower() in titles or bare[index] == titles[0]
        ]
        columns = {index: _unit(names[index], units) or _unit(title, units) for index in fitting}
    if len(columns) > 1 and sorted(names[index].lower() for index in columns) != ["date", "time"]:
        raise ConfigError(
            f"has {' and '.join(repr(names[index]) for index in columns)}: name one of "
            f"them by {option}"
        )
    if any(OTHER_UNIT.search(names[index]) and not unit for index, unit in columns.items()):
        raise ConfigError(
            f"has {names[min(columns)]!r}, which is in another unit: name a column in "
            f"{', '.join(units)} by {option}"
        )
    return columns


def _volts_and_amperes(names: Sequence[str]) -> dict[int, str]:
    volts, amperes = (
        [index for index, name in enumerate(names) if heading.fullmatch(name)]
        for heading in (VOLTS, AMPERES)
    )
    return (
        {index: _unit(names[index], SCALES) for index in (*volts, *amperes)}
        if len(volts) == len(amperes) == 1
        else {}
    )


def _read_rows(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    times: Mapping[int, str],
    powers: Mapping[int, str],
) -> PowerLog:
    log = PowerLog(
        " x ".join(names[column] for column in powers),
        unit_s=SECONDS.get(next(iter(times.values()))),
    )
    is_nvidia, is_product = log.source.startswith(("power.draw", "pwr")), len(powers) > 1
    device_column = next(
        (
            column
            for column, name in enumerate(names)
            if name.lower() in (GPUS if is_nvidia else DEVICES)
        ),
        None,
    )
    for cells in rows:
        moment = parse_moment(" ".join(cells[column] for column in times), log.unit_s)
        if moment is None:
            continue
        readings = log.readings.setdefault(
            "" if device_column is None else cells[device_column], []
        )
        numbers = [
            number
            for column in powers
            if (number := NUMBER.fullmatch(cells[column])) and number[3].lower() in {"", *WATTS}
        ]
        if len(numbers) < len(powers):
            continue
        if any(cells[len(names) :]):
            raise ConfigError(
                f"has more cells in {' '.join(cells)!r} than in its heading: quote numbers with "
                "decimal commas"
            )
        scales = [
            SCALES[number[3].lower() or unit or "w"]
            for number, unit in zip(numbers, powers.values(), strict=True)
        ]
        values = [float(number[1]) * scale for number, scale in zip(numbers, scales, strict=True)]
        steps = [
            scale * 10.0 ** -len(number[2] or "")
            for number, scale in zip(numbers, scales, strict=True)
        ]
        if is_product and abs(values[0]) > LARGE_V:
            raise ConfigError(
                "has volts of mains, which times amperes are no power: add a column of powers"
            )
        step_w = abs(values[0]) * steps[1] + abs(values[1]) * steps[0] if is_product else steps[0]
        log.step_w = max(log.step_w, step_w) if is_product else min(log.step_w or step_w, step_w)
        if is_nvidia and readings and readings[-1][0].at_s == moment.at_s:
            raise ConfigError(
                "has two powers at one time, of several GPUs: log `nvidia-smi "
                "--query-gpu=timestamp,index,power.draw`"
            )
        readings.append((moment, math.prod(values)))
    if len(log.readings) > 1 and not (is_nvidia and all(log.readings.values())):
        raise ConfigError(
            f"has several devices ({', '.join([*log.readings][:3])}), or no power of one of "
            "them: keep the lines of one"
        )
    powers_w = [power_w for readings in log.readings.values() for _, power_w in readings]
    if not any(powers.values()) and statistics.median(powers_w or [0.0]) > LARGE_W:
        raise ConfigError(
            f"has powers above {LARGE_W:g}: name their unit, as in "
            f"--power-column '{log.source} [mW]'"
        )
    return log


def energy_of(log: PowerLog, between: tuple[str, str] | None = None) -> LoggedEnergy:
    """Return the energy between two times, by default of the whole log.

    Raises:
        UnavailableError: too few readings lie there.
    """
    moments = [moment for readings in log.readings.values() for moment, _ in readings]
    begin_s, end_s = min(moment.at_s for moment in moments), max(moment.at_s for moment in moments)
    if between is not None:
        begin_s, end_s = (_time_in_log_s(text, moments[0], log.unit_s) for text in between)
        if end_s <= begin_s:
            raise ConfigError(
                f"{between[1]!r} is not after {between[0]!r}: give the beginning first"
            )
    step_s = min(moment.step_s for moment in moments)
    parts = [
        _integral(readings, (begin_s, end_s), log.step_w, step_s)
        for readings in log.readings.values()
    ]
    energies_j, lows_j, highs_j, covered_s = zip(*parts, strict=True)
    if not all(covered_s) or min(covered_s) < LEAST_COVERED_RATIO * (end_s - begin_s):
        raise UnavailableError(
            f"readings of {log.source} cover {min(covered_s):.3g} s of these "
            f"{end_s - begin_s:.4g} s; the log is from {moments[0]} "
            f"to {moments[-1]}: give a time that has readings all along"
        )
    if sum(energies_j) <= 0:
        raise UnavailableError(
            f"{log.source} is 0 W or less: the meter is reversed or disconnected, or the column "
            "is another one"
        )
    return LoggedEnergy(
        source=log.source + (f" of {len(parts)} GPUs" if len(parts) > 1 else ""),
        energy_j=sum(energies_j),
        low_j=sum(lows_j),
        high_j=sum(highs_j),
        mean_power_w=sum(
            energy_j / part_s for energy_j, part_s in zip(energies_j, covered_s, strict=True)
        ),
        window_s=end_s - begin_s,
        coverage_ratio=min(covered_s) / (end_s - begin_s),
        readings=sum(begin_s <= moment.at_s <= end_s for moment in moments),
    )


def _time_in_log_s(text: str, first: Moment, unit_s: float | None) -> float:
    """Return the user's time in the log's seconds.

    A time of day without a date is that of the first day, or of the next one.
    """
    clock = CLOCK.fullmatch(text) if first.day else None
    moment = parse_moment(
        f"{first.day} {clock[1]}{clock[2] or ':00'}" if clock else text, unit_s, first.zone
    )
    if moment is None or (not moment.day, not moment.zone) != (not first.day, not first.zone):
        kind = (
            "numbers"
            if not first.day
            else "dates with a zone"
            if first.zone
            else "dates without a zone"
        )
        raise ConfigError(
            f"{text!r} is no time of this log, whose timestamps are {kind}: write it in their form"
        )
    is_next_day = clock is not None and moment.at_s < first.at_s - DAY_S / 2
    return moment.at_s + DAY_S * is_next_day


def _integral(
    readings: Sequence[tuple[Moment, float]],
    window_s: tuple[float, float],
    step_w: float,
    step_s: float,
) -> tuple[float, float, float, float]:
    """Return the energy within a window and its bounds, J, and the covered time, s."""
    powers_w = np.array([power_w for _, power_w in readings])
    # With a coarse clock several readings have one time: their mean counts, and their lowest and
    # highest powers for the bounds.
    at_s, groups = np.unique([moment.at_s for moment, _ in readings], return_index=True)
    mean_w = np.add.reduceat(powers_w, groups) / np.diff(np.append(groups, powers_w.size))
    low_w, high_w = np.minimum.reduceat(powers_w, groups), np.maximum.reduceat(powers_w, groups)
    steps_s = np.diff(at_s)
    first_s, last_s = np.maximum(at_s[:-1], window_s[0]), np.minimum(at_s[1:], window_s[1])
    counts = (last_s > first_s) & (
        steps_s <= GAP_RATIO * statistics.median_low(steps_s.tolist() or [0.0])
    )
    if not counts.any():
        return 0.0, 0.0, 0.0, 0.0
    first_s, last_s = first_s[counts], last_s[counts]
    lengths_s, ends_w = last_s - first_s, np.interp([first_s[0], last_s[-1]], at_s, mean_w)
    energy_j = lengths_s @ np.interp((first_s + last_s) / 2, at_s, mean_w)
    low_j = lengths_s @ np.minimum(low_w[:-1], low_w[1:])[counts]
    high_j = lengths_s @ np.maximum(high_w[:-1], high_w[1:])[counts]
    # Powers are off by half their last digit, times by one of theirs, which cancels between equal
    # powers.
    changes_w = np.abs(np.diff(mean_w))[counts]
    off_j = step_w / 2 * lengths_s.sum() + step_s * (changes_w.sum() + np.abs(ends_w).sum())
    return float(energy_j), float(low_j - off_j), float(high_j + off_j), float(lengths_s.sum())
