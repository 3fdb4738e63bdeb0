"""Trends as text: a sentence for each finding, a table, a JSON document, and the points as CSV."""

import csv
import io
from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from edgemeter.agent.base.documents import json_document
from edgemeter.agent.base.figures import count, printable, significant
from edgemeter.agent.base.terminal import plain_table
from edgemeter.collector.runs.cases import SeriesKey
from edgemeter.collector.trend.days import Days
from edgemeter.collector.trend.events import FindingName, TrendEvent, events_of, gap_name, step_name, told_by
from edgemeter.collector.trend.finding import Drift, Missing, Rise, Scatter, Step, iso
from edgemeter.collector.trend.metrics import METRICS, off_scale
from edgemeter.collector.trend.series_trend import SeriesTrend, StandingOut
from edgemeter.collector.trend.watch_file import Annotation

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# So many devices of an event are named in its row.
NAMED_DEVICES = 3
_UNITS = {"log": "%", "points": " points", "share": " points"}


def amount_text(metric: str, value: float) -> str:
    """Return a difference with its sign and unit: `+4.2%`."""
    return f"{'+' if value > 0 else '-' if value < 0 else ''}{significant(abs(value), 2)}{_UNITS[METRICS[metric].scale]}"


def level_text(metric: str, value: float) -> str:
    """Return a level in the metric's own unit."""
    if METRICS[metric].scale == "share":
        return f"{max(value, 0.0):.0%}"
    return f"{significant(value, 4)} {METRICS[metric].unit}".rstrip()


def interval_text(metric: str, low: float, high: float) -> str:
    """Return a 95% interval of a difference: `+3.1 .. +5.3%`."""
    unit = _UNITS[METRICS[metric].scale]
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
    return f"{size}, since {iso(drift.day)}, {count(drift.days, 'day')}"


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


def finding_lines(one: SeriesTrend, until: int, told: Collection[FindingName] = ()) -> list[tuple[str, str]]:
    """Return the findings of a series: the kind (`step, worse`) and the sentence; without those in `told`, which events report."""
    steps = [step for step in one.steps if step_name(one, step) not in told]
    found = [(f"step, {trend_verdict(step)}", step_text(one.metric, step)) for step in steps]
    if one.suspect is not None:
        found.append((f"step, {trend_verdict(one.suspect)}", step_text(one.metric, one.suspect)))
    if one.drift is not None:
        found.append((f"drift, {'worse' if one.drift.is_worse else 'better'}", drift_text(one.metric, one.drift)))
    if one.scatter is not None:
        found.append(("scatter", scatter_text(one.scatter)))
    missing = one.missing(until)
    if missing is not None and gap_name(one) not in told:
        found.append(("missing", missing_text(missing)))
    return found


def event_kind(event: TrendEvent) -> str:
    """Return an event's kind in a few words: `fleet, worse`, `board, better`, `missing`."""
    if event.kind == "missing":
        return "missing"
    worse = {one.finding.is_worse for one in event.members if isinstance(one.finding, Step)}
    way = "worse and better" if len(worse) > 1 else "worse" if True in worse else "better"
    return f"{'fleet' if event.kind == 'fleet' else 'board'}, {way}"


def event_text(event: TrendEvent) -> str:
    """Return an event in words: its days, its size by metric, and what changed with it."""
    days = iso(event.day_low) if event.day_low == event.day_high else f"{iso(event.day_low)} .. {iso(event.day_high)}"
    if event.kind == "missing":
        return f"no run in {len(event.members):,} series since {days}"
    sizes: dict[str, list[float]] = {}
    for one in event.members:
        if isinstance(one.finding, Step):
            sizes.setdefault(one.series.metric, []).append(one.finding.size)
    amounts = "; ".join(
        f"{metric} {interval_text(metric, min(some), max(some)) if len(some) > 1 else amount_text(metric, some[0])}"
        for metric, some in sizes.items()
    )
    cause = f"changed with it: {event.cause}" if event.cause else "no known change on that day"
    return f"{count(len(event.members), 'step')}: {amounts}; first day {days}; {cause}"


