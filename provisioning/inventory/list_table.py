"""The table and the JSON of `edgemeter fleet list`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from edgemeter.agent.health.contract import Health
from edgemeter.provisioning.inventory.overview import Line
from edgemeter.provisioning.inventory.wording import ABSENT, NS_PER_S, age, plain, size, stamp

STYLES = {
    "online": "green",
    "offline": "yellow",
    "lost": "red",
    "good": "green",
    "suspect": "red",
    "needs a hand": "bold red",
}
# What a narrow terminal shows last, from the least needed on; JSON and `fleet show` have it all.
LEAST_NEEDED = ("clock", "disk free", "certificate", "sensors", "valid", "agent", "last run", "board", "job")
NOTE_WIDTH = 44
BETWEEN = 2


@dataclass(frozen=True, slots=True)
class _Column:
    heading: str
    text: Callable[[Line, int], str]
    justify: str = "left"


def shown(lines: Sequence[Line], now_ns: int, width: int) -> tuple[Table, list[str]]:
    """Return the devices, a row each, in as many columns as `width` holds, and what has to be said below."""
    columns = _fitting(lines, now_ns, width)
    is_told = any(column.heading == "note" for column in columns)
    below = [] if is_told else [f"{line.device.device}: {plain(line.concerns[0].text)}" for line in lines if line.concerns]
    return _table(columns, lines, now_ns), below


def _table(columns: Sequence[_Column], lines: Sequence[Line], now_ns: int) -> Table:
    made = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        is_note = column.heading == "note"
        made.add_column(
            column.heading,
            justify="right" if column.justify == "right" else "left",
            no_wrap=not is_note,
            overflow="fold" if is_note else "ellipsis",
            min_width=12 if is_note else None,
        )
    for line in lines:
        made.add_row(*(_cell(column, line, now_ns) for column in columns), style="dim" if line.device.standing == "revoked" else None)
    return made


def summary(lines: Sequence[Line]) -> str:
    """Return how many there are, and how many of them somebody should look at."""
    states = [line.presence or "never heard" for line in lines]
    told = ", ".join(f"{states.count(name)} {name}" for name in ("online", "offline", "lost", "never heard", "revoked") if name in states)
    suspect = sum(line.condition == "suspect" for line in lines)
    hand = sum(line.condition == "needs a hand" for line in lines)
    more = [f"{count} {what}" for count, what in ((suspect, "suspect"), (hand, "need a hand")) if count]
    return f"{len(lines)} device{'s' * (len(lines) != 1)}: {', '.join([told, *more]) or 'none'}"


def document(line: Line) -> dict[str, Any]:
    """Return a device as JSON shows it; absent is null."""
    health = line.health
    return {
        "device": line.device.device,
        "fleet": line.device.fleet,
        "board": line.board,
        "serial": line.device.serial or (health.serial if health else None),
        "tags": list(line.device.tags),
        "standing": line.device.standing,
        "presence": line.presence,
        "presence_since": stamp(line.presence_since_ns),
        "health": line.condition,
        "health_reason": line.standing.reason if line.standing else None,
        "health_since": stamp(line.standing.since_ns) if line.standing else None,
        "concerns": [{"kind": one.kind, "text": one.text} for one in line.concerns],
        "agent": line.agent,
        "valid_ratio": valid_ratio(health),
        "certificate_not_after": stamp(health.certificate_not_after_ns) if health else None,
        "last_run": stamp(health.runs.last_ns) if health else None,
        "last_verdict": health.runs.last_verdict if health else None,
        "job": None if line.job is None else {"job": line.job.job, "state": line.job.state, "done_ratio": line.job.done_ratio},
        "power_cut_times": line.rescue.attempts if line.rescue else 0,
    }


def valid_ratio(health: Health | None) -> float | None:
    """Return which share of the last runs were valid, None where there was none."""
    if health is None or not (count := sum(health.runs.verdicts.values())):
        return None
    return health.runs.verdicts.get("valid", 0) / count


def sensors(health: Health | None) -> str:
    """Return the power sensors, with the age of their calibration in days."""
    if health is None:
        return ABSENT
    told = []
    for one in health.sensors:
        calibrated = "uncalibrated" if one.calibration_age_days is None else f"{one.calibration_age_days:.0f} d"
        told.append(f"{one.name} ({'cannot be read' if one.trouble and one.id is None else calibrated})")
    return plain(", ".join(told)) or "none"


def clock(health: Health | None) -> str:
    """Return the state of the clock in a word or two."""
    if health is None:
        return ABSENT
    if health.clock.is_behind_floor:
        return "set back"
    return {True: "right", False: "not set", None: "not told"}[health.clock.is_synchronised]


def _fitting(lines: Sequence[Line], now_ns: int, width: int) -> list[_Column]:
    columns = list(COLUMNS)
    if len({line.device.fleet for line in lines}) < 2:
        columns = [column for column in columns if column.heading != "fleet"]
    # A reason needs room: where there is none for a column, it stands below the table.
    for heading in ("note", *LEAST_NEEDED):
        if sum(_width(column, lines, now_ns) + BETWEEN for column in columns) <= width:
            break
        columns = [column for column in columns if column.heading != heading]
    return columns


def _width(column: _Column, lines: Sequence[Line], now_ns: int) -> int:
    widest = max([len(column.heading), *(len(column.text(line, now_ns)) for line in lines)])
    return min(widest, NOTE_WIDTH) if column.heading == "note" else widest


def _cell(column: _Column, line: Line, now_ns: int) -> Text:
    text = column.text(line, now_ns)
    style = ""
    if column.heading == "presence":
        style = STYLES.get(line.presence or "", "dim")
    elif column.heading == "health":
        style = STYLES.get(line.condition, "dim")
    return Text(text, style=style)


def _presence(line: Line, now_ns: int) -> str:
    if line.device.standing == "pending":
        return "pending"
    if line.presence is None or line.presence_since_ns is None:
        return "never heard"
    return f"{line.presence} {age(now_ns - line.presence_since_ns)}"


def _last_run(line: Line, now_ns: int) -> str:
    runs = line.health.runs if line.health else None
    if runs is None or runs.last_ns is None:
        return ABSENT
    return plain(f"{age(now_ns - runs.last_ns)}, {runs.last_verdict}")


def _certificate(line: Line, now_ns: int) -> str:
    end_ns = line.health.certificate_not_after_ns if line.health else None
    if end_ns is None:
        return ABSENT
    return "ended" if end_ns < now_ns else f"{(end_ns - now_ns) / NS_PER_S / 86_400:.0f} d"


def _disk(line: Line, _now_ns: int) -> str:
    free_bytes = line.health.disk.free_bytes if line.health else None
    return ABSENT if free_bytes is None else size(free_bytes)


def _job(line: Line, _now_ns: int) -> str:
    if line.job is None:
        return ABSENT
    ratio = "" if line.job.done_ratio is None else f" {line.job.done_ratio:.0%}"
    return f"{line.job.job.partition('-')[0]} {line.job.state}{ratio}"


def _valid(line: Line, _now_ns: int) -> str:
    ratio = valid_ratio(line.health)
    return ABSENT if ratio is None or line.health is None else f"{ratio:.0%} of {sum(line.health.runs.verdicts.values())}"


COLUMNS = (
    _Column("device", lambda line, _: line.device.device),
    _Column("fleet", lambda line, _: line.device.fleet),
    _Column("board", lambda line, _: plain(line.board or ABSENT)),
    _Column("presence", _presence),
    _Column("health", lambda line, _: line.condition),
    _Column("agent", lambda line, _: plain(line.agent or ABSENT)),
    _Column("last run", _last_run),
    _Column("valid", _valid, "right"),
    _Column("sensors", lambda line, _: sensors(line.health)),
    _Column("certificate", _certificate, "right"),
    _Column("clock", lambda line, _: clock(line.health)),
    _Column("disk free", _disk, "right"),
    _Column("job", _job),
    _Column("note", lambda line, _: plain(line.concerns[0].text) if line.concerns else ""),
)
