"""The command `edgemeter watch`: the energy of any command, or of a suite again and again."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from edgemeter.agent.energy.watch import Seen
    from edgemeter.agent.records import Energy

NOT_STARTED = 127


@click.command(
    short_help="Measure the energy of any command, or of a suite every so often.",
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--every", metavar="TIME", help="Take COMMAND for a SUITE file, and measure it every 5m, 2h, ...")
@click.option("--times", type=click.IntRange(1), help="--every: stop after so many. Default: never.")
@click.option("--repeat", type=click.IntRange(1), default=1, show_default=True, help="Run the command so often; energies are of one.")
@click.option("--idle", "idle_s", type=click.FloatRange(0), default=10.0, show_default=True, help="Seconds of idling before and after.")
@click.option("--power", envvar="EDGEMETER_POWER", help="Power sensors NAME[,NAME]. Default: the widest that is here.")
@click.option("--broker", envvar="EDGEMETER_BROKER", help="--every: deliver by MQTT: HOST[:PORT], mqtt://..., mqtts://...")
@click.option("--device", envvar="EDGEMETER_DEVICE", help="--every: what this device is called. Default: its host name.")
@click.option("--fleet", envvar="EDGEMETER_FLEET", help="--every: the fleet it belongs to. Default: default.")
@click.option("--config", type=click.Path(path_type=Path), envvar="EDGEMETER_CONFIG", help="The agent's TOML configuration.")
@click.option("--json", "as_json", is_flag=True, help="Print the energies as JSON.")
def watch(command: tuple[str, ...], every: str | None, **options: Any) -> None:
    """Measure the energy of a command with idle before and after; its exit status is ours.

    Example: edgemeter watch -- python train.py
    """
    if every is not None:
        _again_and_again(command, every, options)
        return
    import msgspec

    from edgemeter.agent import config
    from edgemeter.agent.energy.watch import Watch
    from edgemeter.agent.errors import ConfigError

    if shutil.which(command[0]) is None:
        # Before the machine has idled for it.
        message = f"cannot run {command[0]!r}: there is no such command, or it may not be run: correct its name or path"
        raise ConfigError(message)
    watcher = Watch(options["power"], idle_s=options["idle_s"], units=options["repeat"], settings=config.read(options["config"]))
    click.echo(f"idling for {options['idle_s']:g} s ...", err=True)
    with watcher:
        status = _run(command, options["repeat"])
        click.echo(f"idling for {options['idle_s']:g} s ...", err=True)
    seen = watcher.seen
    if options["as_json"]:
        click.echo(msgspec.json.format(msgspec.json.encode(seen), indent=2).decode())
    else:
        _print(seen, options["repeat"])
    sys.exit(status)


def _run(command: tuple[str, ...], repeats: int) -> int:
    """Run the command, its output on ours, and return the first exit status that is not 0."""
    from edgemeter.agent.errors import ConfigError

    for _ in range(repeats):
        try:
            # Its output must not end up in our document.
            status = subprocess.run(command, check=False, stdout=sys.stderr).returncode
        except OSError as error:
            message = f"cannot run {command[0]!r}: {error.strerror}: give a command that is on this machine"
            raise ConfigError(message) from error
        if status:
            click.echo(f"{command[0]} ended with status {status}", err=True)
            return status if status > 0 else 128 - status
    return 0


def _print(seen: "Seen", repeats: int) -> None:
    click.echo(f"{seen.seconds:.3f} s{f', {repeats} times' if repeats > 1 else ''}")
    for energy in seen.energies.all():
        click.echo(_line(energy))
    for why in (*seen.energies.refused, *([seen.energies.reason] if seen.energies.reason else [])):
        click.echo(f"no energy: {why}", err=True)


def _line(energy: "Energy") -> str:
    gross = f"{energy.gross_mj / 1000:.4g} J{_uncertainty(energy.gross_u_mj)}"
    net = {
        "resolved": f"{(energy.net_mj or 0) / 1000:.4g} J{_uncertainty(energy.net_u_mj)}",
        "not_resolvable": f"not resolvable{_resolving(energy.resolving_window_s)}",
        "no_idle": "not known without idling",
    }[energy.net_state]
    left_out = f"; leaves out {', '.join(energy.excludes)}" if energy.excludes else ""
    return f"{energy.sensor} ({energy.scope}): gross {gross}, net {net}, mean {energy.mean_power_w:.4g} W{left_out}"


def _resolving(window_s: float | None) -> str:
    return " by any length" if window_s is None else f" below {window_s:.0f} s of idle and of load"


def _uncertainty(u_mj: float | None) -> str:
    return " (uncertainty unknown)" if u_mj is None else f" ±{u_mj / 1000:.2g} J"


def _again_and_again(command: tuple[str, ...], every: str, options: dict[str, Any]) -> None:
    from edgemeter.agent import watch_command
    from edgemeter.agent.table import print_runs

    if len(command) != 1:
        message = "with --every give one SUITE file, and nothing after it"
        raise click.UsageError(message)
    period_s = watch_command.seconds(every)
    for outcome in watch_command.again_and_again(Path(command[0]), period_s, options, lambda said: click.echo(said, err=True)):
        if options["as_json"]:
            from edgemeter.agent.run_command import document

            click.echo(document(outcome))
        else:
            print_runs(outcome.records)
