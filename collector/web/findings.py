"""The findings of the trend: each listed once with the way to it, and an event on many boards as one chart, before and after by board."""

from collections.abc import Mapping, Sequence

from edgemeter.agent.base import figures
from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.charts.chart import Chart, ViewTable, rows_table
from edgemeter.collector.charts.specs import before_and_after
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.show.series_style import numbered_style
from edgemeter.collector.trend.finding import iso
from edgemeter.collector.trend.metrics import METRICS
from edgemeter.collector.trend.trend_text import UNITS, level_text
from edgemeter.collector.web.context import ViewContext
from edgemeter.collector.web.events import FINDING_DAYS, FindingShown, StepShown
from edgemeter.collector.web.markup import Markup, element, join, part
from edgemeter.collector.web.view import View, link, note, section

FINDINGS_SHOWN = 12
# More lanes make no chart that can be read.
BOARDS_DRAWN = 60
_COLUMNS = tuple(StepShown.__slots__)


def findings_list(context: ViewContext, picked: Mapping[str, str]) -> Markup | None:
    """Return the newest findings, each told once with the number of devices, and the way to its series and period; None without any."""
    fits = [finding for finding in context.events.findings if _is_of(finding, picked)]
    lines = []
    for finding in fits[:FINDINGS_SHOWN]:
        of_event = context.links.to("trend", event=finding.key) if len(finding.steps) > 1 else None
        reference = of_event or context.links.to("trend", **_each_series(finding))
        model_text = finding.models[0] if len(finding.models) == 1 else figures.count(len(finding.models), "model")
        lines.append(join([link(reference, f"{iso(finding.day)}: {finding.who}"), f", {model_text}: {finding.text}"]))
    if not lines:
        return None
    remarks = [note(f"{len(fits) - FINDINGS_SHOWN} more.")] if len(fits) > FINDINGS_SHOWN else []
    return join([part("reasons", lines), *remarks])


def _is_of(finding: FindingShown, picked: Mapping[str, str]) -> bool:
    device, fleet, board, model = (picked.get(name) for name in ("device", "fleet", "board", "model"))
    return (
        (not board or board in finding.boards)
        and (not model or model in finding.models)
        and (not device or device in {name for _, name in finding.devices})
        and (not fleet or fleet in {name for name, _ in finding.devices})
    )


def _each_series(finding: FindingShown) -> dict[str, str]:
    """Return the fields of the trend that shows the series of a finding in its period: one board and one model, or all."""
    alone = {"board": finding.boards, "model": finding.models, "metric": (finding.metric,)}
    fields = {name: values[0] for name, values in alone.items() if len(values) == 1 and values[0]}
    if len(finding.devices) == 1:
        fields |= {"fleet": finding.devices[0][0], "device": finding.devices[0][1]}
    return {**fields, "between": ",".join(str((finding.day + apart) * 86_400_000) for apart in (-14, 15))}


def event_view(context: ViewContext, key: str) -> View:
    """Return an event on all boards that it hit, a chart for each metric; raises ConfigError if there is no such finding now."""
    finding = next((finding for finding in context.events.findings if finding.key == key), None)
    if finding is None:
        raise ConfigError(f"there is no event {key!r} among the findings of the last {FINDING_DAYS} days: see the trend")
    by_metric = grouped((step.metric, step) for step in finding.steps)
    charts = [context.sheet.draw(_before_and_after(metric, steps)) for metric, steps in by_metric.items()]
    explained = "The hollow mark is the level before, the filled one the level after, the thick bar the 95% interval of the change."
    each = element("p", None, link(context.links.to("trend", **_each_series(finding)), "Every series in a chart of its own"))
    rows = tuple(tuple(getattr(step, name) for name in _COLUMNS) for step in finding.steps)
    body = section("event", "Before and after", part("gallery", charts), note(explained), each)
    return View(f"{iso(finding.day)}: {finding.who}", body, finding.text, (ViewTable("steps", _COLUMNS, rows),))


def _before_and_after(metric: str, steps: Sequence[StepShown]) -> Chart:
    changes = grouped((step.device, abs(step.size)) for step in steps)
    ordered = sorted(changes, key=lambda device: -max(changes[device]))
    lanes = ordered[:BOARDS_DRAWN]
    rows = [
        {
            "device": step.device, "series": step.case, "size": step.size, "low": step.low, "high": step.high,
            "before": level_text(metric, step.before), "after": level_text(metric, step.after), "first_day": iso(step.day),
        }
        for step in sorted(steps, key=lambda step: (-max(changes[step.device]), step.device, step.case)) if step.device in lanes
    ]  # fmt: skip
    legend = tuple((case, numbered_style(index).paint, "circle") for index, case in enumerate(sorted({str(row["series"]) for row in rows})))
    title, unit = METRICS[metric].figure.title, UNITS[METRICS[metric].rule.scale].strip()
    hidden = f" The {BOARDS_DRAWN} of {len(ordered)} devices that changed most; CSV holds all." if len(ordered) > len(lanes) else ""
    text = f"{len(steps)} series on {figures.count(len(ordered), 'device')}.{hidden}"
    name = f"{title[:1].upper()}{title[1:]}: change against the level before, {unit}"
    return Chart(name, before_and_after(f"change, {unit}", legend, lanes), rows_table(rows), text, legend, kind="wide")
