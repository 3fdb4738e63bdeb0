"""The commands `edgemeter sensors ...`: what measures watts here, what it shows, and what it shows of a recording."""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from edgemeter.agent.calibration.procedure import Held, Reference
    from edgemeter.agent.power import Description, Reading
    from edgemeter.agent.power.calibration_file import Calibration
    from edgemeter.agent.power.detect import Found
    from edgemeter.agent.power.live import Shown

# What a meter's display shows: its last digit tells how finely.
DISPLAYED = re.compile(r"-?\d+(\.\d*)?")
COUNTER_WARNING = "an energy counter: a single state of it holds no watts"


@click.group(invoke_without_command=True, short_help="Show what measures power here, and read recordings of it.")
@click.option("--config", type=click.Path(path_type=Path), envvar="EDGEMETER_CONFIG", help="The agent's TOML configuration.")
@click.option("--all", "everything", is_flag=True, help="Also list what is not here, and why.")
@click.option("--json", "as_json", is_flag=True, help='Print {"sensors": [...], "chosen": ...}.')
@click.pass_context
def sensors(context: click.Context, config: Path | None, *, everything: bool, as_json: bool) -> None:
    """Show what measures power here, in watts now, what it leaves out, and which sensor a run would use.

    Example: edgemeter sensors --all
    """
    if context.invoked_subcommand is not None:
        return
    from edgemeter.agent.config import read as read_config
    from edgemeter.agent.power import detect

    settings = read_config(config)
    found = detect.detect(settings.sensors)
    shown = [_shown_or_why(one.name, settings.sensors) for one in found if one.description is not None]
    chosen, why = detect.choose(found)
    if settings.power:
        chosen = ",".join(settings.power)
        why = f"{chosen}, as `power` in the configuration says"
    absent = [one for one in found if one.description is None]
    if as_json:
        rows = [_document(one.name, one.description, one.reading, one.power_w, one.error) for one in shown]
        rows += [{"sensor": one.name, "error": one.reason, "absent": one.is_absent} for one in absent]
        click.echo(json.dumps({"sensors": rows, "chosen": chosen, "why": why}, indent=2))
    else:
        _print_list(shown, [one for one in absent if everything or not one.is_absent], f"runs use {why}" if chosen else why)


@sensors.command("read", short_help="Read one sensor, or a recording of one.")
@click.argument("name", required=False)
@click.option("--from", "recording", type=click.Path(readable=False, path_type=Path), help="A recorded tree, output, answer or bytes.")
@click.option("--as", "as_name", metavar="NAME", help="The sensor whose recording it is. Default: the one that knows its form.")
@click.option("--config", type=click.Path(path_type=Path), envvar="EDGEMETER_CONFIG", help="The agent's TOML configuration.")
@click.option("--json", "as_json", is_flag=True, help="Print sensor, scope, excludes, total_w, rails and warnings as JSON.")
def read_sensor(name: str | None, recording: Path | None, as_name: str | None, config: Path | None, *, as_json: bool) -> None:
    """Read one sensor of this machine, or run its real reader on a recording from another one.

    Example: edgemeter sensors read --from tegrastats.txt --json
    """
    from edgemeter.agent.errors import EdgemeterError

    if (recording is None) == (name is None):
        message = "give either the NAME of a sensor, or --from PATH with a recording of one"
        raise click.UsageError(message)
    try:
        found = _of_recording(recording, as_name, config) if recording else _of_machine(name or "", config)
    except EdgemeterError as error:
        if as_json:
            click.echo(json.dumps({"error": " ".join(str(error).split())}, indent=2))
        raise
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        _print_reading(found)


def _of_recording(path: Path, name: str | None, config: Path | None) -> dict[str, Any]:
    from edgemeter.agent.config import read as read_config
    from edgemeter.agent.power.recording import Recording

    # Not this machine's own configuration, unless it is named: the recording is of another.
    with Recording(path, read_config(config).sensors if config else None) as source:
        said = source.read(name)
    rails = said.reading.rails
    # A recorded counter stands still; some sensors show the present watts beside it, as their one rail.
    beside_w = rails[0].power_w if said.description.kind == "energy" and len(rails) == 1 else None
    return _document(said.name, said.description, said.reading, said.reading.power_w if beside_w is None else beside_w, None)


