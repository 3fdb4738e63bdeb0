"""The commands `edgemeter agent`: joining a fleet, and the agent that stays."""

import logging
import sys
from pathlib import Path
from typing import Any

import click

from edgemeter.agent.broker_options import broker_files
from edgemeter.agent.finite_range import FiniteRange
from edgemeter.agent.jobs_cli import jobs


@click.group()
def agent() -> None:
    """Stay connected to a broker, so that results go out whenever they can.

    Example: edgemeter agent up --broker broker.example
    """


agent.add_command(jobs)


@agent.command(short_help="Stay connected until stopped; deliver what the outbox holds, now and later.")
@click.option("--broker", envvar="EDGEMETER_BROKER", help="HOST[:PORT], mqtt://..., mqtts://... Default: the configuration's.")
@broker_files
@click.option("--device", envvar="EDGEMETER_DEVICE", help="What this device is called. Default: its host name.")
@click.option("--fleet", envvar="EDGEMETER_FLEET", help="The fleet it belongs to. Default: default.")
@click.option("--config", type=click.Path(path_type=Path), envvar="EDGEMETER_CONFIG", help="The agent's TOML configuration.")
def up(broker: str | None, device: str | None, fleet: str | None, **options: Any) -> None:
    """Stay connected until stopped (Ctrl-C, SIGTERM): say who is here and deliver what the outbox holds, now and later.

    Example: edgemeter agent up --broker mqtts://broker.example --broker-ca-file ca.pem
    """
    import os

    import msgspec

    from edgemeter.agent import config
    from edgemeter.agent.delivery import broker_address, service_manager
    from edgemeter.agent.delivery.resident import Orders
    from edgemeter.agent.errors import ConfigError
    from edgemeter.agent.identity import moved_card

    logging.basicConfig(level=logging.INFO, format="edgemeter: %(message)s", stream=sys.stderr)
    # Before anything is said in a device's name: is this its board?
    moved_card.settle(config.home(), alive=lambda: service_manager.notify("READY=1\nWATCHDOG=1"))
    settings = config.said(options)
    where = broker or settings.broker
    if where is None:
        message = "no broker is named: give --broker HOST, or set `broker` in the configuration"
        raise ConfigError(message)
    # What is wrong with it is said while this is still a command.
    broker_address.configured(where, settings)
    device, fleet = config.names(device, fleet, settings)
    orders = Orders(
        device=device,
        fleet=fleet,
        broker=where,
        config=str(options["config"]) if options["config"] else None,
        files={name: str(options[name]) for name in config.BROKER_FILES if options[name]},
    )
    # It stays for months: what the command line needed is not kept in memory, and its few threads share one pool of it (glibc).
    command = [sys.executable, "-m", "edgemeter.agent.delivery.lean", msgspec.json.encode(orders).decode()]
    os.execve(sys.executable, command, {"MALLOC_ARENA_MAX": "1", **os.environ})  # noqa: S606 - our own module


@agent.command(short_help="Join a fleet with the token of a join file.")
@click.argument("join_file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--home", type=click.Path(path_type=Path, file_okay=False), help="Where the agent keeps its data. Default: $EDGEMETER_HOME.")
@click.option(
    "--config", type=click.Path(path_type=Path, dir_okay=False), default="/etc/edgemeter/config.toml", show_default=True, help="Written."
)
@click.option("--wait", "patience_s", default=600.0, show_default=True, type=FiniteRange(1.0), help="Seconds until it gives up for now.")
def join(join_file: Path, home: Path | None, config: Path, patience_s: float) -> None:
    """Join a fleet: make a key here, ask for a certificate with the join file's token, write the configuration, wipe the token.

    Example: edgemeter agent join /boot/firmware/edgemeter/join.toml
    """
    from edgemeter.agent import config as configuration
    from edgemeter.agent.identity import joining
    from edgemeter.agent.identity.joining import Places

    logging.basicConfig(level=logging.INFO, format="edgemeter: %(message)s", stream=sys.stderr)
    identity = joining.join(join_file, Places(home or configuration.home(), config), patience_s=patience_s)
    click.echo(f"device {identity.device!r} of fleet {identity.fleet!r}, broker {identity.broker}")
