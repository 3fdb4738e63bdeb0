"""The commands `edgemeter sensors check` and `calibrate`: test a power sensor with a known load, fit one to a better instrument."""

import random
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path
from typing import Any

import click
import msgspec

from edgemeter.agent import power
from edgemeter.agent.base.completion import completes
from edgemeter.agent.base.config import home
from edgemeter.agent.base.config import read as read_config
from edgemeter.agent.base.documents import print_json
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.options import config_option, json_option, quiet_option
from edgemeter.agent.base.progress import note, progress_bar, wait_note
from edgemeter.agent.contract.record_figures import WIDEST_FIRST
from edgemeter.agent.energy import calibrate
from edgemeter.agent.energy.calibrate import CalibrationPlan, HeldStep, ReferenceInstrument
from edgemeter.agent.energy.load_steps import load, switched_load
from edgemeter.agent.energy.self_test import judged, length_s, read_under_load, turns
from edgemeter.agent.machine import fingerprint
from edgemeter.agent.machine.board import storing_board_key
from edgemeter.agent.machine.power_range import power_range
from edgemeter.agent.operating.changes import quiet_board
from edgemeter.agent.power import Description, PowerSensor
from edgemeter.agent.power.stored import MeasuredProperty, SelfTest, SensorCalibration, contradictions, save_calibration, save_self_test

# What a meter's display shows: its last digit tells the resolution.
DISPLAYED = re.compile(r"-?\d+(\.\d*)?")


@click.command("check")
@click.argument("name", shell_complete=completes(power.names))
@click.option("--seconds", type=click.FloatRange(20), help="Length of the test. Default: 60, or 90 of the sensor's periods.")
@click.option("--no-load", is_flag=True, help="Leave the processor alone, on a board in use: only gaps, steps and hangs are looked for.")
@config_option
@quiet_option
@json_option("Print what was measured, with bounds, as JSON.")
def check_sensor(name: str, seconds: float | None, config: Path | None, *, no_load: bool, as_json: bool) -> None:
    """Switch a load on all cores on and off, and measure how the sensor shows it: how late, averaged over what, by which clock.

    The result is stored; later runs on this board use what the sensor's driver does not state.

    Example: edgemeter sensors check ina3221
    """
    board = storing_board_key("self-test")
    with (
        quiet_board(home(), "edgemeter sensors check", wait_note),
        closing(power.create(name, **read_config(config).sensors.get(name, {}))) as sensor,
        nullcontext(lambda _: None) if no_load else switched_load() as switch,
        progress_bar() as tell,
    ):
        description = sensor.describe()
        lengths_s = turns(random.Random(), seconds or length_s(description))  # noqa: S311 - spreads moments, guards nothing
        note(f"reading {name} for {sum(lengths_s):.0f} s{'' if no_load else ' while all cores are busy and idle in turns'} ...")
        readings = read_under_load(sensor, switch, lengths_s, tell)
    test = judged(readings, description, board, power_range(fingerprint.read()), is_loaded=not no_load)
    contradicted = contradictions(test, description)
    if as_json:
        print_json({**msgspec.to_builtins(test), "contradictions": contradicted})
    else:
        _print_check(test, contradicted, " mJ" if description.kind == "energy" else " W")
    if no_load:
        note("nothing is stored of a test without load")
    else:
        note(f"stored in {save_self_test(test)}: later runs on this board use it")


def _print_check(test: SelfTest, contradicted: Sequence[str], unit_of_readings: str) -> None:
    click.echo(
        f"{test.sensor}: {test.readings} readings in {test.test_s:.0f} s, one every {test.reading_interval_s:.3g} s, the longest gap "
        f"{test.longest_gap_s:.3g} s, {test.failures} failed"
    )
    rows: dict[str, tuple[MeasuredProperty, str]] = {
        "step under load": (test.step, " W"),
        "delay, all of it": (test.delay_s, " s"),
        "averaging window": (test.window_s, " s"),
        "lag beyond it": (test.lag_s, " s"),
        "own clock": (test.update_interval_s, " s"),
        "share seen": (test.seen_ratio, ""),
        "step of readings": (test.resolution, unit_of_readings),
    }
    for label, (measured, unit) in rows.items():
        if measured.value is None:
            click.echo(f"  {label:<18} not to be told: {measured.reason}")
        else:
            click.echo(f"  {label:<18} {measured.value:.4g}{unit} ({measured.low:.4g} to {measured.high:.4g})")
    for finding in (*test.findings, *contradicted):
        click.echo(f"warning: {finding}", err=True)