def _of_machine(name: str, config: Path | None) -> dict[str, Any]:
    from edgemeter.agent.config import read as read_config
    from edgemeter.agent.errors import UnavailableError

    shown = _shown(name, read_config(config).sensors)
    if shown.error is not None:
        raise UnavailableError(shown.error)
    return _document(name, shown.description, shown.reading, shown.power_w, None)


def _shown(name: str, settings: Mapping[str, Mapping[str, str]]) -> "Shown":
    """Return what a sensor shows now, corrected by its calibration as in a run."""
    from edgemeter.agent.power import live, opening

    sensor = opening.opened_one(name, settings)
    try:
        return live.look(name, sensor)
    finally:
        sensor.close()


def _shown_or_why(name: str, settings: Mapping[str, Mapping[str, str]]) -> "Shown":
    from edgemeter.agent.errors import EdgemeterError
    from edgemeter.agent.power import live

    try:
        return _shown(name, settings)
    except EdgemeterError as error:
        return live.Shown(name, None, None, None, str(error))


def _document(
    name: str, description: "Description | None", reading: "Reading | None", power_w: float | None, error: str | None
) -> dict[str, Any]:
    if description is None or reading is None:
        return {"sensor": name, "error": error}
    warnings = [*description.warnings, *([f"no energy is given from it: {description.blocked}"] if description.blocked else [])]
    if power_w is None:
        warnings.append(COUNTER_WARNING)
    return {
        "sensor": name,
        "id": description.id,
        "scope": description.scope,
        "excludes": list(description.excludes),
        "total_w": power_w,
        "rails": [{"name": rail.name, "power_w": rail.power_w} for rail in reading.rails],
        "warnings": warnings,
    }


def _print_list(shown: "list[Shown]", absent: "list[Found]", why: str) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("sensor", no_wrap=True)
    table.add_column("W now", justify="right", no_wrap=True)
    table.add_column("scope", no_wrap=True)
    table.add_column("leaves out")
    for one in shown:
        described = one.description
        watts = "-" if one.power_w is None else f"{one.power_w:.3f}"
        table.add_row(one.name, watts, described.scope if described else "", Text(", ".join(described.excludes) if described else ""))
    console = Console()
    if shown:
        console.print(table)
    for one in shown:
        described = one.description
        for warning in (*(described.warnings if described else ()), *filter(None, (described.blocked if described else None, one.error))):
            console.print(f"{one.name}: {warning}", markup=False, highlight=False, soft_wrap=True)
    for missing in absent:
        console.print(f"{missing.name}: {missing.reason}", style="dim", markup=False, highlight=False, soft_wrap=True)
    console.print(why, markup=False, highlight=False, soft_wrap=True)
    if not shown and not absent:
        console.print("`edgemeter sensors --all` says what was looked for, and what those need that must be set up")


def _print_reading(found: dict[str, Any]) -> None:
    total = found["total_w"]
    click.echo(f"{found['id']}: {'-' if total is None else f'{total:.4f} W'} ({found['scope']})")
    for rail in found["rails"]:
        watts = "-" if rail["power_w"] is None else f"{rail['power_w']:.4f} W"
        click.echo(f"  {rail['name']:<24} {watts:>12}")
    if found["excludes"]:
        click.echo(f"leaves out {', '.join(found['excludes'])}")
    for warning in found["warnings"]:
        click.echo(f"warning: {warning}", file=sys.stderr)


