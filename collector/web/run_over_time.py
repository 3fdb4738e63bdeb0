"""The part of a run's page that shows a long run over its time, and what frames at a steady rate came to."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from edgemeter.agent.base.figures import plain_digits
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_figures import Sustained
from edgemeter.agent.contract.steady_facts import held_out, steady_facts
from edgemeter.collector.charts.chart import Chart, rows_table
from edgemeter.collector.charts.run_specs import over_the_run

# What stands in one chart, left and right: field and title of each.
_PAIRS = (
    (("missed", "missed frames"), ("p50_ms", "p50, ms")),
    (("clock_mhz", "clock, MHz"), ("temperature_c", "temperature, °C")),
    (("power_w", "power, W"), ("tpot_ms", "time per output token, ms")),
)


class OverTime(NamedTuple):
    """The result of a long run, or of one of frames: a heading, a sentence, facts and charts."""

    heading: str
    text: str
    facts: Mapping[str, str]
    charts: Sequence[Chart]


def over_time(run: RunRecord) -> OverTime | None:
    """Return what a long run, or one of frames, came to; None of a run that was short and had no frames."""
    text, facts = "", {}
    if run.steady:
        facts = {name.capitalize(): text for name, text in steady_facts(run, run.steady).items()}
        rate, deadline_ms = plain_digits(run.steady.rate_per_s), plain_digits(run.steady.deadline_ms)
        text = f"{run.model.name} at {rate} frames a second, deadline {deadline_ms} ms."
    elif run.sustained:
        text = f"{run.model.name} {held_out(run.sustained)}."
    is_long = run.sustained is not None and len(run.sustained.points) > 1
    charts = charts_of(run.sustained, of_frames=run.steady is not None) if run.sustained and is_long else []
    return OverTime("Frames and the run over time" if run.steady else "Over time", text, facts, charts) if text else None


def charts_of(sustained: Sustained, *, of_frames: bool) -> list[Chart]:
    """Return the charts of what is known of the run's intervals: missed frames and latency, clock and temperature, power."""
    rows: list[dict[str, Any]] = [
        {
            "at_s": number * sustained.interval_s, "end_s": (number + 1) * sustained.interval_s, "missed": point.missed,
            "p50_ms": point.p50_ms,
            "clock_mhz": None if point.clock_hz is None else point.clock_hz / 1e6, "temperature_c": point.temperature_c,
            "power_w": point.power_w, "tpot_ms": point.tpot_ms,
        }
        for number, point in enumerate(sustained.points)
    ]  # fmt: skip
    charts = []
    for pair in _PAIRS:
        present = [(field, title) for field, title in pair if any(row[field] is not None for row in rows)]
        if not present:
            continue
        # Of frames the p50 is that of the model's own time, without the wait in the queue.
        named = [(field, "model's own time p50, ms" if of_frames and field == "p50_ms" else title) for field, title in present]
        spec = over_the_run(named[0], named[1] if named[1:] else None, sustained.throttled_after_s, has_bars=named[0][0] == "missed")
        title = " and ".join(title.partition(",")[0] for _, title in named)
        columns = ("at_s", "end_s", *(field for field, _ in named))
        charts.append(
            Chart(f"{title[0].upper()}{title[1:]}", spec, rows_table([{name: row[name] for name in columns} for row in rows]), kind="wide")
        )
    return charts
