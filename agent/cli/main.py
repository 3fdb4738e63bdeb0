"""The command `edgemeter`, with its commands by name and its exit status.

Each command is imported when it is called.
"""

import atexit
import gc
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

import click

from edgemeter.agent.base import interrupts
from edgemeter.agent.base.cli.command_group import CommandGroup, Sections
from edgemeter.agent.base.errors import (
    DONE,
    FAILED,
    INTERRUPTED,
    TERMINATED,
    USAGE,
    EdgemeterError,
    utf8_text,
)
from edgemeter.agent.base.suggestions import did_you_mean

COMMANDS: Sections = {
    "Measure": {
        "run": ("edgemeter.agent.cli.run:run", "Measure a model, or a suite of cases."),
        "accuracy": (
            "edgemeter.agent.cli.accuracy:accuracy",
            "Score a model, or the predictions of another tool, without timing.",
        ),
        "benchmark": (
            "edgemeter.models.cli.benchmark:benchmark",
            "Measure a model in every format that this board runs, and pick one.",
        ),
        "energy": (
            "edgemeter.agent.cli.energy:energy",
            "Measure the energy of any command or suite; list and test power sensors.",
        ),
        "doctor": (
            "edgemeter.agent.cli.doctor:doctor",
            "Check board, runtimes, sensors, clock and broker.",
        ),
    },
    "Compare and watch": {
        "compare": (
            "edgemeter.collector.cli.compare:compare",
            "Compare models, changes or devices.",
        ),
        "runs": (
            "edgemeter.collector.cli.runs:runs",
            "Find, show, note, exclude, delete and verify runs.",
        ),
        "report": (
            "edgemeter.collector.cli.report:report",
            "Write a page that works offline, or all runs as CSV, JSON or bundles.",
        ),
        "trend": (
            "edgemeter.collector.cli.trend:trend",
            "Find changes over time; annotate them, send alerts for them.",
        ),
        "references": (
            "edgemeter.collector.cli.references:references",
            "Judge published figures; compare with a datacenter.",
        ),
    },
    "Collect": {
        "agent": (
            "edgemeter.agent.cli.agent:agent",
            "Join a fleet, run the agent daemon, publish waiting results.",
        ),
        "collector": (
            "edgemeter.collector.cli.collector:collector",
            "Receive, store and forward the results of a fleet.",
        ),
    },
    "Models": {
        "models": ("edgemeter.models.cli.main:models", "List, fetch, convert and profile models.")
    },
    "Fleet": {
        "fleet": (
            "edgemeter.provisioning.cli.main:fleet",
            "Provision, update and control a fleet of devices.",
        )
    },
    "Settings": {
        "config": (
            "edgemeter.agent.cli.config:config",
            "Show, sample and check the settings; the rules of verdicts.",
        )
    },
}


@click.group(
    cls=CommandGroup,
    sections=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(package_name="edgemeter", prog_name="edgemeter")
def cli() -> None:
    """Measure what a machine-learning model costs on an edge device: latency, accuracy and energy.

    Example: edgemeter run model.tflite --data photos/ --annotations coco.json
    """
    from edgemeter.agent.base.config import home
    from edgemeter.agent.machine.machine import THIS_MACHINE
    from edgemeter.agent.operating.board_settings import RECORD

    if (THIS_MACHINE.root / RECORD).is_file():
        from edgemeter.agent.operating.changed_board import restore_leftover

        # A setting that could not be restored is reported by the doctor and by the commands that
        # measure.
        restore_leftover(home())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with one of EXIT_STATUSES.

    An expected error is one line on standard error.
    """
    # Struct types that are garbage collected at exit may crash: SIGSEGV instead of the status
    # (msgspec 0.22, its issue 717).
    atexit.register(gc.freeze)
    has_process = arguments is None
    if has_process:
        # Ended by a service manager, or with the terminal: unwind, so that no child process,
        # half-written file or changed board remains.
        interrupts.handle()
    try:
        _run(
            sys.argv[1:] if arguments is None else list(arguments),
            "process" if has_process else None,
        )
    except (click.Abort, KeyboardInterrupt) as error:
        click.echo(f"edgemeter: {str(error.__cause__ or error) or 'interrupted'}", err=True)
        status = INTERRUPTED
    except interrupts.Terminated:
        # The terminal itself may be gone.
        with suppress(OSError):
            click.echo("edgemeter: terminated: the run in progress does not count", err=True)
        status = TERMINATED
    if has_process:
        interrupts.exit_now(status)
    sys.exit(status)


def _run(words: list[str], caller: str | None) -> NoReturn:
    """Run the command.

    One whose caller is the `process`, which it has to itself, may start it again in a sandbox.
    """
    try:
        status = _status_of(words, caller)
    except click.UsageError as error:
        _print_usage_error(error)
        sys.exit(USAGE)
    except click.ClickException as error:
        _print_error(error.format_message())
        sys.exit(FAILED)
    except EdgemeterError as error:
        _print_error(str(error))
        sys.exit(error.exit_status)
    except OSError as error:
        _end_without_output(error)
    sys.exit(status if isinstance(status, int) else DONE)


def _status_of(words: list[str], caller: str | None) -> object:
    try:
        with utf8_text(*words):
            status = cli.main(args=words, prog_name="edgemeter", standalone_mode=False, obj=caller)
    except click.Abort:
        raise
    except Exception:
        # It may be what somebody made of an interrupt: Python does in `__set_name__` before 3.12.
        interrupts.check()
        raise
    interrupts.check()
    return status


def _print_usage_error(error: click.UsageError) -> None:
    message = error.format_message()
    if "\n" in message:
        # A group without a command shows its help.
        error.show()
        return
    if isinstance(error, click.NoSuchOption):
        suggestion = did_you_mean(error.option_name, error.possibilities or (), limit=1, alike=0.75)
        message = f"there is no option {error.option_name}{f': {suggestion}' if suggestion else ''}"
    elif isinstance(error, click.BadParameter):
        # click uses these names for its types.
        message = message.replace("a valid integer range", "a whole number").replace(
            "a valid float range", "a number"
        )
    _print_error(
        f"{message[:1].lower()}{message[1:].rstrip('.')} (see "
        f"{error.ctx.command_path if error.ctx else 'edgemeter'} --help)"
    )


def _print_error(message: str) -> None:
    from edgemeter.agent.base.number_text import printable  # Imported here: only an error needs it.

    click.echo(f"edgemeter: {printable(' '.join(message.split()))}", err=True)


def _end_without_output(error: OSError) -> NoReturn:
    """Exit with one line if standard output failed, else raise `error`."""
    try:
        # The error may have come from another stream: try once more.
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        pass
    else:
        raise error
    # Nothing is left to write, not even at exit.
    sys.stdout = open("/dev/null", "w")  # noqa: PTH123, SIM115 - lives until the process ends
    if not isinstance(error, BrokenPipeError):
        # A reader that closed the pipe (`| head`) has what it wanted.
        click.echo(f"edgemeter: cannot write to standard output: {error.strerror}", err=True)
    sys.exit(FAILED)


if __name__ == "__main__":
    main()