@sensors.command("calibrate", short_help="Fit gain and offset of a sensor against a better instrument.")
@click.argument("name")
@click.option("--against", metavar="SENSOR", help="Another sensor that sees the same load.")
@click.option("--typed", is_flag=True, help="Type in what a meter shows at each step.")
@click.option("--steps", type=click.IntRange(3, 50), default=6, show_default=True, help="Load steps, from idle to all cores.")
@click.option("--settle", "settle_s", type=click.FloatRange(0), default=5.0, show_default=True, help="Seconds before a step is read.")
@click.option("--seconds", type=click.FloatRange(1), default=20.0, show_default=True, help="Seconds that a step is read.")
@click.option(
    "--reference-u", type=click.FloatRange(0, 0.5), help="Relative standard uncertainty of the reference's gain. Default: its own."
)
@click.option("--reference-offset-u", type=click.FloatRange(0), default=0.0, help="Standard uncertainty of its zero, W.")
@click.option("--reference-name", default="typed-in readings", show_default=True, help="What the typed readings come from.")
@click.option("--reference-scope", help="What the typed readings see: wall-ac, board-input, ... Default: what the sensor sees.")
@click.option("--promotion", metavar="MODEL", help="Keep it as a named model of a wider scope, used as NAME+MODEL only.")
@click.option("--config", type=click.Path(path_type=Path), envvar="EDGEMETER_CONFIG", help="The agent's TOML configuration.")
@click.option("--json", "as_json", is_flag=True, help="Print the calibration as JSON.")
def calibrate_sensor(name: str, against: str | None, promotion: str | None, config: Path | None, **options: Any) -> None:
    """Fit gain and offset of a sensor against another one, or against readings you type in, over load steps made here.

    Example: edgemeter sensors calibrate ina3221 --against joulescope
    """
    if (against is None) != options["typed"]:
        message = "give either --against SENSOR, or --typed"
        raise click.UsageError(message)
    import msgspec

    from edgemeter.agent import sensors_calibrate
    from edgemeter.agent.calibration.procedure import Plan
    from edgemeter.agent.config import read as read_config

    found, held, path = sensors_calibrate.calibrate(
        (name, against),
        read_config(config).sensors,
        Plan(options["steps"], options["settle_s"], options["seconds"]),
        _told(options),
        promotion,
        _tell_step,
        _ask,
    )
    if options["as_json"]:
        click.echo(json.dumps({**msgspec.to_builtins(found), "points": [msgspec.to_builtins(one) for one in held]}, indent=2))
    else:
        _print_calibration(found, held)
    click.echo(f"kept in {path}: later runs on this board use it", err=True)


def _told(options: dict[str, Any]) -> "Reference":
    from edgemeter.agent.calibration.procedure import Reference
    from edgemeter.agent.errors import ConfigError
    from edgemeter.agent.power.detect import WIDEST_FIRST

    scope = options["reference_scope"]
    if scope not in (None, *WIDEST_FIRST):
        message = f"there is no scope {scope!r}: choose one of {', '.join(WIDEST_FIRST)}"
        raise ConfigError(message)
    return Reference(options["reference_name"], scope, (), options["reference_u"], options["reference_offset_u"])


def _tell_step(event: "Held | float") -> None:
    if isinstance(event, float):
        click.echo(f"loading {event:.0%} of the cores ...", err=True)
    else:
        click.echo(f"  {event.step.sensor_w:.4f} W shown, {event.step.reference_w:.4f} W by the reference", err=True)


def _ask(_share: float) -> tuple[float, float]:
    """Return what somebody reads off a meter, W, and the step of its display."""
    while True:
        said = click.prompt("  the meter shows (W)", err=True)
        if DISPLAYED.fullmatch(said):
            return float(said), 10.0 ** -len(said.partition(".")[2])
        click.echo(f"  {said!r} is no number of watts: type it as it is shown, 12.34", err=True)


def _print_calibration(found: "Calibration", held: "list[Held]") -> None:
    gain_u = "unknown (say it with --reference-u)" if found.gain_u_ratio is None else f"{found.gain_u_ratio:.2%}"
    what = f"{found.scope}, as the promotion {found.name!r}" if found.name else found.scope
    click.echo(f"{found.sensor} ({what}) against {found.reference}: {len(held)} steps, {found.lowest_w:.3g} to {found.highest_w:.3g} W")
    click.echo(f"  true = {found.offset_w:+.4f} W + {found.gain:.5f} x shown; the points lie off it by {found.residual_w:.2g} W")
    click.echo(f"  standard uncertainties: gain {gain_u}, zero {found.offset_u_w:.2g} W")