def event_of(event: TrendEvent) -> str:
    """Return the devices of an event: up to three by name, more by their number and board types."""
    if len(event.devices) <= NAMED_DEVICES:
        return printable(", ".join(event.devices))
    boards = sorted({one.series.key.board for one in event.members})
    return printable(f"{len(event.devices)} devices of {', '.join(boards)}")


def _event_row(event: TrendEvent) -> tuple[str, ...]:
    cases = sorted({one.series.key.case() for one in event.members})
    metrics = list(dict.fromkeys(one.series.metric for one in event.members))
    return event_of(event), printable(cases[0]) if len(cases) == 1 else count(len(cases), "case"), ", ".join(metrics), ""


_STYLES = {"worse": "red", "better": "green", "missing": "yellow"}


def show_trends(
    found: Sequence[SeriesTrend], summed_up: StandingOut, until: int, console: "Console", *, with_quiet: bool, with_members: bool = True
) -> None:
    """Print events (unless every member is to be shown), the other findings of each series, then notes."""
    events = [] if with_members else events_of(found, until)
    told = told_by(events)
    # Folded, never truncated: the ends of `simulated-pi5-07` and `simulated-pi5-08` matter.
    from rich.table import Column, Table  # noqa: PLC0415 - the page writes sentences only
    from rich.text import Text  # noqa: PLC0415

    table = Table(*(Column(name, overflow="fold") for name in ("device", "case", "metric", "level now", "what", "evidence")))
    for event in events:
        kind = event_kind(event)
        style = next((style for word, style in _STYLES.items() if kind.endswith(word)), "")
        table.add_row(*(Text(cell) for cell in _event_row(event)), Text(kind, style=style), Text(printable(event_text(event))))
    for one in found:
        lines = finding_lines(one, until, told) or ([("steady", _steady(one))] if with_quiet and not finding_lines(one, until) else [])
        for what, text in lines:
            style = next((style for word, style in _STYLES.items() if what.endswith(word)), "")
            row = (subject(one), printable(one.key.case()), one.metric, level_text(one.metric, one.level))
            table.add_row(*(Text(cell) for cell in row), Text(what, style=style), Text(printable(text)))
    if table.row_count:
        console.print(table)
    for line in _notes(found, summed_up, until):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def subject(one: SeriesTrend) -> str:
    """Return the device, or the board type with its number of devices."""
    return printable(one.key.device or f"{one.key.board} ({one.devices} devices)")


def _steady(one: SeriesTrend) -> str:
    text = f"{count(one.points, 'day')}, {count(one.runs, 'run')}"
    if one.temperature_slope is not None and one.temperature_slope_u is not None:
        unit = _UNITS[METRICS[one.metric].scale]
        text += f"; {one.temperature_slope:+.2f} ± {2 * one.temperature_slope_u:.2f}{unit} per degree of board temperature"
    return text


def _notes(found: Sequence[SeriesTrend], summed_up: StandingOut, until: int) -> list[str]:
    if not found:
        return ["no series: no valid run has this metric"]
    quiet = sum(not finding_lines(one, until) for one in found)
    notes = [
        f"{count(len(found), 'series') if len(found) == 1 else f'{len(found):,} series'} up to {iso(until)}: {quiet:,} without a finding"
    ]
    if summed_up.stand_out:
        expected = significant(summed_up.false_ratio * len(summed_up.stand_out), 2)
        notes.append(
            f"{len(summed_up.stand_out):,} of {summed_up.looked_at:,} stand out in the newest scan (Benjamini-Hochberg, q = "
            f"{summed_up.false_ratio:g}); about {expected} of them are expected by chance"
        )
    hidden = sum(one.hidden_ratio > 0.5 for one in found)
    if hidden:
        notes.append(f"in {hidden:,} most recent steps are not distinguishable from the board temperature, which changed with them")
    other = sum(one.left_out for one in found)
    if other:
        notes.append(f"{other:,} runs are left out: scope, metric or images differ from the newest run of their series")
    invalid = sum(one.not_valid for one in found)
    if invalid:
        notes.append(f"{invalid:,} figures of suspect or invalid runs are excluded")
    return notes


