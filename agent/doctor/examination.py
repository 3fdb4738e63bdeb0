"""The doctor, which checks everything that a run needs.

It reports the equipment, problems and their remedies.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from edgemeter.agent.base.config import Config
from edgemeter.agent.base.console import Table, Text
from edgemeter.agent.base.documents import json_document
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.base.number_text import count
from edgemeter.agent.doctor.checks import Finding, FindingState, check_machine, check_software
from edgemeter.agent.machine.machine import THIS_MACHINE
from edgemeter.agent.operating.changed_board import restore_leftover
from edgemeter.agent.power import ROOT
from edgemeter.agent.power.detect import choose_sensor, detect_sensors

MARKS: Mapping[FindingState, tuple[str, str]] = {
    "ok": ("ok", "green"),
    "warn": ("warn", "yellow"),
    "bad": ("BAD", "bold red"),
    "absent": ("-", "dim"),
}
NEW_LINE = "\n"
# Findings that the brief report shows even if they are fine; installed packages that are not
# runtimes; disturbances of runs.
NAMED = ("board", "processor", "memory", "accelerator", "power mode", "energy", "ledger", "broker")
TOOLS = ("python", "edgemeter", "sandbox", "images")
SHARED = ("virtualisation", "load")


def examine(*, broker: str | None, home: Path, settings: Config) -> list[Finding]:
    """Return all findings; this takes as long as importing the installed runtimes.

    `broker` is the address to check or None, `settings` names its files and the sensors; `home`
    contains the outbox.
    """
    # Imported late: a damaged MQTT library is a finding, and must not stop the doctor.
    from edgemeter.agent.doctor import check_delivery  # noqa: PLC0415 - as above

    return [
        *check_machine(THIS_MACHINE),
        *([Finding("machine", "settings", "warn", why)] if (why := restore_leftover(home)) else []),
        *check_software(),
        *_power(settings.sensors),
        *check_delivery.check(home, broker),
    ]


def _power(settings: Mapping[str, Mapping[str, str]], root: Path = ROOT) -> Iterator[Finding]:
    sensors = detect_sensors(settings, root=root)
    for sensor in sensors:
        if sensor.description is None:
            usual: FindingState = (
                "absent" if sensor.is_absent and not sensor.is_configured else "warn"
            )
            # A run refuses wrong settings, but skips an unconfigured sensor that lacks its
            # hardware.
            state: FindingState = (
                "bad" if sensor.is_misconfigured and sensor.is_configured else usual
            )
            where = (
                f"correct [sensors.{sensor.name}] in the configuration, then "
                if sensor.is_configured
                else "once that is fixed, "
            )
            remedy = (
                None
                if state == "absent"
                else f"{where}`edgemeter energy sensors` shows what it reads"
            )
            yield Finding("power", sensor.name, state, sensor.reason or "", remedy)
        else:
            left_out = (
                f", without {', '.join(sensor.description.excludes)}"
                if sensor.description.excludes
                else ""
            )
            described = f"{sensor.description.id}: {sensor.description.scope}{left_out}"
            yield Finding(
                "power", sensor.name, "ok", "; ".join((described, *sensor.description.warnings))
            )
    sensor_name, why = choose_sensor(sensors)
    if sensor_name is None:
        yield Finding(
            "power",
            "energy",
            "warn",
            f"{why}: no energy will be reported",
            "see `edgemeter energy sensors --all`",
        )
    else:
        yield Finding("power", "energy", "ok", f"runs use {why}")


def as_json(findings: Sequence[Finding]) -> str:
    return json_document({"findings": findings})


def from_json(text: str) -> list[Finding]:
    """Return the findings in the text from `as_json`.

    Raises:
        ConfigError: it is not such a report.
    """
    try:
        return decode_json(text, dict[str, list[Finding]])["findings"]
    except (msgspec.MsgspecError, KeyError) as error:
        raise ConfigError(f"not a report of `edgemeter doctor`: {error}") from error


def render(findings: Sequence[Finding], *, is_whole: bool = False) -> Table:
    """Return the findings as a table.

    It has problems, equipment, and one row for absent parts; or, with `is_whole`, the full list.
    """
    table = Table(caption=Text(_summary(findings), "bold"))
    for _ in range(4 if is_whole else 3):
        table.add_column()
    for finding in findings if is_whole else _brief(findings):
        mark, style = MARKS[finding.state]
        remedy = f"{NEW_LINE if is_whole else ' '}-> {finding.remedy}" if finding.remedy else ""
        area = [Text(finding.area, style="dim")] if is_whole else []
        table.add_row(*area, finding.name, Text(mark, style), f"{finding.what}{remedy}")
    return table


def _brief(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Yield the findings in brief.

    They are the problems, the equipment, the runtimes in one finding, and the absent parts in
    another.
    """
    runtimes = [
        f for f in findings if f.area == "software" and f.state == "ok" and f.name not in TOOLS
    ]
    for state in ("bad", "warn"):
        yield from (finding for finding in findings if finding.state == state)
    yield from (finding for finding in findings if finding.state == "ok" and finding.name in NAMED)
    if runtimes:
        yield Finding(
            "software",
            "runtimes",
            "ok",
            ", ".join(f"{runtime.name} ({runtime.what})" for runtime in runtimes),
        )
    absent = [finding for finding in findings if finding.state == "absent"]
    names = [finding.name for finding in absent if finding.area != "power"]
    if sensor_count := len(absent) - len(names):
        names.append(count(sensor_count, "power sensor"))
    if names:
        yield Finding("machine", "not here", "absent", f"{', '.join(names)}: --all shows why")


def _summary(findings: Sequence[Finding]) -> str:
    counts = Counter(finding.state for finding in findings)
    warnings = count(counts["warn"], "warning")
    ready = f"ready to measure, {warnings}" if counts["warn"] else "ready to measure"
    text = f"{count(counts['bad'], 'problem')}, {warnings}" if counts["bad"] else ready
    is_shared = any(finding.name in SHARED and finding.state == "warn" for finding in findings)
    return f"\n{text}{'; runs on this shared machine are often disturbed' if is_shared else ''}"
