"""The command `edgemeter energy`.

It measures the energy of any command, of a suite at regular times, or of a log.
"""

import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgemeter.agent.base import interrupts
from edgemeter.agent.base.cli.command_group import ModalCommand
from edgemeter.agent.base.cli.notes import note
from edgemeter.agent.base.cli.options import (
    PATH,
    config_option,
    format_option,
    quiet_option,
    save_option,
)
from edgemeter.agent.base.cli.tables import Format, print_data
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.cli.session import session_document, session_progress
from edgemeter.agent.cli.session_options import power_option, session_settings

if TYPE_CHECKING:
    from edgemeter.agent.contract.record_figures import Energy
    from edgemeter.agent.energy.power_log import LoggedEnergy
    from edgemeter.agent.session.energy_watch import WatchedEnergy

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
TIME = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


def seconds(period: str) -> float:
    """Return a duration such as 90s, 5m, 2h or 1d in seconds.

    Raises ConfigError if it is not one.
    """
    match = TIME.fullmatch(period.strip())
    if match is None or float(match.group(1)) <= 0:
        raise ConfigError(f"{period!r} is not a length of time: give 30s, 5m, 2h or 1d")
    return float(match.group(1)) * UNITS_S[match.group(2)]


@click.command(
    cls=ModalCommand,
    modes={"sensors": "edgemeter.agent.cli.sensors:sensors"},
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--from",
    "log",
    type=PATH,
    help="Read the log of an earlier run: tegrastats, nvidia-smi (CSV), or any CSV.",
)
@click.option(
    "--between",
    nargs=2,
    metavar="A B",
    help="With --from: first and last time, as in the log or HH:MM:SS. Default: all.",
)
@click.option(
    "--time-column",
    metavar="NAME",
    help="With --from: column of times, with its unit, such as `t [ms]`. Default: by name.",
)
@click.option(
    "--power-column",
    metavar="NAME",
    help="With --from: column of powers, in W unless it has a unit. Default: by name.",
)
@click.option(
    "--every",
    "period",
    metavar="TIME",
    help="Measure a suite file, given as COMMAND, at this interval: 5m, 2h, ...",
)
@click.option(
    "--times",
    metavar="N",
    type=click.IntRange(1),
    help="With --every: number of measurements. Default: no limit.",
)
@click.option(
    "--repeats", "repeat", metavar="N", type=click.IntRange(1), default=1, show_default=True,
    help="Runs of the command; energies are per run.",
)  # fmt: skip
@click.option(
    "--idle",
    "idle_s",
    metavar="SECONDS",
    type=click.FloatRange(0),
    help="Idle time before and after. Default: 10, or as long as the sensor needs.",
)
@power_option
@click.option(
    "--broker",
    envvar="EDGEMETER_BROKER",
    help="With --every: deliver by MQTT to HOST[:PORT] or mqtts://HOST.",
)
@config_option
@save_option
@quiet_option
@format_option("", "table", "json")
def energy(
    *,
    command: tuple[str, ...],
    log: Path | None,
    between: tuple[str, str] | None,
    time_column: str | None,
    power_column: str | None,
    period: str | None,
    repeat: int,
    form: Format,
    **options: Any,
) -> None:
    """Measure the energy of a command, or of a suite at regular times, or read a log.

    The exit status is that of the command. `edgemeter energy sensors` lists and reads power
    sensors.

    Example: edgemeter energy -- python train.py
    """
    if bool(command) == (log is not None):
        raise click.UsageError("give either a COMMAND, or --from LOG")
    if log is not None:
        from edgemeter.agent.energy.power_log import energy_of, read_log

        logged = energy_of(read_log(log, time_column, power_column), between)
        if not print_data(form, logged):
            _print_log(logged)
        return
    if period is not None:
        from edgemeter.agent.cli.run_output import print_runs
        from edgemeter.agent.measuring.watch import watch_suite

        if len(command) != 1:
            raise click.UsageError("with --every give one SUITE file, and nothing after it")
        settings = session_settings(options)
        for outcome in watch_suite(
            Path(command[0]), seconds(period), settings, options["times"], note, session_progress
        ):
            if not print_data(form, session_document(outcome)):
                print_runs(outcome.records)
        return
    from edgemeter.agent.base import config
    from edgemeter.agent.session.energy_watch import EnergyWatch

    if shutil.which(command[0]) is None:
        # Before the idle time.
        raise ConfigError(
            f"cannot run {command[0]!r}, because there is no such command, or it is not "
            "executable: correct its name or path"
        )
    configuration = config.read(options["config"])
    with EnergyWatch(
        options["power"],
        idle_s=options["idle_s"],
        units=repeat,
        settings=configuration,
        report=note,
    ) as watcher:
        status = _run(command, repeat)
    if not print_data(form, watcher.seen):
        _print(watcher.seen, repeat)
    sys.exit(status)


