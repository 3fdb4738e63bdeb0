"""The command `edgemeter agent`: the agent that stays."""

import sys
from pathlib import Path
from typing import Any

import click

from edgemeter.agent.broker_options import broker_files


@click.group()
def agent() -> None:
    """Stay connected to a broker, so that results go out whenever they can.

    Example: edgemeter agent up --broker broker.example
    """


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
    from edgemeter.agent.delivery import broker_address
    from edgemeter.agent.delivery.resident import Orders
    from edgemeter.agent.errors import ConfigError

    settings = config.said(options)
    where = broker or settings.broker
    if where is None:
        message = "no broker is named: give --broker HOST, or set `broker` in the configuration"
        raise ConfigError(message)
    # What is wrong with it is said while this is still a command.
    broker_address.configured(where, settings)
    orders = Orders(
        device=device or settings.device or config.this_device(),
        fleet=fleet or settings.fleet,
        broker=where,
        config=str(options["config"]) if options["config"] else None,
        files={name: str(options[name]) for name in config.BROKER_FILES if options[name]},
    )
    # It stays for months: what the command line needed is not kept in memory, and its few threads share one pool of it (glibc).
    command = [sys.executable, "-m", "edgemeter.agent.delivery.resident", msgspec.json.encode(orders).decode()]
    os.execve(sys.executable, command, {"MALLOC_ARENA_MAX": "1", **os.environ})  # noqa: S606 - our own module
