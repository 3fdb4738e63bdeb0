"""The doctor: looks at everything that a run needs, and says what is here, what is wrong, and what to do about it."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgemeter.agent.config import Config
from edgemeter.agent.doctor import check_machine, check_software
from edgemeter.agent.doctor.finding import Finding, State
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine
from edgemeter.agent.power.detect import choose, detect
from edgemeter.agent.power.world import HERE, World

if TYPE_CHECKING:
    from rich.table import Table

MARKS: Mapping[State, tuple[str, str]] = {
    "ok": ("ok", "green"),
    "warn": ("warn", "yellow"),
    "bad": ("BAD", "bold red"),
    "absent": ("-", "dim"),
}


class _Report(msgspec.Struct, frozen=True):
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

    `broker` is the address to look at, None for none, and `settings` names its files; `home` is where the outbox lies; `sensors` holds
    the settings of power sensors by name. Takes as long as the installed runtimes need to be imported.
    """
    # Late, so that a damaged MQTT library is a finding's matter and not the end of the doctor.
    from edgemeter.agent.doctor import check_delivery  # noqa: PLC0415 - as above

    return [
        *check_machine.check(machine),
        *check_software.check(),
        *_power(sensors, HERE if machine is THIS_MACHINE else World(machine.root)),
        *check_delivery.check(home, broker, settings),
    ]


def _power(settings: Mapping[str, Mapping[str, str]] | None, world: World = HERE) -> Iterator[Finding]:
    found = detect(settings, world=world)
    for one in found:
        if one.description is None:
            yield Finding(area="power", name=one.name, state="absent" if one.is_absent else "warn", what=one.reason or "")
        else:
            left_out = f", without {', '.join(one.description.excludes)}" if one.description.excludes else ""
            yield Finding(area="power", name=one.name, state="ok", what=f"{one.description.id}: {one.description.scope}{left_out}")
    chosen, why = choose(found)
    if chosen is None:
        remedy = "a meter or a board with a sensor gives energy per inference; everything else is measured without"
        yield Finding(area="power", name="energy", state="warn", what=f"{why}: no energy will be reported", remedy=remedy)
    else:
        yield Finding(area="power", name="energy", state="ok", what=f"runs use {why}")


def as_json(findings: Sequence[Finding]) -> str:
    """Return `{"findings": [...]}`."""
    return msgspec.json.format(msgspec.json.encode({"findings": findings}), indent=2).decode()


def from_json(text: str) -> list[Finding]:
    """Return the findings that `as_json` wrote.

    Raises:
        ConfigError: it is no doctor's report.
    """
    try:
        return msgspec.json.decode(text, type=_Report).findings
    except (msgspec.MsgspecError, RecursionError) as error:
        message = f"not a doctor's report: {error}"
        raise ConfigError(message) from error


def render(findings: Sequence[Finding]) -> "Table":
    """Return the findings as a table for a terminal; a remedy stands below what it cures."""
    from rich.table import Table  # noqa: PLC0415 - only where a table is shown
    from rich.text import Text  # noqa: PLC0415 - as above

    count = {state: sum(finding.state == state for finding in findings) for state in MARKS}
    table = Table(box=None, pad_edge=False, show_header=False, caption=_summary(count), caption_justify="left", caption_style="bold")
    for _ in range(4):
        table.add_column(overflow="fold")
    for finding in findings:
        mark, style = MARKS[finding.state]
        what = Text(finding.what)
        if finding.remedy:
            what.append(f"\n-> {finding.remedy}", style="cyan")
        table.add_row(Text(finding.area, style="dim"), Text(finding.name), Text(mark, style=style), what)
    return table


def _summary(count: Mapping[State, int]) -> str:
    if count["bad"]:
        return f"\n{count['bad']} to repair, {count['warn']} to think about"
    return f"\nready to measure, {count['warn']} to think about" if count["warn"] else "\nready to measure"
