"""The command `edgemeter doctor`."""

from typing import Any

import click

from edgemeter.agent.base.options import broker_files, config_option, json_option


@click.command()
@click.option("--broker", envvar="EDGEMETER_BROKER", help="Also check the connection to this broker.")
@broker_files
@config_option
@json_option('Print {"findings": [...]}.')
def doctor(broker: str | None, *, as_json: bool, **options: Any) -> None:
    """Check this device (board, runtimes, sensors, clock, broker), and show how to fix what is wrong.

    Example: edgemeter doctor --broker 192.0.2.7
    """
    from edgemeter.agent.base.config import from_options, home
    from edgemeter.agent.doctor import examination

    settings = from_options(options)
    findings = examination.examine(broker=broker or settings.broker, home=home(), settings=settings, sensors=settings.sensors)
    if as_json:
        click.echo(examination.as_json(findings))
    else:
        from rich.console import Console

        Console().print(examination.render(findings))
