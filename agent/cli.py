"""The command `edgemeter`. A command parses, calls one function, prints; what is not needed for `--help` is imported late."""

import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from edgemeter.agent.broker_options import broker_files
from edgemeter.agent.errors import EdgemeterError, TransientError
from edgemeter.agent.finite_range import FiniteRange

# Groups and commands of the other packages, by name: imported when they are called, not for --help.
ELSEWHERE = {
    "alerts": ("edgemeter.collector.alerts_cli:alerts", "Tell people and pagers of what the watch confirmed; each alert once."),
    "annotate": ("edgemeter.collector.trend_cli:annotate", "Write down what is known of a day: a new level begins, or a remark."),
    "trend": ("edgemeter.collector.trend_cli:trend", "Find what changed over the days: steps, drifts, scatter, gaps."),
    "units": ("edgemeter.collector.units_cli:units", "How far boards of one type lie apart, and which of them is sick."),
    "agent": ("edgemeter.agent.agent_cli:agent", "Stay connected: deliver what the outbox holds, now and later."),
    "accuracy": ("edgemeter.agent.accuracy_cli:accuracy", "Score detections in COCO's result format, or a model, without timing it."),
    "bundle": ("edgemeter.agent.bundle_cli:bundle", "Keys that sign bundles (`edgemeter run --bundle DIR` writes them)."),
    "ab": ("edgemeter.agent.ab_cli:ab", "Measure two cases in turn here: is B faster than A?"),
    "collector": ("edgemeter.collector.cli:collector", "Receive, keep and pass on the results of a fleet."),
    "compare": ("edgemeter.collector.compare_cli:compare", "Compare devices with a reference, like with like."),
    "datacenter": ("edgemeter.collector.datacenter_cli:datacenter", "Edge against datacenter: which side wins where, over bands."),
    "demo": ("edgemeter.collector.demo_cli:demo", "Measure the shipped models here, deliver, compare and report: the whole way."),
    "export": ("edgemeter.collector.export_cli:export", "Write runs to a CSV or Parquet file, a row each."),
    "calibrate": ("edgemeter.agent.calibrate_cli:calibrate", "Measure what measuring itself adds on this machine."),
    "fleet": ("edgemeter.provisioning.cli:fleet", "Put the agent on devices, keep them current, tell them what to measure."),
    "models": ("edgemeter.models.cli:models", "List, fetch, add, convert and check models."),
    "report": ("edgemeter.collector.web_cli:report", "Write what a ledger holds as one page that works offline."),
    "reference": ("edgemeter.collector.reference_cli:reference", "Measured, imported and published references, with provenance."),
    "rules": ("edgemeter.collector.rules_cli:rules", "By which rules a run is judged, and what may be compared with what."),
    "profile": ("edgemeter.agent.profile_cli:profile", "Show the slowest operators of a model, by its runtime's own profiler."),
    "sensors": ("edgemeter.agent.sensors_cli:sensors", "Show what measures power here, and read recordings of it."),
    "watch": ("edgemeter.agent.watch_cli:watch", "Measure the energy of any command, or of a suite every so often."),
    "verify": ("edgemeter.agent.verify_cli:verify", "Compute every figure of bundles again from their raw samples."),
}


