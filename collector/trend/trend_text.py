"""Trends as text: a sentence for each finding, a JSON document, and the points as CSV."""

from collections.abc import Collection, Sequence
from statistics import fmean
from typing import Any

import msgspec
import numpy as np

from edgemeter.agent.base.console import Table, Text
from edgemeter.agent.base.documents import csv_document, json_document
from edgemeter.agent.base.number_text import count, printable, significant
from edgemeter.agent.contract.series import SeriesKey
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.trend.days import Days
from edgemeter.collector.trend.events import EventMember, FindingName, TrendEvent, events_of
from edgemeter.collector.trend.finding import Drift, Missing, Modes, Step, iso
from edgemeter.collector.trend.metrics import METRICS, off_scale
from edgemeter.collector.trend.series_trend import SeriesTrend
from edgemeter.collector.trend.watch_file import Annotation

# The most devices of an event that its row names.
NAMED_DEVICES = 3
# The units of differences by their scale.
UNITS = {"log": "%", "points": " points", "share": "% of runs"}
_DAYS = {"first_day", "last_day", "begin_day", "day", "day_low", "day_high"}


def amount_text(metric: str, value: float) -> str:
    """Return a difference with its sign and unit: `+4.2%`."""
    return (
        f"{'+' if value > 0 else '-' if value < 0 else ''}{significant(abs(value), 2)}"
        f"{UNITS[METRICS[metric].rule.scale]}"
    )


def level_text(metric: str, value: float) -> str:
    """Return a level in the metric's own unit."""
    if _is_share(metric):
        return f"{max(value, 0.0):.0%}"
    return f"{significant(value, 4)} {METRICS[metric].figure.unit}".rstrip()


def throttling_text(after: float, since: str = "", before: float | None = None) -> str:
    """Return how often a board throttles (0..1), since when, and how often before.

    An example is `always throttles since 2026-05-03, never before`. `since` is a day or an interval
    of days.
    """
    percent = round(100 * after)
    now = {
        0: "never throttles" if before is None else "no longer throttles",
        100: "always throttles",
    }
    text = now.get(percent, f"throttles in {percent}% of runs") + (
        f" since {since}" if since else ""
    )
    if before is None:
        return text
    former = round(100 * before)
    usual = f"{former}%" if percent not in now else f"in {former}% of runs"
    return f"{text}, {({0: 'never', 100: 'always'}).get(former, usual)} before"


def since_text(metric: str, level: float, day: int) -> str:
    """Return since when a metric has a level: `105 mJ since 2026-05-03`."""
    return (
        throttling_text(level, iso(day))
        if _is_share(metric)
        else f"{level_text(metric, level)} since {iso(day)}"
    )


def _is_share(metric: str) -> bool:
    return METRICS[metric].rule.scale == "share"


def interval_text(metric: str, low: float, high: float) -> str:
    """Return a 95% interval of a difference: `+3.1 to +5.3%`."""
    unit = UNITS[METRICS[metric].rule.scale]
    return f"{amount_text(metric, low).removesuffix(unit)} to {amount_text(metric, high)}"


def step_text(metric: str, step: Step) -> str:
    first = (
        iso(step.day)
        if step.day_low == step.day_high
        else f"{iso(step.day)} ({iso(step.day_low)} to {iso(step.day_high)})"
    )
    if _is_share(metric):
        text = throttling_text(step.after, first, step.before)
    else:
        size = f"{amount_text(metric, step.size)} ({interval_text(metric, step.low, step.high)})"
        text = (
            f"{size} from {level_text(metric, step.before)} to {level_text(metric, step.after)}, "
            f"first day {first}"
        )
    rests = f"{count(step.days_before, 'day')} before, {step.days_after} after"
    if step.state == "declared":
        return f"{text}; declared: {'; '.join(step.candidates)}; {rests}"
    cause = (
        f"changed on that day: {', '.join(step.candidates)}"
        if step.candidates
        else "no known change on that day"
    )
    return f"{text}; {cause}; {rests}"


