"""The command `edgemeter`: its commands by name, each imported when it is called, and how it ends."""

import signal
import sys
from collections.abc import Sequence

import click

from edgemeter.agent.base.command_group import CommandGroup, Sections
from edgemeter.agent.base.errors import EdgemeterError

COMMANDS: Sections = {
    "Measure on this device": {
        "run": ("edgemeter.agent.cli.run:run", "Measure a suite of cases, or one model."),
        "ab": ("edgemeter.agent.cli.ab:ab", "Compare two cases: is B faster than A?"),
        "accuracy": ("edgemeter.agent.cli.accuracy:accuracy", "Score detections, or a model, without timing it."),
        "profile": ("edgemeter.agent.cli.profile:profile", "Show the slowest operators of a model."),
        "watch": ("edgemeter.agent.cli.watch:watch", "Measure the energy of a command, or repeat a suite."),
        "calibrate": ("edgemeter.agent.cli.calibrate:calibrate", "Measure the overhead of measuring."),
        "sensors": ("edgemeter.agent.cli.sensors:sensors", "List, read and calibrate power sensors."),
        "doctor": ("edgemeter.agent.cli.doctor:doctor", "Check board, runtimes, sensors, clock and broker."),
        "demo": ("edgemeter.collector.cli.demo:demo", "Measure, deliver, compare and report with the shipped models."),
    },
    "Deliver results": {
        "publish": ("edgemeter.agent.cli.run:publish", "Send the records that wait in the outbox."),
        "agent": ("edgemeter.agent.cli.agent:agent", "Join a fleet and run the agent daemon."),
        "collector": ("edgemeter.collector.cli.collector:collector", "Receive, store and forward the results of a fleet."),
    },
    "Compare and report": {
        "compare": ("edgemeter.collector.cli.compare:compare", "Compare devices with a reference, case by case."),
        "trend": ("edgemeter.collector.cli.trend:trend", "Find steps, drifts and gaps in the history of results."),
        "annotate": ("edgemeter.collector.cli.trend:annotate", "Annotate a day of the history, e.g. an expected change."),
        "units": ("edgemeter.collector.cli.trend:units", "Compare boards of one type and find outliers."),
        "datacenter": ("edgemeter.collector.cli.datacenter:datacenter", "Compare edge devices with a datacenter."),
        "reference": ("edgemeter.collector.cli.reference:reference", "Manage references: measured, imported, published."),
        "report": ("edgemeter.collector.cli.web:report", "Write a report as one HTML page that works offline."),
        "export": ("edgemeter.collector.cli.export:export", "Export runs to a CSV or Parquet file."),
        "alerts": ("edgemeter.collector.cli.alerts:alerts", "Send an alert for each confirmed finding."),
    },
    "Manage models and devices": {
        "models": ("edgemeter.models.cli.main:models", "List, fetch, add, convert and verify models."),
        "fleet": ("edgemeter.provisioning.cli.main:fleet", "Provision, update and control a fleet of devices."),
    },
    "Check results": {
        "verify": ("edgemeter.agent.cli.verify:verify", "Recompute the figures of bundles and check their signatures."),
        "bundle": ("edgemeter.agent.cli.verify:bundle", "Create a key that signs bundles."),
        "rules": ("edgemeter.collector.cli.compare:rules", "List the rules of verdicts and comparisons."),
        "schema": ("edgemeter.agent.cli.verify:schema", "Print the JSON Schema of a record."),
    },
}


@click.group(cls=CommandGroup, sections=COMMANDS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="edgemeter", prog_name="edgemeter")
def cli() -> None:
    """Measure what a machine-learning model costs on an edge device: latency, accuracy and energy.

    Example: edgemeter run --model model.tflite --images photos/ --annotations coco.json
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong usage; an expected error is one line on standard error."""
    # Ended by a service manager: unwind, so that no child process and no half-written file stays behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        status = cli.main(args=None if arguments is None else list(arguments), prog_name="edgemeter", standalone_mode=False)
    except click.UsageError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:
        error.show()
        sys.exit(1)
    except EdgemeterError as error:
        click.echo(f"edgemeter: {' '.join(str(error).split())}", err=True)
        sys.exit(error.exit_status)
    except (click.Abort, KeyboardInterrupt):
        click.echo("edgemeter: interrupted", err=True)
        sys.exit(1)
    except BrokenPipeError:
        # The reader of our output is gone (`| head`): nothing is left to write, not even at exit.
        sys.stdout = open("/dev/null", "w")  # noqa: PTH123, SIM115 - lives until the process ends
        sys.exit(1)
    sys.exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    main()
