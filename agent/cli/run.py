"""The command `edgemeter run`."""

import sys
from pathlib import Path
from typing import Any

import click

from edgemeter.agent.base.completion import completes
from edgemeter.agent.base.durable_file import check_writable
from edgemeter.agent.base.errors import TransientError
from edgemeter.agent.base.model_names import model_names
from edgemeter.agent.base.options import (
    PATH,
    broker_files,
    delivery_timeout_option,
    format_option,
    image_options,
    model_options,
    names_and_config,
    quiet_option,
    save_option,
)
from edgemeter.agent.base.progress import note
from edgemeter.agent.base.tables import console_for, print_data
from edgemeter.agent.cli.power_option import power_option


def _numbers(_ctx: click.Context, param: click.Parameter, value: str | None) -> list[int] | None:
    try:
        return None if value is None else [int(part) for part in value.split(",")]
    except ValueError as error:
        what = "core numbers" if param.name == "cpus" else "numbers of tokens"
        raise click.BadParameter(f"{value!r} is not a list of {what}: give N or N,N") from error


@click.command()
@click.argument("sources", nargs=-1, type=PATH, shell_complete=completes(model_names, files=True), metavar="[SUITE | MODEL...]")
@click.option(
    "-m",
    "--model",
    "named",
    multiple=True,
    type=PATH,
    shell_complete=completes(model_names, files=True),
    help="Model file (.tflite, .onnx, .pt, .pt2, .pte, .gguf, genai_config.json, .server), or name of the catalogue; repeatable.",
)
@model_options()
@image_options("subset, inputs, arrivals, order and corruptions")
@click.option(
    "--scenario",
    type=click.Choice(["single_stream", "multi_stream", "offline", "poisson"]),
    help="How queries arrive: one after the other, several samples each, in batches, or at a rate. Default: single_stream.",
)
@click.option("--samples-per-query", type=click.IntRange(1), help="multi_stream: samples in a query. Default: 8.")
@click.option("--batch", type=click.IntRange(1), help="offline: samples in a batch, if the model allows it. Default: 1.")
@click.option("--rate", "rate_per_s", type=float, help="poisson: queries per second.")
@click.option(
    "--mode", type=click.Choice(["rapid", "quick", "normal", "full", "sustained"]), help="How long to measure. Default: quick (10 s)."
)
@click.option("--minutes", type=float, help="sustained: length of the run in minutes. Default: 30.")
@click.option(
    "--prompt-tokens",
    callback=_numbers,
    metavar="N[,N]",
    help="Language models: exact length of the prompt; several for a sweep. Default: 512.",
)
@click.option(
    "--output-tokens", callback=_numbers, metavar="N[,N]", help="Language models: exact number of tokens generated. Default: 128."
)
@click.option("--repeats", type=click.IntRange(1), help="Independent processes per case. Default: by mode, 1 to 5.")
@click.option("--cpus", callback=_numbers, metavar="N[,N]", help="Pin the run to these cores. Default: any.")
@click.option("--start-below-c", type=float, help="Before each run, wait until all temperatures are below this. Default: no wait.")
@click.option("--cool-down-limit-s", type=click.FloatRange(0), help="Longest wait for that, in seconds. Default: 300.")
@click.option("--accuracy", type=click.Choice(["every", "first", "never"]), help="Repeats that measure accuracy. Default: every.")
@click.option(
    "--reference-accuracy",
    type=click.FloatRange(0, 1, min_open=True),
    help="Accuracy of the fp32 model on this data. Default: the model card's.",
)
@click.option("--gate", type=click.FloatRange(0, 1, min_open=True), help="Share of it that the run must reach. Default: 0.9.")
@click.option(
    "--agreement",
    type=click.Choice(["every", "first", "never"]),
    help="Repeats that compare outputs with reference kernels. Default: first; in mode rapid never.",
)
@click.option("--precision", help="Name of the precision. Default: the card's, or what the tensors show.")
@click.option("--name", help="Name of the model. Default: the card's, or the file's.")
@click.option("--sha256", help="Refuse the model unless it has this hash.")
@click.option(
    "--role", type=click.Choice(["device", "reference"]), help="reference: other devices are compared with this one. Default: device."
)
@power_option
@click.option(
    "--estimate-power-w",
    type=click.FloatRange(0, 1e5, min_open=True),
    help="Without a sensor: assumed power in W. The energy is labelled estimated and never ranked.",
)
@click.option("--broker", envvar="EDGEMETER_BROKER", help="Deliver by MQTT to HOST[:PORT], mqtt://... or mqtts://...")
@broker_files
@click.option(
    "--if-no-broker",
    type=click.Choice(["fail", "keep"]),
    default="fail",
    show_default=True,
    help="If no broker answers at the start: fail, or measure and keep the results in the outbox.",
)
@delivery_timeout_option
@names_and_config
@save_option
@click.option("-o", "--output", type=PATH, help='Also write {"runs": [...]} to this file.')
@click.option("--bundle", type=PATH, metavar="DIR", help="Also write each run as one file that `edgemeter bundle verify` checks.")
@click.option(
    "--signing-key-file",
    envvar="EDGEMETER_SIGNING_KEY_FILE",
    type=PATH,
    help="Key that signs bundles (see `edgemeter bundle keygen`). Default: the configuration's, or unsigned.",
)
@quiet_option
@format_option('Print {"runs": [record, ...]}.')
def run(sources: tuple[Path, ...], named: tuple[Path, ...], **options: Any) -> None:
    """Measure a suite of cases (.toml), or models in turn.

    Example: edgemeter run model.tflite --images photos/ --annotations coco.json --threads 4
    """
    from edgemeter.agent.cli import run_session

    if options["output"]:
        check_writable(options["output"])
    models = (*sources, *named)
    suite = next((source for source in sources if run_session.is_suite_file(source)), None)
    if not models or (suite is not None and len(models) > 1):
        raise click.UsageError("give either one SUITE file (.toml) or models")
    cases = run_session.suite_of(suite, models, options)
    for reason in cases.left_out:
        note(f"left out: {reason}")
    outcome = run_session.run_session(cases, options | {"suite_file": suite}, note)
    document = run_session.session_document(outcome)
    try:
        if not print_data(options["form"], document):
            from edgemeter.agent.cli.run_table import print_runs

            print_runs(outcome.records, console_for(options["form"]))
    finally:
        # A full or closed standard output does not take the rest with it.
        if options["output"]:
            run_session.write_document(options["output"], document, outcome.errors)
        note(outcome.saved)
        for error in outcome.errors:
            click.echo(f"edgemeter: {error}", err=True)
    if outcome.interruption is not None:
        raise outcome.interruption
    if outcome.undelivered:
        raise TransientError(outcome.undelivered)
    if outcome.errors:
        sys.exit(1)
