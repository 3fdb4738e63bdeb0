"""The findings, each listed once with links to its series and period."""

from collections.abc import Mapping

from edgemeter.agent.base import figures
from edgemeter.collector.alerts.firing import FIGURE_OF
from edgemeter.collector.trend.finding import iso
from edgemeter.collector.web.context import ViewContext
from edgemeter.collector.web.events import FindingShown
from edgemeter.collector.web.markup import Markup, join, part
from edgemeter.collector.web.series import DEFAULT_FIGURE
from edgemeter.collector.web.view import link, note


def findings_list(context: ViewContext, picked: Mapping[str, str], most: int = 12) -> Markup | None:
    """Return the newest findings, each told once with the number of devices, and the way to its series and period; None without any."""
    fits = [one for one in context.events.findings() if _is_of(one, picked)]
    lines = []
    for one in fits[:most]:
        # A view is narrowed to one board and one model, or to none.
        alone = {"board": one.boards, "model": one.models, "metric": (FIGURE_OF.get(one.metric, DEFAULT_FIGURE),)}
        fields = {name: values[0] for name, values in alone.items() if len(values) == 1}
        if len(one.devices) == 1:
            fields |= {"fleet": one.devices[0][0], "device": one.devices[0][1]}
        days = ",".join(str((one.day + apart) * 86_400_000) for apart in (-14, 15))
        reference = context.links.to("trend", **{name: value for name, value in fields.items() if value}, between=days)
        what = one.models[0] if len(one.models) == 1 else figures.count(len(one.models), "model")
        lines.append(join([link(reference, f"{iso(one.day)}: {one.who}"), f", {what}: {one.text}"]))
    if not lines:
        return None
    more = [note(f"{len(fits) - most} more.")] if len(fits) > most else []
    return join([part("reasons", lines), *more])


def _is_of(one: FindingShown, picked: Mapping[str, str]) -> bool:
    device, fleet, board, model = (picked.get(name) for name in ("device", "fleet", "board", "model"))
    return (
        (not board or board in one.boards)
        and (not model or model in one.models)
        and (not device or device in {name for _, name in one.devices})
        and (not fleet or fleet in {name for name, _ in one.devices})
    )
