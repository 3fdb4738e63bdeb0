"""The command `edgemeter doctor`: check this device."""

import sys
from typing import Any

import click

from edgemeter.agent.base import config
from edgemeter.agent.base.errors import FAILED
from edgemeter.agent.base.options import config_option, rows_json_option
from edgemeter.agent.base.progress import note
from edgemeter.agent.base.tables import Format, console_for, print_data


@click.command()
@click.option("--broker", envvar="EDGEMETER_BROKER", help="Also check the connection to this broker.")
@config_option
@rows_json_option('Print {"findings": [...]}.')
def doctor(broker: str | None, *, form: Format | None, **options: Any) -> None:
    """Check this device (board, runtimes, sensors, clock, broker), and show how to fix what is wrong.

    The exit status is 1 if a finding is BAD: nothing can be measured or delivered so.

    Example: edgemeter doctor --broker 192.0.2.7
    """
    from edgemeter.agent.doctor import examination
    from edgemeter.agent.operating.changes import restore_leftover

    note(restore_leftover(config.home()))
    settings = config.in_effect(options["config"])
    findings = examination.examine(broker=broker or settings.broker, home=config.home(), settings=settings)
    if not print_data(form, examination.as_json(findings)):
        console_for(form).print(examination.render(findings))
    if any(finding.state == "bad" for finding in findings):
        sys.exit(FAILED)