def trends_document(found: Sequence[SeriesTrend], summed_up: StandingOut, until: int) -> str:
    """Return the trends as JSON."""
    standing = {(one.key, one.metric) for one in summed_up.stand_out}
    body = {
        "until": iso(until) if found else None,
        "series": [_row(one, until, stands_out=(one.key, one.metric) in standing) for one in found],
        "events": [_event(event) for event in events_of(found, until)],
        "digest": {"looked_at": summed_up.looked_at, "stand_out": len(standing), "false_discovery_ratio": summed_up.false_ratio},
    }
    return json_document(body)


def _row(one: SeriesTrend, until: int, *, stands_out: bool) -> dict[str, Any]:
    metric = METRICS[one.metric]
    row: dict[str, Any] = msgspec.to_builtins(one)
    row["case"] = one.key.case()
    row["unit"] = metric.unit
    row["differences_in"] = "per cent" if metric.scale == "log" else "points"
    row["matters"] = metric.matters
    row |= {name: iso(getattr(one, name)) for name in ("first_day", "last_day", "begin_day")}
    row["steps"] = [_dated(step) for step in one.steps]
    row["suspect"] = _dated(one.suspect) if one.suspect else None
    for name in ("drift", "scatter"):
        if row[name]:
            row[name]["day"] = iso(row[name]["day"])
    missing = one.missing(until)
    row["missing"] = asdict(missing) | {"day": iso(missing.day)} if missing else None
    row["stands_out"] = stands_out
    row["findings"] = [{"what": what, "text": text} for what, text in finding_lines(one, until)]
    return row


def _event(event: TrendEvent) -> dict[str, Any]:
    members = [
        {
            "fleet": one.series.key.fleet,
            "device": one.series.key.device,
            "case": one.series.key.case(),
            "metric": one.series.metric,
            "day": iso(one.finding.day),
            "size": one.finding.size if isinstance(one.finding, Step) else None,
        }
        for one in event.members
    ]
    return {
        "kind": event.kind,
        "what": event_kind(event),
        "cause": event.cause,
        "day_low": iso(event.day_low),
        "day_high": iso(event.day_high),
        "devices": list(event.devices),
        "text": event_text(event),
        "members": members,
    }


def _dated(step: Step) -> dict[str, Any]:
    return asdict(step) | {name: iso(getattr(step, name)) for name in ("day", "day_low", "day_high")}


def points_csv(series: Sequence[tuple[SeriesKey, str, Days]]) -> str:
    """Return the points of series as CSV: a line a day."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["fleet", "board", "device", "case", "metric", "day", "value", "u_per_cent_or_points", "runs", "temperature_c"])
    for key, name, days in series:
        metric = METRICS[name]
        for place in range(len(days.day)):
            temperature_c = days.temperature_c[place]
            writer.writerow(
                [
                    key.fleet,
                    key.board,
                    key.device,
                    key.case(),
                    name,
                    iso(int(days.day[place])),
                    f"{off_scale(metric, float(days.x[place])):.8g}",
                    f"{float(np.sqrt(days.known[place])):.4g}",
                    int(days.runs[place]),
                    f"{temperature_c:.2f}" if np.isfinite(temperature_c) else "",
                ]
            )
    return out.getvalue()


def annotations_document(annotations: Sequence[Annotation]) -> dict[str, Any]:
    """Return the annotations for machines."""
    return {"annotations": [asdict(one) | {"day": iso(one.day)} for one in annotations]}


def annotations_table(annotations: Sequence[Annotation]) -> "Table":
    """Return the annotations as a table."""
    from rich.text import Text  # noqa: PLC0415

    table = plain_table()
    for heading in ("#", "day", "text", "kind", "of"):
        table.add_column(heading, justify="right" if heading == "#" else "left", overflow="fold")
    for one in annotations:
        cells = (f"{one.number}", iso(one.day), one.text, "new level" if one.begins_level else "remark", _about(one))
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table


def _about(one: Annotation) -> str:
    return ", ".join(value for value in (one.fleet, one.device, one.model, one.metric) if value is not None) or "everything"
