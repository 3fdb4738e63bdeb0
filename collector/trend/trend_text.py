"""Trends as text: a sentence for each finding, a table, a JSON document, and the points as CSV."""

from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from edgemeter.agent.base.documents import csv_document, json_document
from edgemeter.agent.base.figures import count, printable, significant
from edgemeter.agent.base.terminal import plain_table
from edgemeter.collector.runs.cases import SeriesKey, grouped
from edgemeter.collector.trend.days import Days
from edgemeter.collector.trend.events import FindingName, TrendEvent, events_of, finding_name, told_by
from edgemeter.collector.trend.finding import Drift, Episode, Missing, Modes, Rise, Scatter, Step, iso
from edgemeter.collector.trend.metrics import METRICS, off_scale
from edgemeter.collector.trend.series_trend import FALSE_DISCOVERIES, SeriesTrend, standing_out
from edgemeter.collector.trend.watch_file import Annotation

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# So many devices of an event are named in its row.
NAMED_DEVICES = 3
UNITS = {"log": "%", "points": " points", "share": " points"}
_STYLES = {"worse": "red", "better": "green", "missing": "yellow"}
_DAYS = ("first_day", "last_day", "begin_day", "day", "day_low", "day_high")


def amount_text(metric: str, value: float) -> str:
    """Return a difference with its sign and unit: `+4.2%`."""
    return f"{'+' if value > 0 else '-' if value < 0 else ''}{significant(abs(value), 2)}{UNITS[METRICS[metric].rule.scale]}"


def level_text(metric: str, value: float) -> str:
    """Return a level in the metric's own unit."""
    if METRICS[metric].rule.scale == "share":
        return f"{max(value, 0.0):.0%}"
    return f"{significant(value, 4)} {METRICS[metric].figure.unit}".rstrip()


def interval_text(metric: str, low: float, high: float) -> str:
    """Return a 95% interval of a difference: `+3.1 .. +5.3%`."""
    unit = UNITS[METRICS[metric].rule.scale]
    return f"{amount_text(metric, low).removesuffix(unit)} .. {amount_text(metric, high)}"


def step_text(metric: str, step: Step) -> str:
    """Return a step in words."""
    size = f"{amount_text(metric, step.size)} ({interval_text(metric, step.low, step.high)})"
    first = iso(step.day) if step.day_low == step.day_high else f"{iso(step.day)} ({iso(step.day_low)} .. {iso(step.day_high)})"
    rests = f"{count(step.days_before, 'day')} before, {step.days_after} after"
    text = f"{size} from {level_text(metric, step.before)} to {level_text(metric, step.after)}, first day {first}; {rests}"
    if step.state == "declared":
        return f"{text}; declared: {'; '.join(step.candidates)}"
    return f"{text}; changed on that day: {', '.join(step.candidates)}" if step.candidates else f"{text}; no known change on that day"


def rise_text(metric: str, rise: Rise) -> str:
    """Return a rise (or a fall) in words."""
    over, against = count(rise.over_days, "day"), count(rise.against_days, "day")
    levels = f"from {level_text(metric, rise.before)} to {level_text(metric, rise.after)}"
    return f"{amount_text(metric, rise.size)} over {over} against the {against} before, {levels}; first day {iso(rise.day)}"


def drift_text(metric: str, drift: Drift) -> str:
    """Return a drift in words."""
    size = f"{amount_text(metric, drift.per_30_days)} ({interval_text(metric, drift.low, drift.high)}) in 30 days"
    period = f"from {iso(drift.day)} to {iso(drift.last_day)}" if drift.is_over else f"since {iso(drift.day)}"
    year = "" if drift.a_year is None else f", {amount_text(metric, drift.a_year)} against a year ago"
    return f"{size}, {period}, {count(drift.days, 'day')}; {amount_text(metric, drift.total)} in all{year}"