@click.command("calibrate")
@click.argument("name", shell_complete=completes(power.names))
@click.option(
    "--against", metavar="SENSOR", shell_complete=completes(power.names), help="Reference: another sensor that sees the same load."
)
@click.option("--typed", is_flag=True, help="Reference: type in what a meter shows at each step.")
@click.option("--steps", type=click.IntRange(3, 50), default=6, show_default=True, help="Load steps, from idle to all cores.")
@click.option("--settle", "settle_s", type=click.FloatRange(0), default=5.0, show_default=True, help="Seconds to settle before each step.")
@click.option("--seconds", type=click.FloatRange(1), default=20.0, show_default=True, help="Seconds of reading per step.")
@click.option(
    "--reference-u",
    type=click.FloatRange(0, 0.5),
    help="Relative standard uncertainty of the reference's gain. Default: the reference's own.",
)
@click.option("--reference-offset-u", type=click.FloatRange(0), default=0.0, help="Standard uncertainty of its zero in W.")
@click.option("--reference-name", default="typed-in readings", show_default=True, help="Name of the meter whose readings are typed in.")
@click.option("--reference-scope", help="Scope of that meter: wall-ac, board-input, ... Default: the sensor's.")
@click.option("--promotion", metavar="MODEL", help="Store the calibration as a named model of a wider scope, used as NAME+MODEL only.")
@config_option
@json_option("Print the calibration as JSON.")
def calibrate_sensor(name: str, against: str | None, promotion: str | None, config: Path | None, **options: Any) -> None:
    """Fit gain and offset of a sensor against a better instrument, over load steps made here.

    Example: edgemeter sensors calibrate ina3221 --against joulescope
    """
    if (against is None) != options["typed"]:
        raise click.UsageError("give either --against SENSOR, or --typed")
    scope = options["reference_scope"]
    if scope not in (None, *WIDEST_FIRST):
        raise ConfigError(f"there is no scope {scope!r}: choose one of {', '.join(WIDEST_FIRST)}")
    plan = CalibrationPlan(options["steps"], options["settle_s"], options["seconds"])
    meter = ReferenceInstrument(options["reference_name"], scope, (), options["reference_u"], options["reference_offset_u"])
    fitted, steps, path = calibrate_against((name, against), read_config(config).sensors, plan, meter, promotion)
    if options["as_json"]:
        print_json({**msgspec.to_builtins(fitted), "points": [msgspec.to_builtins(step) for step in steps]})
    else:
        _print_calibration(fitted, steps)
    click.echo(f"stored in {path}: later runs on this board use it", err=True)


def calibrate_against(
    names: tuple[str, str | None],
    settings: Mapping[str, Mapping[str, str]],
    plan: CalibrationPlan,
    meter: ReferenceInstrument,
    promotion: str | None,
) -> tuple[SensorCalibration, list[HeldStep], Path]:
    """Run the load steps and return the calibration, its steps, and the file that stores it.

    `names` are those of the sensor and of the reference sensor, None if readings are typed in; `meter` is what the user knows about the
    reference.

    Raises:
        EdgemeterError: a sensor is absent, the steps do not determine a line, or the file cannot be written.
    """
    board = storing_board_key("calibration")
    name, other = names
    if name == other:
        raise ConfigError(f"{name!r} cannot be its own reference: name another sensor, or type readings in (--typed)")
    with ExitStack() as stack:
        sensors: dict[str, PowerSensor] = {}
        for sensor_name in filter(None, (name, other)):
            sensors[sensor_name] = power.create(sensor_name, **settings.get(sensor_name, {}))
            stack.callback(sensors[sensor_name].close)
        descriptions = {sensor_name: sensor.describe() for sensor_name, sensor in sensors.items()}
        description = descriptions[name]
        reference = meter if other is None else _of_sensor(other, descriptions[other], meter)
        # Before minutes of load are spent on it.
        calibrate.calibrated_scope(description, reference, promotion)
        steps = (
            calibrate.steps_typed(name, sensors[name], plan, load, _print_step, _ask)
            if other is None
            else calibrate.steps_against(sensors, name, other, plan, load, _print_step)
        )
    fitted = calibrate.calibration_of(board, description, reference, steps, promotion)
    return fitted, steps, save_calibration(fitted)


def _of_sensor(name: str, description: Description, meter: ReferenceInstrument) -> ReferenceInstrument:
    """Return the reference sensor as an instrument; the uncertainty given by the user goes before its own."""
    gain_u = meter.gain_u_ratio if meter.gain_u_ratio is not None else description.gain_u_ratio
    offset_u_w = meter.offset_u_w or description.offset_u_w or (description.resolution_w or 0.0) / 3**0.5
    return ReferenceInstrument(f"{name} ({description.id})", description.scope, description.excludes, gain_u, offset_u_w)


def _print_step(event: HeldStep | float) -> None:
    if isinstance(event, float):
        click.echo(f"loading {event:.0%} of the cores ...", err=True)
    else:
        click.echo(f"  {event.step.sensor_w:.4f} W shown, {event.step.reference_w:.4f} W by the reference", err=True)


def _ask(_share: float) -> tuple[float, float]:
    """Return the reading of a meter in W that the user types in, and the step of its display."""
    while True:
        typed = click.prompt("  the meter shows (W)", err=True)
        if DISPLAYED.fullmatch(typed):
            return float(typed), 10.0 ** -len(typed.partition(".")[2])
        click.echo(f"  {typed!r} is not a number of watts: type it as shown, e.g. 12.34", err=True)


def _print_calibration(fitted: SensorCalibration, steps: list[HeldStep]) -> None:
    gain_u = "unknown (give --reference-u)" if fitted.gain_u_ratio is None else f"{fitted.gain_u_ratio:.2%}"
    for name, step_w in zip((fitted.sensor, fitted.reference), steps[-1].assumed_w, strict=True):
        if step_w is not None:
            click.echo(f"the step of {name}'s readings is not known: it is taken to be {step_w:.3g} W, their smallest difference", err=True)
    scope = f"{fitted.scope}, as the promotion {fitted.name!r}" if fitted.name else fitted.scope
    click.echo(
        f"{fitted.sensor} ({scope}) against {fitted.reference}: {len(steps)} steps, {fitted.lowest_w:.3g} to {fitted.highest_w:.3g} W"
    )
    click.echo(f"  true = {fitted.offset_w:+.4f} W + {fitted.gain:.5f} x shown; residual {fitted.residual_w:.2g} W")
    click.echo(f"  standard uncertainties: gain {gain_u}, zero {fitted.offset_u_w:.2g} W")
