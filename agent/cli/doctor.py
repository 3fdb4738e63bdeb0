"""The command `edgemeter doctor`: check this device."""

import sys
from typing import Any

import click

from edgemeter.agent.base import config
from edgemeter.agent.base.cli.notes import note
from edgemeter.agent.base.cli.options import config_option, format_option
from edgemeter.agent.base.cli.tables import Format, console_for, print_data
from edgemeter.agent.base.errors import FAILED


@click.command()
@click.option(
    "--broker", envvar="EDGEMETER_BROKER", help="Also check the connection to this broker."
)
@config_option
@click.option(
    "--all", "is_whole", is_flag=True, help="List every check, and what is absent and why."
)
@format_option('{"findings": [...]}')
def doctor(broker: str | None, *, form: Format, is_whole: bool, **options: Any) -> None:
    """Check board, runtimes, sensors, clock and broker. Each problem comes with its remedy.

    The exit status is 1 if a finding is BAD: then nothing can be measured or delivered.

    Example: edgemeter doctor --broker 192.0.2.7
    """
    from edgemeter.agent.doctor import examination

    settings = config.read(options["config"])
    findings = examination.examine(
        broker=broker or settings.broker, home=config.home(), settings=settings
    )
    has_problem = any(finding.state == "bad" for finding in findings)
    if not print_data(form, examination.as_json(findings)):
        console_for(form).print(examination.render(findings, is_whole=is_whole))
        ready = "next: `edgemeter run MODEL` (`edgemeter models sample DIR` writes some to try)"
        note("next: fix what is BAD, then run `edgemeter doctor` again" if has_problem else ready)
    if has_problem:
        sys.exit(FAILED)