def modes_text(metric: str, modes: Modes) -> str:
    """Return two modes in words."""
    levels = f"{level_text(metric, modes.low)} and {level_text(metric, modes.high)} ({amount_text(metric, modes.size)})"
    often = f"{count(modes.changes, 'change')} since {iso(modes.day)}, the newest on {iso(modes.last_day)}"
    return f"back and forth between {levels}, {modes.high_ratio:.0%} of the days at the higher one; {often}"


def episode_text(metric: str, episode: Episode) -> str:
    """Return an episode in words."""
    size = f"{amount_text(metric, episode.size)} ({interval_text(metric, episode.low, episode.high)})"
    return f"{size} from {iso(episode.day)} to {iso(episode.last_day)}, then back; no known change"


def scatter_text(scatter: Scatter) -> str:
    """Return a change of scatter in words."""
    size = f"{significant(scatter.ratio, 2)} times as far" if scatter.ratio > 1 else f"only {significant(scatter.ratio, 2)} times as far"
    return f"days scatter {size} since {iso(scatter.day)}; {count(scatter.days_before, 'day')} before, {scatter.days_after} after"


def missing_text(missing: Missing) -> str:
    """Return a gap in words."""
    usual = "every day" if missing.every_days <= 1 else f"every {significant(missing.every_days, 2)} days"
    return f"no run for {count(missing.silent_days, 'day')}, the last on {iso(missing.day)}; usually {usual}"


def trend_verdict(step: Step) -> str:
    """Return a step's kind in a few words: `worse`, `better`, `too small to matter`, `not settled`, `suspect`."""
    way = "worse" if step.is_worse else "better"
    if step.state == "suspect":
        return f"suspect, {way}"
    if step.matters is None:
        return f"{way}, not settled"
    return way if step.matters else "too small to matter"


def finding_lines(trend: SeriesTrend, until: int, reported: Collection[FindingName] = ()) -> list[tuple[str, str]]:
    """Return the findings of a series: the kind (`step, worse`) and the sentence; without those in `reported`, which events report."""
    steps = [step for step in trend.steps if finding_name(trend, step) not in reported] + ([trend.suspect] if trend.suspect else [])
    lines = [(f"step, {trend_verdict(step)}", step_text(trend.metric, step)) for step in steps]
    if trend.drift is not None:
        lines.append((f"drift, {'worse' if trend.drift.is_worse else 'better'}", drift_text(trend.metric, trend.drift)))
    if trend.modes is not None:
        lines.append(("two modes", modes_text(trend.metric, trend.modes)))
    lines += [("episode, over", episode_text(trend.metric, episode)) for episode in trend.episodes]
    if trend.scatter is not None:
        lines.append(("scatter", scatter_text(trend.scatter)))
    missing = trend.missing(until)
    if missing is not None and finding_name(trend, missing) not in reported:
        lines.append(("missing", missing_text(missing)))
    return lines


def event_kind(event: TrendEvent) -> str:
    """Return an event's kind in a few words: `fleet, worse`, `board, better`, `missing`."""
    if event.kind == "missing":
        return "missing"
    worse = {member.finding.is_worse for member in event.members if isinstance(member.finding, Step)}
    way = "worse and better" if len(worse) > 1 else "worse" if True in worse else "better"
    return f"{'fleet' if event.kind == 'fleet' else 'board'}, {way}"


def event_text(event: TrendEvent) -> str:
    """Return an event in words: its days, its size by metric, and what changed with it."""
    days = iso(event.day_low) if event.day_low == event.day_high else f"{iso(event.day_low)} .. {iso(event.day_high)}"
    if event.kind == "missing":
        return f"no run in {len(event.members):,} series since {days}"
    sizes = grouped((member.series.metric, member.finding.size) for member in event.members if isinstance(member.finding, Step))
    amounts = "; ".join(
        f"{metric} {interval_text(metric, min(values), max(values)) if len(values) > 1 else amount_text(metric, values[0])}"
        for metric, values in sizes.items()
    )
    cause = f"changed with it: {event.cause}" if event.cause else "no known change on that day"
    return f"{count(len(event.members), 'step')}: {amounts}; first day {days}; {cause}"


