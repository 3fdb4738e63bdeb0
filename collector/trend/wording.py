"""Findings in words: one sentence each, with size, interval, day and what it rests on."""

from edgemeter.collector.show.figures import count, significant
from edgemeter.collector.trend.finding import Drift, Missing, Scatter, Step, iso
from edgemeter.collector.trend.metrics import METRICS
from edgemeter.collector.trend.series_trend import SeriesTrend

_UNITS = {"log": " %", "points": " points", "share": " points"}


def amount(metric: str, value: float) -> str:
    """Return a difference with its sign and unit: `+4.2 %`."""
    return f"{'+' if value > 0 else '-' if value < 0 else ''}{significant(abs(value), 2)}{_UNITS[METRICS[metric].scale]}"


def level(metric: str, value: float) -> str:
    """Return a level in the metric's own unit."""
    if METRICS[metric].scale == "share":
        return f"{max(value, 0.0):.0%}"
    return f"{significant(value, 4)} {METRICS[metric].unit}".rstrip()


def between(metric: str, low: float, high: float) -> str:
    """Return a 95 % interval of a difference: `+3.1 .. +5.3 %`."""
    unit = _UNITS[METRICS[metric].scale]
    return f"{amount(metric, low).removesuffix(unit)} .. {amount(metric, high)}"


def of_step(metric: str, step: Step) -> str:
    """Return a step in words."""
    size = f"{amount(metric, step.size)} ({between(metric, step.low, step.high)})"
    first = iso(step.day) if step.day_low == step.day_high else f"{iso(step.day)} ({iso(step.day_low)} .. {iso(step.day_high)})"
    rests = f"{count(step.days_before, 'day')} before, {step.days_after} after"
    text = f"{size} from {level(metric, step.before)} to {level(metric, step.after)}, first day {first}; {rests}"
    if step.state == "declared":
        return f"{text}; declared: {'; '.join(step.candidates)}"
    return f"{text}; beside it changed: {', '.join(step.candidates)}" if step.candidates else f"{text}; nothing known changed beside it"


def of_drift(metric: str, drift: Drift) -> str:
    """Return a drift in words."""
    size = f"{amount(metric, drift.per_30_days)} ({between(metric, drift.low, drift.high)}) in 30 days"
    return f"{size}, since {iso(drift.day)}, {count(drift.days, 'day')}"


def of_scatter(scatter: Scatter) -> str:
    """Return a change of scatter in words."""
    size = f"{significant(scatter.ratio, 2)} times as far" if scatter.ratio > 1 else f"only {significant(scatter.ratio, 2)} times as far"
    return f"days scatter {size} since {iso(scatter.day)}; {count(scatter.days_before, 'day')} before, {scatter.days_after} after"


def of_missing(missing: Missing) -> str:
    """Return a gap in words."""
    usual = "every day" if missing.every_days <= 1 else f"every {significant(missing.every_days, 2)} days"
    return f"nothing for {count(missing.silent_days, 'day')}, last on {iso(missing.day)}; one came {usual}"


def verdict(step: Step) -> str:
    """Return a step's kind in a few words: `worse`, `better`, `too small to matter`, `not settled`, `suspect`."""
    way = "worse" if step.is_worse else "better"
    if step.state == "suspect":
        return f"suspect, {way}"
    if step.matters is None:
        return f"{way}, not settled"
    return way if step.matters else "too small to matter"


def lines(one: SeriesTrend, until: int) -> list[tuple[str, str]]:
    """Return what there is to say of a series: what it is (`step, worse`) and the sentence."""
    found = [(f"step, {verdict(step)}", of_step(one.metric, step)) for step in one.steps]
    if one.suspect is not None:
        found.append((f"step, {verdict(one.suspect)}", of_step(one.metric, one.suspect)))
    if one.drift is not None:
        found.append((f"drift, {'worse' if one.drift.is_worse else 'better'}", of_drift(one.metric, one.drift)))
    if one.scatter is not None:
        found.append(("scatter", of_scatter(one.scatter)))
    missing = one.missing(until)
    if missing is not None:
        found.append(("missing", of_missing(missing)))
    return found
