"""The trends as a table that people look at, as a document for machines, and the points as CSV."""

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from edgemeter.collector.show.figures import count, printable, significant
from edgemeter.collector.trend import wording
from edgemeter.collector.trend.days import Days
from edgemeter.collector.trend.digest import Digest
from edgemeter.collector.trend.finding import Step, iso
from edgemeter.collector.trend.metrics import METRICS, off_scale
from edgemeter.collector.trend.run_figures import SeriesKey
from edgemeter.collector.trend.series_trend import SeriesTrend

_STYLES = {"worse": "red", "better": "green", "missing": "yellow"}


def show(found: Sequence[SeriesTrend], summed_up: Digest, until: int, console: Console, *, with_quiet: bool) -> None:
    """Print what there is to say of each series, and at the end what was looked at."""
    # Folded, never cut: of `simulated-pi5-07` and `simulated-pi5-08` the ends matter.
    table = Table(*(Column(name, overflow="fold") for name in ("device", "case", "metric", "level now", "what", "evidence")))
    for one in found:
        said = wording.lines(one, until) or ([("steady", _steady(one))] if with_quiet else [])
        for what, text in said:
            style = next((style for word, style in _STYLES.items() if what.endswith(word)), "")
            row = (subject(one), printable(one.key.case()), one.metric, wording.level(one.metric, one.level))
            table.add_row(*(Text(cell) for cell in row), Text(what, style=style), Text(printable(text)))
    if table.row_count:
        console.print(table)
    for line in _notes(found, summed_up, until):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def subject(one: SeriesTrend) -> str:
    """Return whose trend it is: the device, or the board type with the number of its devices."""
    return printable(one.key.device or f"{one.key.board} ({one.devices} devices)")


def _steady(one: SeriesTrend) -> str:
    text = f"{count(one.points, 'day')}, {count(one.runs, 'run')}"
    if one.temperature_slope is not None and one.temperature_slope_u is not None:
        unit = "%" if METRICS[one.metric].scale == "log" else "points"
        text += f"; {one.temperature_slope:+.2f} ± {2 * one.temperature_slope_u:.2f} {unit} a degree of the board"
    return text


def _notes(found: Sequence[SeriesTrend], summed_up: Digest, until: int) -> list[str]:
    if not found:
        return ["0 series: no run has such a figure that counts (only those of valid runs do)"]
    quiet = sum(not wording.lines(one, until) for one in found)
    notes = [
        f"{count(len(found), 'series') if len(found) == 1 else f'{len(found):,} series'} up to {iso(until)}: {quiet:,} without a finding"
    ]
    if summed_up.stand_out:
        expected = significant(summed_up.false_ratio * len(summed_up.stand_out), 2)
        notes.append(
            f"{len(summed_up.stand_out):,} of {summed_up.looked_at:,} stand out in the newest look (Benjamini-Hochberg, q = "
            f"{summed_up.false_ratio:g}); about {expected} of them by chance"
        )
    hidden = sum(one.hidden_ratio > 0.5 for one in found)
    if hidden:
        notes.append(f"{hidden:,} cannot tell most recent steps from the temperature of the board, which changed with them")
    other = sum(one.left_out for one in found)
    if other:
        notes.append(f"{other:,} runs are left out: measured as another kind (scope, metric, images) than the newest of their series")
    invalid = sum(one.not_valid for one in found)
    if invalid:
        notes.append(f"{invalid:,} figures of runs that are not valid do not count")
    return notes


def document(found: Sequence[SeriesTrend], summed_up: Digest, until: int) -> bytes:
    """Return the trends as JSON."""
    standing = {(one.key, one.metric) for one in summed_up.stand_out}
    body = {
        "until": iso(until) if found else None,
        "series": [_row(one, until, stands_out=(one.key, one.metric) in standing) for one in found],
        "digest": {"looked_at": summed_up.looked_at, "stand_out": len(standing), "false_discovery_ratio": summed_up.false_ratio},
    }
    return msgspec.json.format(msgspec.json.encode(body), indent=2)


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
    row["findings"] = [{"what": what, "text": text} for what, text in wording.lines(one, until)]
    return row


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