def event_of(event: TrendEvent) -> str:
    """Return the devices of an event: up to three by name, more by their number and board types."""
    if len(event.devices) <= NAMED_DEVICES:
        return printable(", ".join(event.devices))
    boards = sorted({member.series.key.board for member in event.members})
    return printable(f"{len(event.devices)} devices of {', '.join(boards)}")


def show_trends(trends: Sequence[SeriesTrend], until: int, console: "Console", *, with_quiet: bool, with_members: bool = True) -> None:
    """Print events (unless every member is to be shown), the other findings of each series, then notes."""
    from rich.table import Column, Table  # noqa: PLC0415 - the page writes sentences only
    from rich.text import Text  # noqa: PLC0415

    events, rows = [] if with_members else events_of(trends, until), []
    for event in events:
        cases = sorted({member.series.key.case() for member in event.members})
        metrics = ", ".join(dict.fromkeys(member.series.metric for member in event.members))
        case = cases[0] if len(cases) == 1 else count(len(cases), "case")
        rows.append((event_of(event), case, metrics, "", event_kind(event), event_text(event)))
    reported = told_by(events)
    for trend in trends:
        lines = finding_lines(trend, until, reported)
        if with_quiet and not lines and not finding_lines(trend, until):
            lines = [("steady", _steady(trend))]
        rows += [(subject(trend), trend.key.case(), trend.metric, level_text(trend.metric, trend.level), *line) for line in lines]
    # Folded, never truncated: the ends of `simulated-pi5-07` and `simulated-pi5-08` matter.
    table = Table(*(Column(name, overflow="fold") for name in ("device", "case", "metric", "level now", "what", "evidence")))
    for *cells, kind, text in rows:
        style = next((style for word, style in _STYLES.items() if kind.endswith(word)), "")
        table.add_row(*(Text(printable(cell)) for cell in cells), Text(kind, style=style), Text(printable(text)))
    if table.row_count:
        console.print(table)
    for line in _notes(trends, until):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def subject(trend: SeriesTrend) -> str:
    """Return the device, or the board type with its number of devices."""
    return printable(trend.key.device or f"{trend.key.board} ({trend.devices} devices)")


def _steady(trend: SeriesTrend) -> str:
    text = f"{count(trend.points, 'day')}, {count(trend.runs, 'run')}"
    if trend.temperature_slope is not None and trend.temperature_slope_u is not None:
        unit = UNITS[METRICS[trend.metric].rule.scale]
        text += f"; {trend.temperature_slope:+.2f} ± {2 * trend.temperature_slope_u:.2f}{unit} per degree of board temperature"
    return text


def _notes(trends: Sequence[SeriesTrend], until: int) -> list[str]:
    if not trends:
        reason = "no valid run has this figure, and suspect ones do not count"
        return [f"no series: {reason}: measure again, or choose another --figure; `edgemeter runs` lists those kept"]
    quiet = sum(not finding_lines(trend, until) for trend in trends)
    notes = [
        f"{count(len(trends), 'series') if len(trends) == 1 else f'{len(trends):,} series'} up to {iso(until)}: {quiet:,} without a finding"
    ]
    if stand_out := len(standing_out(trends)):
        expected = significant(FALSE_DISCOVERIES * stand_out, 2)
        notes.append(
            f"{stand_out:,} of {len(trends):,} stand out in the newest scan (Benjamini-Hochberg, q = "
            f"{FALSE_DISCOVERIES:g}); about {expected} of them are expected by chance"
        )
    hidden = sum(trend.hidden_ratio > 0.5 for trend in trends)
    if hidden:
        notes.append(f"in {hidden:,} most recent steps are not distinguishable from the board temperature, which changed with them")
    other = sum(trend.left_out for trend in trends)
    if other:
        notes.append(f"{other:,} runs are left out: scope, metric or images differ from the newest run of their series")
    invalid = sum(trend.not_valid for trend in trends)
    if invalid:
        notes.append(f"{invalid:,} figures of suspect or invalid runs are excluded")
    return notes