def drift_text(metric: str, drift: Drift) -> str:
    size = (
        f"{amount_text(metric, drift.per_30_days)} "
        f"({interval_text(metric, drift.low, drift.high)}) in 30 days"
    )
    period = (
        f"from {iso(drift.day)} to {iso(drift.last_day)}"
        if drift.is_over
        else f"since {iso(drift.day)}"
    )
    return (
        f"{size}, {period}, {count(drift.days, 'day')}; {amount_text(metric, drift.total)} in all"
    )


def modes_text(metric: str, modes: Modes) -> str:
    levels = (
        f"{level_text(metric, modes.low)} and {level_text(metric, modes.high)} "
        f"({amount_text(metric, modes.size)})"
    )
    often = (
        f"{count(modes.changes, 'change')} since {iso(modes.day)}, the newest on "
        f"{iso(modes.last_day)}"
    )
    return (
        f"back and forth between {levels}, {modes.high_ratio:.0%} of the days at the "
        f"higher one; {often}"
    )


def missing_text(missing: Missing) -> str:
    usual = (
        "every day"
        if missing.every_days <= 1
        else f"every {significant(missing.every_days, 2)} days"
    )
    return (
        f"{_no_run(missing)} for {count(missing.silent_days, 'day')}, the last on "
        f"{iso(missing.day)}; usually {usual}"
    )


def _no_run(missing: Missing) -> str:
    return "no run that is ok" if missing.has_runs else "no run"


def gap_kind(missing: Missing) -> str:
    """Return the kind of a gap in a few words.

    It is `missing`, or `not ok` if there were runs that do not count.
    """
    return "not ok" if missing.has_runs else "missing"


def trend_verdict(step: Step) -> str:
    """Return a step's kind in a few words.

    It is `worse`, `better`, `too small to matter`, `worse, inconclusive` or `unconfirmed, worse`.
    """
    way = "worse" if step.is_worse else "better"
    if step.state == "unconfirmed":
        return f"unconfirmed, {way}"
    if step.matters is None:
        return f"{way}, inconclusive"
    return way if step.matters else "too small to matter"


def finding_lines(
    trend: SeriesTrend, until: int, reported: Collection[FindingName] = ()
) -> list[tuple[str, str]]:
    """Return the findings of a series: the kind (`step, worse`) and the sentence.

    Those in `reported`, which events report, are left out.
    """
    steps = [step for step in trend.steps if EventMember(trend, step).name not in reported]
    steps += [trend.unconfirmed] if trend.unconfirmed else []
    lines = [(f"step, {trend_verdict(step)}", step_text(trend.metric, step)) for step in steps]
    if trend.drift is not None:
        lines.append(
            (
                f"drift, {'worse' if trend.drift.is_worse else 'better'}",
                drift_text(trend.metric, trend.drift),
            )
        )
    if trend.modes is not None:
        lines.append(("two modes", modes_text(trend.metric, trend.modes)))
    missing = trend.missing(until)
    if missing is not None and EventMember(trend, missing).name not in reported:
        lines.append((gap_kind(missing), missing_text(missing)))
    return lines


def event_kind(event: TrendEvent) -> str:
    """Return an event's kind in a few words: `fleet, worse`, `board, better`, `missing`."""
    if isinstance(missing := event.members[0].finding, Missing):
        return gap_kind(missing)
    worse = {
        member.finding.is_worse for member in event.members if isinstance(member.finding, Step)
    }
    way = "worse and better" if len(worse) > 1 else "worse" if True in worse else "better"
    return f"{'fleet' if event.kind == 'fleet' else 'board'}, {way}"


def event_text(event: TrendEvent) -> str:
    """Return an event in words, a single step as such.

    The words are its days, its size by metric, and the simultaneous changes.
    """
    first = event.members[0]
    if event.is_alone and isinstance(first.finding, Step):
        return (
            f"{METRICS[first.series.metric].figure.title} "
            f"{step_text(first.series.metric, first.finding)}"
        )
    days = (
        iso(event.day_low)
        if event.day_low == event.day_high
        else f"{iso(event.day_low)} to {iso(event.day_high)}"
    )
    if isinstance(first.finding, Missing):
        return f"{_no_run(first.finding)} in {len(event.members):,} series since {days}"
    steps = grouped(
        (member.series.metric, member.finding)
        for member in event.members
        if isinstance(member.finding, Step)
    )
    amounts = "; ".join(_amount_of_steps(metric, of_metric) for metric, of_metric in steps.items())
    cause = f"changed with it: {event.cause}" if event.cause else "no known change on that day"
    return f"{count(len(event.members), 'step')}: {amounts}; first day {days}; {cause}"


