"""The command `edgemeter energy sensors check`: test a power sensor with a known load."""

import random
from collections.abc import Sequence
from contextlib import closing, nullcontext
from pathlib import Path

import click
import msgspec

from edgemeter.agent import power
from edgemeter.agent.base.completion import completes
from edgemeter.agent.base.config import home
from edgemeter.agent.base.config import read as read_config
from edgemeter.agent.base.options import config_option, format_option
from edgemeter.agent.base.progress import note, progress_bar, warn
from edgemeter.agent.base.tables import Format, print_data
from edgemeter.agent.energy.self_test import judged, length_s, read_under_load, switched_load, turns
from edgemeter.agent.machine import fingerprint
from edgemeter.agent.machine.board import storing_board_key
from edgemeter.agent.machine.power_range import power_range
from edgemeter.agent.operating.changes import quiet_board
from edgemeter.agent.power.stored import MeasuredProperty, SelfTest, contradictions, save_self_test


@click.command("check")
@click.argument("name", shell_complete=completes(power.names))
@click.option("--seconds", type=click.FloatRange(20), help="Length of the test. Default: 60, or 90 of the sensor's periods.")
@click.option("--no-load", is_flag=True, help="Leave the processor alone, on a board in use: only gaps, steps and hangs are looked for.")
@config_option
@format_option("", "table", "json")
def check_sensor(name: str, seconds: float | None, config: Path | None, *, no_load: bool, form: Format) -> None:
    """Switch a load on all cores on and off, and measure how the sensor shows it: how late, averaged over what, by which clock.

    The result is stored; later runs on this board use what the sensor's driver does not state.

    Example: edgemeter energy sensors check ina3221
    """
    board = storing_board_key("self-test")
    with (
        quiet_board(home(), "edgemeter energy sensors check", warn),
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
    if not print_data(form, {**msgspec.to_builtins(test), "contradictions": contradicted}):
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
