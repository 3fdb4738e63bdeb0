"""All that is known of one device, as `edgemeter fleet show` prints it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from edgemeter.agent.health.contract import Health
from edgemeter.provisioning.health import golden
from edgemeter.provisioning.health.golden import GoldenRun
from edgemeter.provisioning.inventory import list_table, narrow_table
from edgemeter.provisioning.inventory.list_table import STYLES
from edgemeter.provisioning.inventory.overview import Line
from edgemeter.provisioning.inventory.wording import age, day, plain, size, stamp
from edgemeter.provisioning.jobs.executions import Execution
from edgemeter.provisioning.rescue.attempts import PowerAction

GOLDEN_SHOWN = 8


def sheet(
    line: Line, runs: Sequence[GoldenRun], actions: Sequence[PowerAction], last_golden: Execution | None, now_ns: int
) -> RenderableType:
    """Return what there is to say of a device, its concerns first; `last_golden` is its last golden job that ended, however."""
    parts: list[RenderableType] = [_heading(line)]
    parts += [
        Text(f"! {plain(one.text)}", style="red" if one.kind in {"needs a hand", "lost", "suspect"} else "yellow") for one in line.concerns
    ]
    facts = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, text in _facts(line, runs, last_golden, now_ns):
        facts.add_row(name, Text(plain(text) or "not told"))
    parts += [Text(""), facts]
    if runs:
        parts += [Text(""), _golden(runs)]
    if actions:
        parts += [Text(""), _power(actions)]
    return Group(*parts)


def document(line: Line, runs: Sequence[GoldenRun], actions: Sequence[PowerAction]) -> dict[str, Any]:
    """Return all of it as JSON shows it."""
    golden_runs = [
        {"job": one.job, "ended": stamp(one.ended_ns), "figures": dict(one.figures), "outside": list(one.doubted), "in_band": one.is_kept}
        for one in runs
    ]
    power = [
        {"action": one.action, "by": one.asked_by, "switch": one.switch, "began": stamp(one.began_ns), "outcome": one.outcome}
        for one in actions
    ]
    said = msgspec.to_builtins(line.health) if line.health else None
    return {**list_table.document(line), "said": said, "golden_runs": golden_runs, "power_actions": power}


def _heading(line: Line) -> Text:
    told = Text(line.device.device, style="bold")
    told.append(f"  {line.device.fleet}, ", style="none")
    if line.device.standing != "revoked":
        told.append(f"{line.device.standing}, ")
    state = line.presence or "never heard"
    told.append(state, style=STYLES.get(state, "dim"))
    told.append(", ")
    told.append(line.condition, style=STYLES.get(line.condition, "dim"))
    return told


def _facts(line: Line, runs: Sequence[GoldenRun], last_golden: Execution | None, now_ns: int) -> Iterator[tuple[str, str]]:
    device, health = line.device, line.health
    said = line.heard.board if line.heard else None
    yield "board", " ".join(filter(None, (device.board, f"({said})" if said else None))) or "not told"
    yield "serial", device.serial or (health.serial if health else None) or "not told"
    if device.tags:
        yield "tags", ", ".join(device.tags)
    if device.circuit:
        yield "circuit", device.circuit + ("" if device.power_w is None else f", draws {device.power_w:g} W")
    if line.presence_since_ns is not None:
        yield "presence", f"{line.presence} since {day(line.presence_since_ns)} UTC ({age(now_ns - line.presence_since_ns)})"
    if line.job is not None:
        yield "job", f"{line.job.job}, {line.job.state}{f': {line.job.doing}' if line.job.doing else ''}"
    failed = f"; its last golden job: {last_golden.state.replace('_', ' ')}, {last_golden.reason}" if _has_failed(last_golden) else ""
    yield "golden run", golden.told(runs[-1] if runs else None, list(runs[:-1])) + failed
    if health is not None:
        yield from _said(health, now_ns)
    else:
        yield "agent", line.agent or "not told"
        yield "health", "it has not said how it stands"


def _has_failed(last_golden: Execution | None) -> TypeGuard[Execution]:
    return last_golden is not None and last_golden.state != "done"


def _said(health: Health, now_ns: int) -> Iterator[tuple[str, str]]:
    releases = [
        f"before it {health.previous_agent}" if health.previous_agent else None,
        f"did not work: {', '.join(health.bad_agents)}" if health.bad_agents else None,
    ]
    yield "agent", "; ".join(filter(None, (health.agent, *releases)))
    yield "system", ", ".join(filter(None, (health.os, f"kernel {health.kernel}" if health.kernel else None, health.arch)))
    yield "python", ", ".join(filter(None, (health.python, f"glibc {health.glibc}" if health.glibc else None)))
    modes = [f"power mode {health.power_mode}" if health.power_mode else None, f"governor {health.governor}" if health.governor else None]
    if any(modes):
        yield "mode", ", ".join(filter(None, modes))
    yield "sensors", list_table.sensors(health)
    if (end_ns := health.certificate_not_after_ns) is not None:
        yield "certificate", f"ends {day(end_ns)} UTC ({f'in {age(end_ns - now_ns)}' if end_ns > now_ns else 'it has ended'})"
    offset = "" if health.clock.offset_ms is None else f", {health.clock.offset_ms:+.3g} ms to correct"
    yield "clock", list_table.clock(health) + offset
    yield "disk", _disk(health)
    dropped = f"; dropped {health.dropped_records} results, {health.dropped_traces} traces" if health.dropped_records else ""
    yield "outbox", f"{health.waiting_records} wait{dropped}"
    yield "runs", _runs(health, now_ns)
    if health.temperatures_c:
        yield "temperatures", ", ".join(f"{name} {value_c:.0f} C" for name, value_c in sorted(health.temperatures_c.items()))
    throttled = {True: "yes", False: "no", None: "not told"}
    weak = throttled[health.is_under_voltage_since_boot]
    yield "since boot", f"throttled: {throttled[health.is_throttled_since_boot]}, under-voltage: {weak}"
    if health.uptime_s is not None:
        reason = f", started by: {health.reset_reason}" if health.reset_reason else ""
        yield "up", f"{age(int(health.uptime_s * 1e9))} when it said this{reason}"
    words = health.last_words
    when = f" ({day(words.at_ns)} UTC)" if words.at_ns else ""
    yield "last words", f"{words.kind}{when}{f': {words.text}' if words.text else ''}"
    yield "told", f"{day(health.told_ns)} UTC by its own clock"


def _disk(health: Health) -> str:
    disk = health.disk
    if disk.free_bytes is None or not disk.size_bytes:
        return "not told"
    told = [f"{size(disk.free_bytes)} of {size(disk.size_bytes)} free"]
    if disk.wear_ratio is not None:
        told.append(f"up to {disk.wear_ratio:.0%} of its life used")
    if disk.written_bytes is not None:
        told.append(f"{size(disk.written_bytes)} written")
    return ", ".join(told)


def _runs(health: Health, now_ns: int) -> str:
    runs = health.runs
    if runs.last_ns is None:
        return "none yet"
    counts = ", ".join(f"{count} {verdict}" for verdict, count in runs.verdicts.items())
    return f"last {age(now_ns - runs.last_ns)} ago: {runs.last_verdict}; of the last {sum(runs.verdicts.values())}: {counts}"


def _golden(runs: Sequence[GoldenRun]) -> Table:
    shown = runs[-GOLDEN_SHOWN:]
    names = list(dict.fromkeys(name for one in shown for name in one.figures))
    made = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    made.add_column("golden run (UTC)", no_wrap=True)
    for name in names:
        # What is measured and its unit stand below each other where there is little room.
        made.add_column(" ".join(name.rsplit("_", 1)), overflow="fold", justify="right")
    made.add_column("outside", overflow="fold")
    for one in reversed(shown):
        cells = (day(one.ended_ns), *(_figure(one.figures, name) for name in names), ", ".join(one.doubted))
        made.add_row(*cells, style=None if one.is_kept else "red")
    return made


def _power(actions: Sequence[PowerAction]) -> Table:
    rows = [
        [plain(cell) for cell in (day(one.began_ns), one.action, one.asked_by, one.switch, one.outcome or "being done")] for one in actions
    ]
    return narrow_table.table(("power (UTC)", "what", "by", "switch", "outcome"), rows, folded={"by", "switch", "outcome"})


def _figure(figures: Mapping[str, float], name: str) -> str:
    return f"{figures[name]:.4g}" if name in figures else "-"
