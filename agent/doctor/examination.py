"""The doctor: checks everything that a run needs, and reports what is here, what is wrong, and how to fix it."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgemeter.agent.base.config import Config
from edgemeter.agent.base.documents import json_document
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.figures import count
from edgemeter.agent.doctor.checks import Finding, FindingState, check_machine, check_software
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine
from edgemeter.agent.power.detect import choose_sensor, detect_sensors
from edgemeter.agent.power.world import HERE, SensorWorld

if TYPE_CHECKING:
    from rich.table import Table

MARKS: Mapping[FindingState, tuple[str, str]] = {
    "ok": ("ok", "green"),
    "warn": ("warn", "yellow"),
    "bad": ("BAD", "bold red"),
    "absent": ("-", "dim"),
}


class _Findings(msgspec.Struct, frozen=True):
    findings: list[Finding]


def examine(
    *,
    broker: str | None,
    home: Path,
    settings: Config | None = None,
    sensors: Mapping[str, Mapping[str, str]] | None = None,
    machine: Machine = THIS_MACHINE,
) -> list[Finding]:
    """Return all findings.

    `broker` is the address to check, None for none, and `settings` names its files; `home` holds the outbox; `sensors` holds the settings
    of power sensors by name. It takes as long as importing the installed runtimes.
    """
    # Imported late: a damaged MQTT library is a finding, not the end of the doctor.
    from edgemeter.agent.doctor import check_delivery  # noqa: PLC0415 - as above

    return [
        *check_machine(machine),
        *check_software(),
        *_power(sensors, HERE if machine is THIS_MACHINE else SensorWorld(machine.root)),
        *check_delivery.check(home, broker, settings),
    ]


def _power(settings: Mapping[str, Mapping[str, str]] | None, world: SensorWorld = HERE) -> Iterator[Finding]:
    found = detect_sensors(settings, world=world)
    for one in found:
        if one.description is None:
            yield Finding(
                area="power", name=one.name, state="absent" if one.is_absent and not one.is_configured else "warn", what=one.reason or ""
            )
        else:
            left_out = f", without {', '.join(one.description.excludes)}" if one.description.excludes else ""
            yield Finding(area="power", name=one.name, state="ok", what=f"{one.description.id}: {one.description.scope}{left_out}")
    chosen, why = choose_sensor(found)
    if chosen is None:
        remedy = "add a meter, or use a board with a power sensor; everything else is measured without"
        yield Finding(area="power", name="energy", state="warn", what=f"{why}: no energy will be reported", remedy=remedy)
    else:
        yield Finding(area="power", name="energy", state="ok", what=f"runs use {why}")


def as_json(findings: Sequence[Finding]) -> str:
    """Return `{"findings": [...]}`."""
    return json_document({"findings": findings})


def from_json(text: str) -> list[Finding]:
    """Return the findings that `as_json` wrote.

    Raises:
        ConfigError: it is not such a report.
    """
    try:
        return msgspec.json.decode(text, type=_Findings).findings
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ConfigError(f"not a report of `edgemeter doctor`: {error}") from error


def render(findings: Sequence[Finding]) -> "Table":
    """Return the findings as a table for a terminal; a remedy stands below what it cures."""
    from rich.table import Table  # noqa: PLC0415 - only where a table is shown
    from rich.text import Text  # noqa: PLC0415 - as above

    counts = {state: sum(finding.state == state for finding in findings) for state in MARKS}
    table = Table(box=None, pad_edge=False, show_header=False, caption=_summary(counts), caption_justify="left", caption_style="bold")
    for _ in range(4):
        table.add_column(overflow="fold")
    for finding in findings:
        mark, style = MARKS[finding.state]
        what = Text(finding.what)
        if finding.remedy:
            what.append(f"\n-> {finding.remedy}", style="cyan")
        table.add_row(Text(finding.area, style="dim"), Text(finding.name), Text(mark, style=style), what)
    return table


def _summary(counts: Mapping[FindingState, int]) -> str:
    warnings = count(counts["warn"], "warning")
    if counts["bad"]:
        return f"\n{count(counts['bad'], 'problem')}, {warnings}"
    return f"\nready to measure, {warnings}" if counts["warn"] else "\nready to measure"