class _Group(click.Group):
    """A group whose commands from other packages are imported by name when called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *ELSEWHERE})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = ELSEWHERE[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = []
        for name in self.list_commands(ctx):
            known = super().get_command(ctx, name)
            rows.append((name, ELSEWHERE[name][1] if known is None else known.get_short_help_str(80)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _cpus(_ctx: click.Context, _param: click.Parameter, value: str | None) -> list[int] | None:
    try:
        return None if value is None else [int(part) for part in value.split(",")]
    except ValueError as error:
        message = f"{value!r} are no core numbers: give N or N,N"
        raise click.BadParameter(message) from error


def _names(_ctx: click.Context, _param: click.Parameter, value: str | None) -> list[str] | None:
    return None if value is None else [part.strip() for part in value.split(",")]


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="edgemeter", prog_name="edgemeter")
def cli() -> None:
    """Tell what a model costs on a device: how fast, how accurate, how many joules, and how that compares.

    Example: edgemeter run --model model.tflite --images photos/ --annotations coco.json
    """


@cli.command(short_help="Measure a suite of cases, or one model of your own.")
@click.argument("suite", required=False, type=click.Path(path_type=Path))
@click.option("--model", type=click.Path(path_type=Path), help="A model file (.tflite, .onnx, .pt, .pt2) instead of a suite.")
@click.option("--images", type=click.Path(path_type=Path), help="Folder of photographs. Without it the model is timed on noise.")
@click.option("--annotations", type=click.Path(path_type=Path), help="Ground truth: COCO JSON, YOLO labels, an index of classes.")
@click.option("--subset", type=click.IntRange(1), help="Use so many of the photographs, chosen by the seed. Default: all.")
@click.option("--seed", type=click.IntRange(0), help="Draws subset, inputs, arrivals, order and corruptions. Default: 0.")
@click.option(
    "--corrupt",
    callback=_names,
    metavar="NAME[,NAME]",
    help="Also score on corrupted photographs, five severities each: gaussian_noise, motion_blur, ..., or all.",
)
@click.option("--runtime", help="litert, onnx, pytorch, replay. Default: by the file's suffix.")
@click.option("--backend", help="The runtime's own: xnnpack, builtin; cpu, cuda, ...")
@click.option("--threads", type=click.IntRange(1, 1024), help="Threads of the runtime. Default: 1.")
@click.option(
    "--scenario",
    type=click.Choice(["single_stream", "multi_stream", "offline", "poisson"]),
    help="How queries come: one after the other, several samples each, in batches, at a rate. Default: single_stream.",
)
@click.option("--samples-per-query", type=click.IntRange(1), help="multi_stream: samples of a query. Default: 8.")
@click.option("--batch", type=click.IntRange(1), help="offline: samples of a batch, where the model leaves that open. Default: 1.")
@click.option("--rate", "rate_per_s", type=float, help="poisson: queries a second that arrive, whether the model is ready or not.")
@click.option("--mode", type=click.Choice(["rapid", "quick", "normal", "full", "sustained"]), help="How long. Default: quick (10 s).")
@click.option("--minutes", type=float, help="How long a sustained run lasts. Default: 30.")
@click.option("--repeats", type=click.IntRange(1), help="Independent processes per case. Default: by mode, 1 to 5.")
@click.option("--cpus", callback=_cpus, metavar="N[,N]", help="Keep the run to these cores. Default: any.")
@click.option("--start-below-c", type=float, help="Wait before each run until no thermometer reads this much. Default: no wait.")
@click.option("--cool-down-limit-s", type=click.FloatRange(0), help="How long to wait for that at most. Default: 300.")
@click.option("--accuracy", type=click.Choice(["every", "first", "never"]), help="In which repeats. Default: every.")
@click.option(
    "--reference-accuracy",
    type=click.FloatRange(0, 1, min_open=True),
    help="What the fp32 model reaches on this data. Default: the card's.",
)
@click.option("--gate", type=click.FloatRange(0, 1, min_open=True), help="Share of it that must be kept. Default: 0.9.")
@click.option(
    "--agreement", type=click.Choice(["every", "first", "never"]), help="Compare with reference kernels. Default: first, in rapid never."
)
@click.option("--precision", help="What to call the precision. Default: as the card or the tensors show.")
@click.option("--name", help="What to call the model. Default: its card's name, or the file's.")
@click.option("--sha256", help="Refuse the model unless it has this hash.")
@click.option("--role", type=click.Choice(["device", "reference"]), help="reference: what others are compared with. Default: device.")
@click.option("--device", envvar="EDGEMETER_DEVICE", help="What this device is called. Default: its host name.")
@click.option("--fleet", envvar="EDGEMETER_FLEET", help="The fleet it belongs to. Default: default.")
@click.option("--power", envvar="EDGEMETER_POWER", help="Power sensors NAME[,NAME], or none. Default: the widest that is here.")
@click.option(
    "--estimate-power-w",
    type=click.FloatRange(0, 1e5, min_open=True),
    help="No sensor: what the device is said to draw at its input. Its energy is labelled estimated and never ranks.",
)
@click.option("--broker", envvar="EDGEMETER_BROKER", help="Deliver by MQTT: HOST[:PORT], mqtt://..., mqtts://...")
@broker_files
@click.option(
    "--if-no-broker",
    type=click.Choice(["fail", "keep"]),
    default="fail",
    show_default=True,
    help="When no broker answers at the start: fail at once, or measure and keep the results in the outbox.",
)
@click.option("--delivery-timeout", type=FiniteRange(0), default=60.0, show_default=True, help="Seconds to wait for receipts.")
@click.option("--config", type=click.Path(path_type=Path), envvar="EDGEMETER_CONFIG", help="The agent's TOML configuration.")
@click.option("--output", type=click.Path(path_type=Path), help='Also write {"runs": [...]} to this file.')
@click.option("--bundle", type=click.Path(path_type=Path), metavar="DIR", help="Also write each run as one file that `verify` can check.")
@click.option(
    "--signing-key-file",
    envvar="EDGEMETER_SIGNING_KEY_FILE",
    type=click.Path(path_type=Path),
    help="Sign bundles with this key (`edgemeter bundle keygen`). Default: the configuration's, else unsigned.",
)
@click.option("--json", "as_json", is_flag=True, help='Print {"runs": [record, ...]}.')
def run(suite: Path | None, model: Path | None, **options: Any) -> None:
    """Measure a suite of cases, or one model of your own.

    Example: edgemeter run --model model.tflite --images photos/ --annotations coco.json --threads 4
    """
    if (suite is None) == (model is None):
        message = "give either a SUITE file or --model FILE"
        raise click.UsageError(message)
    from edgemeter.agent import run_command, table

    cases = run_command.suite_of(suite, model, options)
    for note in cases.left_out:
        click.echo(f"left out: {note}", err=True)
    outcome = run_command.run(cases, options | {"suite_file": suite}, lambda note: click.echo(note, err=True))
    if options["output"]:
        options["output"].write_bytes(run_command.document(outcome) + b"\n")
    if options["as_json"]:
        click.echo(run_command.document(outcome))
    else:
        table.print_runs(outcome.records)
    for error in outcome.errors:
        click.echo(f"edgemeter: {error}", err=True)
    if outcome.interruption is not None:
        raise outcome.interruption
    if outcome.undelivered:
        raise TransientError(outcome.undelivered)
    if outcome.errors:
        sys.exit(1)


@cli.command(short_help="Send what the outbox still holds.")
@click.option("--broker", envvar="EDGEMETER_BROKER", help="HOST[:PORT], mqtt://..., mqtts://... Default: the configuration's.")
@broker_files
@click.option("--device", envvar="EDGEMETER_DEVICE", help="What this device is called. Default: its host name.")
@click.option("--fleet", envvar="EDGEMETER_FLEET", help="The fleet it belongs to. Default: default.")
@click.option("--delivery-timeout", type=FiniteRange(0), default=60.0, show_default=True, help="Seconds to wait for receipts.")
@click.option("--config", type=click.Path(path_type=Path), envvar="EDGEMETER_CONFIG", help="The agent's TOML configuration.")
def publish(**options: Any) -> None:
    """Send what the outbox still holds, and wait for the collector's receipts.

    Example: edgemeter publish --broker broker.example
    """
    from edgemeter.agent import run_command

    click.echo(run_command.publish(options), err=True)


@cli.command(short_help="Say what is here, what is wrong, and what to do about it.")
@click.option("--broker", envvar="EDGEMETER_BROKER", help="Also look whether this broker answers.")
@broker_files
@click.option("--config", type=click.Path(path_type=Path), envvar="EDGEMETER_CONFIG", help="The agent's TOML configuration.")
@click.option("--json", "as_json", is_flag=True, help='Print {"findings": [...]}.')
def doctor(broker: str | None, *, as_json: bool, **options: Any) -> None:
    """Say what is here (board, runtimes, sensors, clock, broker), what is wrong, and what to do about it.

    Example: edgemeter doctor --broker 192.0.2.7
    """
    from edgemeter.agent.config import home, said
    from edgemeter.agent.doctor import examination

    settings = said(options)
    findings = examination.examine(broker=broker or settings.broker, home=home(), settings=settings, sensors=settings.sensors)
    if as_json:
        click.echo(examination.as_json(findings))
    else:
        from rich.console import Console

        Console().print(examination.render(findings))


@cli.command(short_help="Print the JSON Schema of a record.")
def schema() -> None:
    """Print the JSON Schema of a run record.

    Example: edgemeter schema > record.schema.json
    """
    import msgspec

    from edgemeter.agent.records import json_schema

    click.echo(msgspec.json.format(msgspec.json.encode(json_schema()), indent=2).decode())


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
        # The reader of our output has gone (`| head`): nothing is left to say, not even at exit.
        sys.stdout = open("/dev/null", "w")  # noqa: PTH123, SIM115 - lives until the process ends
        sys.exit(1)
    sys.exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    main()
