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
    import logging
    import signal
    import threading

    from edgemeter.agent import config
    from edgemeter.agent.delivery.resident import FIRST_SPREAD_S, Resident

    logging.basicConfig(level=logging.INFO, format="edgemeter: %(message)s", stream=sys.stderr)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    settings = config.said(options)
    name = device or settings.device or config.this_device()
    resident = Resident(name, fleet or settings.fleet, broker, settings, options["config"])
    try:
        click.echo(f"edgemeter: agent of {name!r}, broker {resident.address}, {resident.waiting()} records wait", err=True)
        # Somebody who looks on has started it by hand, and it alone.
        resident.run(stop, 0.0 if sys.stderr.isatty() else FIRST_SPREAD_S)
    finally:
        resident.close()
