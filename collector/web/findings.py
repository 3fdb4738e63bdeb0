"""The findings of the trend: each listed once, with the way to its series."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from edgemeter.agent.base import figures
from edgemeter.collector.web.context import ViewContext
from edgemeter.collector.web.events import FindingShown

FINDINGS_SHOWN = 12


class FindingLine(NamedTuple):
    """One finding in a list: the way to it, its name and what changed."""

    reference: str | None
    name: str
    text: str


class FindingsListed(NamedTuple):
    """The newest findings, and how many there are besides."""

    lines: Sequence[FindingLine]
    further: int


def findings_list(context: ViewContext, picked: Mapping[str, str]) -> FindingsListed:
    """Return the newest findings of what was picked, each told once with the way to its series and period."""
    fits = [finding for finding in context.events.findings if _is_of(finding, picked)]
    lines = []
    for finding in fits[:FINDINGS_SHOWN]:
        model_text = finding.models[0] if len(finding.models) == 1 else figures.count(len(finding.models), "model")
        reference = context.links.to("trend", **_each_series(finding))
        lines.append(FindingLine(reference, f"{finding.date}: {finding.who}", f"{model_text}: {finding.text}"))
    return FindingsListed(lines, len(fits) - len(lines))


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