def _print_log(logged: "LoggedEnergy") -> None:
    interval = f"{logged.energy_j:.4g} J ({logged.low_j:.4g} to {logged.high_j:.4g})"
    click.echo(
        f"{logged.source}: {interval}, mean {logged.mean_power_w:.4g} W, {logged.readings} readings"
    )
    click.echo(
        f"its readings cover {logged.coverage_ratio:.0%} of the {logged.window_s:.4g} s; the "
        "energy is of this part only"
    )
    click.echo(f"the interval: {logged.interval}")


def _run(command: tuple[str, ...], repeats: int) -> int:
    """Run the command, and return the first exit status that is not 0.

    The command's output goes to standard error.
    """
    for _ in range(repeats):
        process = None
        try:
            with interrupts.deferred():
                # Its output must not be mixed with our document.
                process = subprocess.Popen(command, stdout=sys.stderr)
            status = interrupts.wait(process)
        except OSError as error:
            raise ConfigError(
                f"cannot run {command[0]!r}: {error.strerror}; give a command that is "
                "on this machine"
            ) from error
        finally:
            if process is not None and process.poll() is None:
                _end(process)
        if status:
            click.echo(f"{command[0]} ended with status {status}", err=True)
            return status if status > 0 else 128 - status
    return 0


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a command that was interrupted: it has a second for what it does at its end."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(1.0)
    process.kill()
    process.wait()


def _print(watched: "WatchedEnergy", repeats: int) -> None:
    click.echo(f"{watched.seconds:.3f} s{f', {repeats} times' if repeats > 1 else ''}")
    for energy in watched.energies.all():
        click.echo(_line(energy, watched.idle_s))
    for doubt in watched.other_load.doubts:
        click.echo(f"disturbed: {doubt}. Measure again when the machine is quiet", err=True)
    if watched.other_load.block_ratio is None:
        click.echo(
            "unknown whether other processes ran: the work is too short for the "
            "kernel's clock ticks",
            err=True,
        )
    for why in (
        *watched.energies.refused,
        *([watched.energies.reason] if watched.energies.reason else []),
    ):
        click.echo(f"no energy: {why}", err=True)


def _line(energy: "Energy", idle_s: float) -> str:
    gross = f"{energy.gross_mj / 1000:.4g} J{_uncertainty(energy.gross_u_mj, energy)}"
    net = (
        energy.why_no_net(idle_s, "--idle")
        or f"{(energy.net_mj or 0) / 1000:.4g} J{_uncertainty(energy.net_u_mj, energy)}"
    )
    left_out = f"; excludes {', '.join(energy.excludes)}" if energy.excludes else ""
    ran_on = (
        ""
        if energy.after_load_mj is None
        else f"; about {energy.after_load_mj / 1000:.2g} J were drawn after it"
    )
    return (
        f"{energy.sensor} ({energy.scope}): gross {gross}, net {net}, mean "
        f"{energy.mean_power_w:.4g} W{ran_on}{left_out}"
    )


def _uncertainty(u_mj: float | None, energy: "Energy") -> str:
    return (
        f" (no interval: {energy.interval_reason or 'its uncertainty is unknown'})"
        if u_mj is None
        else f" ±{u_mj / 1000:.2g} J"
    )
