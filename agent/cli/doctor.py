"""The commands `edgemeter doctor`: check this device; measure the overhead of measuring on it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgemeter.agent.base import config
from edgemeter.agent.base.command_group import DefaultGroup
from edgemeter.agent.base.documents import print_json
from edgemeter.agent.base.errors import FAILED
from edgemeter.agent.base.options import PATH, broker_files, config_option, format_option, json_option, names_and_config, quiet_option
from edgemeter.agent.base.progress import note, wait_note
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.agent.cli.case_options import MODEL_OPTIONS, SHORT_MODES, case_options, power_option
from edgemeter.agent.cli.run_session import session_progress, single_case

if TYPE_CHECKING:
    from edgemeter.agent.session.observer import CalibratedObserver


@click.group(cls=DefaultGroup, invoke_without_command=True)
@click.option("--broker", envvar="EDGEMETER_BROKER", help="Also check the connection to this broker.")
@broker_files
@config_option
@format_option('Print {"findings": [...]}.')
@click.pass_context
def doctor(context: click.Context, /, broker: str | None, *, form: Format | None, **options: Any) -> None:
    """Check this device (board, runtimes, sensors, clock, broker), and show how to fix what is wrong.

    The exit status is 1 if a finding is BAD: nothing can be measured or delivered so.

    Example: edgemeter doctor --broker 192.0.2.7
    """
    if context.invoked_subcommand is not None:
        return
    from edgemeter.agent.doctor import examination
    from edgemeter.agent.operating.changes import restore_leftover

    note(restore_leftover(config.home()))
    settings = config.from_options(options)
    findings = examination.examine(broker=broker or settings.broker, home=config.home(), settings=settings)
    if not print_data(form, examination.as_json(findings)):
        console_for(form).print(examination.render(findings))
    if any(finding.state == "bad" for finding in findings):
        sys.exit(FAILED)


@doctor.command(short_help="Measure what sampling adds to latency here.")
@click.argument("suite", required=False, type=PATH)
@click.option("-m", "--model", type=PATH, help="Model file instead of a suite of one case.")
@case_options(*MODEL_OPTIONS, "mode", mode=SHORT_MODES)
@click.option("--pairs", type=click.IntRange(5, 1000), default=10, show_default=True, help="Pairs of runs, with and without sampling.")
@power_option
@names_and_config
@quiet_option
@json_option("Print the effect and the p50 of every pair as JSON.")
def overhead(suite: Path | None, model: Path | None, pairs: int, *, as_json: bool, **options: Any) -> None:
    """Measure what sampling power and conditions adds to latency, on this machine.

    The result is stored; later records of the same setting carry it.

    Example: edgemeter doctor overhead --model model.tflite --threads 4
    """
    source = suite or model
    if source is None or (suite and model):
        raise click.UsageError("give either a SUITE file of one case or --model FILE")
    from edgemeter.agent.machine import fingerprint
    from edgemeter.agent.operating.changes import quiet_board
    from edgemeter.agent.power.detect import open_sensors
    from edgemeter.agent.session import observer as calibration
    from edgemeter.agent.session.observation import keep_observer_effect
    from edgemeter.agent.session.session import DeviceIdentity

    settings = config.read(options["config"])
    identity = DeviceIdentity(*config.names(options["device"], options["fleet"], settings))
    case = single_case(source, options)
    with (
        quiet_board(config.home(), "edgemeter doctor overhead", wait_note),
        open_sensors(options["power"], settings.power, settings.sensors) as (sensors, _),
        session_progress() as on_event,
    ):
        calibrated = calibration.calibrate(case, identity, sensors, pairs, on_event)
    path = keep_observer_effect(calibrated.effect, fingerprint.read())
    if as_json:
        print_json(calibrated)
    else:
        _show_overhead(calibrated)
    note(f"stored in {path}: later records of this setting carry it")


def _show_overhead(calibrated: "CalibratedObserver") -> None:
    from edgemeter.agent.verdict.condition_rules import OBSERVER_RATIO

    effect = calibrated.effect
    click.echo(f"{effect.case}, p50 {effect.p50_ms:.4g} ms without sampling, {effect.pairs} pairs; sampled: ", nl=False)
    click.echo(", ".join(("conditions", *effect.sensors)))
    click.echo(f"sampling changes p50 by {effect.effect_ratio:+.2%} (95% bounds {effect.low_ratio:+.2%} to {effect.high_ratio:+.2%})")
    if effect.effect_ratio > OBSERVER_RATIO and effect.low_ratio > 0:
        click.echo(f"that is above {OBSERVER_RATIO:.0%}: later runs of this setting will be `suspect` (observer-effect)")
    elif effect.high_ratio > OBSERVER_RATIO:
        click.echo(f"whether it is below {OBSERVER_RATIO:.0%} is not known yet: measure more pairs (--pairs), on a quiet machine")
    else:
        click.echo(f"that is below {OBSERVER_RATIO:.0%}")
    if calibrated.doubts:
        click.echo(f"suspect runs: {'; '.join(calibrated.doubts)}: calibrate again when the machine is quiet", err=True)