def _amount_of_steps(metric: str, steps: Sequence[Step]) -> str:
    if _is_share(metric):
        return throttling_text(
            fmean(step.after for step in steps), "", fmean(step.before for step in steps)
        )
    sizes = [step.size for step in steps]
    amount = (
        interval_text(metric, min(sizes), max(sizes))
        if len(sizes) > 1
        else amount_text(metric, sizes[0])
    )
    return f"{METRICS[metric].figure.title} {amount}"


def event_of(event: TrendEvent) -> str:
    """Return the devices of an event: up to three by name, more by their number and board types."""
    if len(event.devices) <= NAMED_DEVICES:
        return printable(", ".join(event.devices))
    boards = sorted({member.series.key.board for member in event.members})
    return printable(f"{len(event.devices)} devices of {', '.join(boards)}")


def trends_document(trends: Sequence[SeriesTrend], until: int) -> str:
    series, events = (
        [_row(trend, until) for trend in trends],
        [_event(event) for event in events_of(trends, until)],
    )
    return json_document(
        {
            "until": iso(until) if trends else None,
            "series": _dated(series),
            "events": _dated(events),
        }
    )


def _row(trend: SeriesTrend, until: int) -> dict[str, Any]:
    metric = METRICS[trend.metric]
    row: dict[str, Any] = msgspec.to_builtins(trend)
    row |= {
        "case": trend.key.case(),
        "unit": metric.figure.unit,
        "differences_in": "per cent" if metric.rule.scale == "log" else "points",
        "matters": metric.rule.matters,
        "missing": msgspec.to_builtins(trend.missing(until)),
        "findings": [{"what": kind, "text": text} for kind, text in finding_lines(trend, until)],
    }
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
    row |= {
        "day_low": event.day_low,
        "day_high": event.day_high,
        "devices": list(event.devices),
        "text": event_text(event),
    }
    return row | {"members": members}


def _dated(document: Any) -> Any:
    if isinstance(document, dict):
        return {
            name: iso(entry) if name in _DAYS else _dated(entry) for name, entry in document.items()
        }
    return [_dated(entry) for entry in document] if isinstance(document, list | tuple) else document


def points_csv(series: Sequence[tuple[SeriesKey, str, Days]]) -> str:
    header = (
        "fleet",
        "board",
        "device",
        "case",
        "metric",
        "day",
        "value",
        "u_per_cent_or_points",
        "runs",
        "temperature_c",
    )
    rows: list[tuple[str | int, ...]] = []
    for key, name, days in series:
        columns = (days.day, days.x, np.sqrt(days.known), days.runs, days.temperature_c)
        for day, x, u, runs, heat_c in zip(*(column.tolist() for column in columns), strict=True):
            value, celsius = (
                f"{off_scale(METRICS[name], x):.8g}",
                f"{heat_c:.2f}" if np.isfinite(heat_c) else "",
            )
            rows.append(
                (
                    key.fleet,
                    key.board,
                    key.device,
                    key.case(),
                    name,
                    iso(day),
                    value,
                    f"{u:.4g}",
                    runs,
                    celsius,
                )
            )
    return csv_document(header, rows).replace("\r\n", "\n")


def annotations_table(annotations: Sequence[Annotation]) -> Table:
    table = Table("#", "day", "text", "kind", "of", right="#")
    for note in annotations:
        about = ", ".join(
            value
            for value in (note.fleet, note.device, note.model, note.metric)
            if value is not None
        )
        cells = (
            f"{note.number}",
            iso(note.day),
            note.text,
            "new level" if note.begins_level else "remark",
            about or "everything",
        )
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table
