"""The commands `edgemeter energy sensors`: list power sensors, read one."""

import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgemeter.agent import power
from edgemeter.agent.base.cli.command_group import CommandGroup, Sections
from edgemeter.agent.base.cli.completion import completes
from edgemeter.agent.base.cli.options import config_option, format_option
from edgemeter.agent.base.cli.tables import Format, console_for, print_data
from edgemeter.agent.base.config import read as read_config
from edgemeter.agent.base.errors import FAILED, EdgemeterError, UnavailableError
from edgemeter.agent.power.detect import (
    DetectedSensor,
    LiveReading,
    choose_sensor,
    detect_sensors,
    open_sensor,
    read_now,
)

if TYPE_CHECKING:
    from edgemeter.agent.base.console import Console

COMMANDS: Sections = {
    "Commands": {"read": ("edgemeter.agent.cli.sensors:read_sensor", "Read one sensor.")}
}
COUNTER_WARNING = "an energy counter: a single reading of it gives no power"


@click.group(cls=CommandGroup, sections=COMMANDS, invoke_without_command=True)
@config_option
@click.option(
    "--all", "everything", is_flag=True, help="Also list absent sensors, with the reason."
)
@format_option('{"sensors": [...], "chosen": ...}')
@click.pass_context
def sensors(context: click.Context, config: Path | None, *, everything: bool, form: Format) -> None:
    """List the power sensors of this machine.

    The list shows the power now, the scope and what it excludes, and which sensor a run uses.

    The exit status is 1 if the configuration has wrong settings of a sensor.

    Example: edgemeter energy sensors --all
    """
    if context.invoked_subcommand is not None:
        return
    settings = read_config(config)
    detected = detect_sensors(settings.sensors)
    readings = [
        _read_or_error(sensor.name, settings.sensors)
        for sensor in detected
        if sensor.description is not None
    ]
    chosen_name, why = choose_sensor(detected)
    if settings.power:
        chosen_name = ",".join(settings.power)
        why = f"{chosen_name}, set as `power` in the configuration"
    absent = [sensor for sensor in detected if sensor.description is None]
    rows = [_document(live) for live in readings]
    rows += [
        {"sensor": sensor.name, "error": sensor.reason, "absent": sensor.is_absent}
        for sensor in absent
    ]
    if not print_data(form, {"sensors": rows, "chosen": chosen_name, "why": why}):
        named = [
            sensor
            for sensor in absent
            if everything or sensor.is_configured or not sensor.is_absent
        ]
        unread = [sensor.name for sensor in absent if sensor.name in settings.power]
        runs = (
            f"no run can be measured: `power` in the configuration names {', '.join(unread)}"
            if unread
            else f"runs use {why}"
        )
        _print_list(readings, named, runs if chosen_name else why, console_for(form))
    if any(sensor.is_misconfigured and sensor.is_configured for sensor in detected):
        sys.exit(FAILED)


@click.command("read")
@click.argument("name", shell_complete=completes(power.names))
@config_option
@format_option("", "table", "json")
def read_sensor(name: str, config: Path | None, *, form: Format) -> None:
    """Read one sensor of this machine.

    Example: edgemeter energy sensors read ina3221 --format json
    """
    try:
        live = _read(name, read_config(config).sensors)
        if live.error is not None:
            raise UnavailableError(live.error)
    except EdgemeterError as error:
        print_data(form, {"error": " ".join(str(error).split())})
        raise
    if not print_data(form, _document(live)):
        _print_reading(_document(live))


def _read(name: str, settings: Mapping[str, Mapping[str, str]]) -> LiveReading:
    """Return a sensor's present reading, as in a run."""
    with closing(open_sensor(name, settings)) as sensor:
        return read_now(name, sensor)


def _read_or_error(name: str, settings: Mapping[str, Mapping[str, str]]) -> LiveReading:
    try:
        return _read(name, settings)
    except EdgemeterError as error:
        return LiveReading(name, None, None, None, str(error))


def _document(live: LiveReading) -> dict[str, Any]:
    description, reading = live.description, live.reading
    if description is None or reading is None:
        return {"sensor": live.name, "error": live.error}
    warnings = [
        *description.warnings,
        *([f"no energy is reported from it: {description.blocked}"] if description.blocked else []),
    ]
    if live.power_w is None:
        warnings.append(COUNTER_WARNING)
    return {
        "sensor": live.name,
        "id": description.id,
        "scope": description.scope,
        "excludes": list(description.excludes),
        "total_w": live.power_w,
        "rails": [{"name": rail.name, "power_w": rail.power_w} for rail in reading.rails],
        "delay_ms": description.delay_ms,
        "warnings": warnings,
    }


def _print_list(
    readings: list[LiveReading], absent: list[DetectedSensor], why: str, console: "Console"
) -> None:
    from edgemeter.agent.base.console import Table, Text

    table = Table()
    table.add_column("sensor", is_whole=True)
    table.add_column("W now", "right", is_whole=True)
    table.add_column("scope", is_whole=True)
    table.add_column("excludes")
    for live in readings:
        described = live.description
        watts = "-" if live.power_w is None else f"{live.power_w:.3f}"
        table.add_row(
            live.name,
            watts,
            described.scope if described else "",
            Text(", ".join(described.excludes) if described else ""),
        )
    if readings:
        console.print(table)
    for live in readings:
        described = live.description
        for warning in (
            *(described.warnings if described else ()),
            *filter(None, (described.blocked if described else None, live.error)),
        ):
            console.print(f"{live.name}: {warning}")
    for missing in absent:
        console.print(f"{missing.name}: {missing.reason}", style="dim")
    console.print(why)
    if not readings and not absent:
        console.print(
            "`edgemeter energy sensors --all` lists the sensors that were looked for, and how to "
            "set up those that need it"
        )


def _print_reading(document: dict[str, Any]) -> None:
    total = document["total_w"]
    click.echo(
        f"{document['id']}: {'-' if total is None else f'{total:.4f} W'} ({document['scope']})"
    )
    for rail in document["rails"]:
        watts = "-" if rail["power_w"] is None else f"{rail['power_w']:.4f} W"
        click.echo(f"  {rail['name']:<24} {watts:>12}")
    if document["excludes"]:
        click.echo(f"excludes {', '.join(document['excludes'])}")
    if document["delay_ms"] is not None:
        click.echo(f"readings are at most {document['delay_ms']:,.4g} ms late")
    for warning in document["warnings"]:
        click.echo(f"warning: {warning}", file=sys.stderr)