def trends_document(trends: Sequence[SeriesTrend], until: int) -> str:
    """Return the trends as JSON."""
    stand_out = {(trend.key, trend.metric) for trend in standing_out(trends)}
    body = {
        "until": iso(until) if trends else None,
        "series": [_row(trend, until, stands_out=(trend.key, trend.metric) in stand_out) for trend in trends],
        "events": [_event(event) for event in events_of(trends, until)],
        "digest": {"looked_at": len(trends), "stand_out": len(stand_out), "false_discovery_ratio": FALSE_DISCOVERIES},
    }
    return json_document(body)


def _row(trend: SeriesTrend, until: int, *, stands_out: bool) -> dict[str, Any]:
    rule, missing = METRICS[trend.metric].rule, trend.missing(until)
    row: dict[str, Any] = msgspec.to_builtins(trend)
    row["case"] = trend.key.case()
    row["unit"] = METRICS[trend.metric].figure.unit
    row["differences_in"] = "per cent" if rule.scale == "log" else "points"
    row["matters"] = rule.matters
    row["missing"] = asdict(missing) if missing else None
    row["stands_out"] = stands_out
    row["findings"] = [{"what": kind, "text": text} for kind, text in finding_lines(trend, until)]
    for part in (row, *row["steps"], row["suspect"], row["drift"], row["modes"], *row["episodes"], row["scatter"], row["missing"]):
        _write_days(part or {})
    return row


def _event(event: TrendEvent) -> dict[str, Any]:
    members = [
        {
            "fleet": member.series.key.fleet,
            "device": member.series.key.device,
            "case": member.series.key.case(),
            "metric": member.series.metric,
            "day": member.finding.day,
            "size": member.finding.size if isinstance(member.finding, Step) else None,
        }
        for member in event.members
    ]
    row: dict[str, Any] = {"kind": event.kind, "what": event_kind(event), "cause": event.cause}
    row |= {"day_low": event.day_low, "day_high": event.day_high, "devices": list(event.devices), "text": event_text(event)}
    for part in (row, *members):
        _write_days(part)
    return row | {"members": members}


def _write_days(row: dict[str, Any]) -> None:
    row |= {name: iso(row[name]) for name in _DAYS if name in row}


def points_csv(series: Sequence[tuple[SeriesKey, str, Days]]) -> str:
    """Return the points of series as CSV: a line a day."""
    header = ("fleet", "board", "device", "case", "metric", "day", "value", "u_per_cent_or_points", "runs", "temperature_c")
    rows: list[tuple[str | int, ...]] = []
    for key, name, days in series:
        columns = (days.day, days.x, np.sqrt(days.known), days.runs, days.temperature_c)
        for day, x, u, runs, heat_c in zip(*(column.tolist() for column in columns), strict=True):
            value, celsius = f"{off_scale(METRICS[name], x):.8g}", f"{heat_c:.2f}" if np.isfinite(heat_c) else ""
            rows.append((key.fleet, key.board, key.device, key.case(), name, iso(day), value, f"{u:.4g}", runs, celsius))
    return csv_document(header, rows).replace("\r\n", "\n")


def annotations_table(annotations: Sequence[Annotation]) -> "Table":
    """Return the annotations as a table."""
    from rich.text import Text  # noqa: PLC0415

    table = plain_table("#", "day", "text", "kind", "of", right="#")
    for note in annotations:
        about = ", ".join(value for value in (note.fleet, note.device, note.model, note.metric) if value is not None)
        cells = (f"{note.number}", iso(note.day), note.text, "new level" if note.begins_level else "remark", about or "everything")
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table
