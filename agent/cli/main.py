"""The command `edgemeter`: its commands by name, each imported when it is called, and how it ends."""

import signal
import sys
from collections.abc import Sequence

import click

from edgemeter.agent.base.command_group import CommandGroup, Sections
from edgemeter.agent.base.errors import DONE, FAILED, INTERRUPTED, TERMINATED, USAGE, EdgemeterError

COMMANDS: Sections = {
    "Measure": {
        "run": ("edgemeter.agent.cli.run:run", "Measure a model, or a suite of cases."),
        "benchmark": ("edgemeter.models.cli.benchmark:benchmark", "Measure a model in every format that this board runs, and pick one."),
        "energy": ("edgemeter.agent.cli.energy:energy", "Measure the energy of any command, or of a suite again and again."),
        "accuracy": ("edgemeter.agent.cli.accuracy:accuracy", "Score detections, or a model, without timing it."),
        "sensors": ("edgemeter.agent.cli.sensors:sensors", "List, read and test power sensors."),
        "doctor": ("edgemeter.agent.cli.doctor:doctor", "Check board, runtimes, sensors, clock and broker."),
        "demo": ("edgemeter.collector.cli.demo:demo", "Measure, deliver, compare and report with the shipped models."),
    },
    "Compare and watch": {
        "compare": ("edgemeter.collector.cli.compare:compare", "Compare models, changes, devices, or edge and datacenter."),
        "runs": ("edgemeter.collector.cli.runs:runs", "Find, show, note, exclude, delete and export runs."),
        "report": ("edgemeter.collector.cli.report:report", "Write a page that works offline, or all runs as CSV or Parquet."),
        "trend": ("edgemeter.collector.cli.trend:trend", "Find changes over time; annotate them, send alerts for them."),
        "references": ("edgemeter.collector.cli.references:references", "Judge published figures; import and list references."),
    },
    "Collect": {
        "agent": ("edgemeter.agent.cli.agent:agent", "Join a fleet, run the agent daemon, publish waiting results."),
        "collector": ("edgemeter.collector.cli.collector:collector", "Receive, store and forward the results of a fleet."),
        "bundle": ("edgemeter.agent.cli.bundle:bundle", "Verify and show bundles of results, and create a key that signs them."),
    },
    "Models": {"models": ("edgemeter.models.cli.main:models", "List, fetch, convert, verify and profile models.")},
    "Fleet": {"fleet": ("edgemeter.provisioning.cli.main:fleet", "Provision, update and control a fleet of devices.")},
    "Settings": {"config": ("edgemeter.agent.cli.config:config", "Show, sample and check the settings; the rules of verdicts.")},
}


@click.group(cls=CommandGroup, sections=COMMANDS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="edgemeter", prog_name="edgemeter")
def cli() -> None:
    """Measure what a machine-learning model costs on an edge device: latency, accuracy and energy.

    Example: edgemeter run --model model.tflite --data photos/ --annotations coco.json
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with one of EXIT_STATUSES; an expected error is one line on standard error."""
    # Ended by a service manager: unwind, so that no child process and no half-written file stays behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        # A command that has the process for itself may start it anew, in a sandbox.
        caller = "process" if arguments is None else None
        status = cli.main(args=None if arguments is None else list(arguments), prog_name="edgemeter", standalone_mode=False, obj=caller)
    except click.UsageError as error:
        error.show()
        sys.exit(USAGE)
    except click.ClickException as error:
        error.show()
        sys.exit(FAILED)
    except EdgemeterError as error:
        from edgemeter.agent.base.figures import printable  # Here: only an error needs it.

        click.echo(f"edgemeter: {printable(' '.join(str(error).split()))}", err=True)
        sys.exit(error.exit_status)
    except (click.Abort, KeyboardInterrupt) as error:
        click.echo(f"edgemeter: {str(error.__cause__ or error) or 'interrupted'}", err=True)
        sys.exit(INTERRUPTED)
    except OSError as error:
        _end_without_output(error)
    sys.exit(status if isinstance(status, int) else DONE)


def _end_without_output(error: OSError) -> None:
    """Exit with one line where standard output is what failed, raise `error` where it is not."""
    try:
        # What failed may have come from elsewhere, so it is tried once more.
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        pass
    else:
        raise error
    # Nothing is left to write, not even at exit.
    sys.stdout = open("/dev/null", "w")  # noqa: PTH123, SIM115 - lives until the process ends
    if not isinstance(error, BrokenPipeError):
        # A reader that has gone (`| head`) has what it wanted.
        click.echo(f"edgemeter: cannot write to standard output: {error.strerror}", err=True)
    sys.exit(FAILED)


if __name__ == "__main__":
    main()
