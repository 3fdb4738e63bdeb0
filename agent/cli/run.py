"""The command `edgemeter run`."""

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgemeter.agent.base.completion import completes
from edgemeter.agent.base.errors import FAILED, TransientError
from edgemeter.agent.base.model_names import model_names
from edgemeter.agent.base.options import (
    PATH,
    delivery_timeout_option,
    format_option,
    names_and_config,
    quiet_option,
    save_option,
)
from edgemeter.agent.base.progress import note
from edgemeter.agent.base.tables import console_for, print_data
from edgemeter.agent.cli.case_options import CASE_OPTIONS, case_options, check_on, on_option, power_option

if TYPE_CHECKING:
    from edgemeter.agent.cli.run_session import SessionOutcome


@click.command()
@click.argument("sources", nargs=-1, type=PATH, shell_complete=completes(model_names, files=True), metavar="[SUITE | MODEL...]")
@click.option(
    "-m", "--model", "named", multiple=True, type=PATH, shell_complete=completes(model_names, files=True),
    help="Model file (.tflite, .onnx, .hef, .gguf, .server, ...), FILE.py:make, package.module:make, or catalogue name.",
)  # fmt: skip
@case_options(*CASE_OPTIONS)
@on_option
@click.option("--together", is_flag=True, help="Measure each model alone, then pairs and all at the same time: how much each slows down.")
@power_option
@click.option("--broker", envvar="EDGEMETER_BROKER", help="Deliver by MQTT to HOST[:PORT], mqtt://... or mqtts://...")
@click.option(
    "--if-no-broker", type=click.Choice(["fail", "keep"]), default="fail", show_default=True,
    help="If no broker answers at the start: fail, or measure and keep the results in the outbox.",
)  # fmt: skip
@delivery_timeout_option
@names_and_config
@save_option
@click.option("-o", "--output", type=PATH, help='Also write {"runs": [...]} to this file.')
@click.option("--bundle", type=PATH, metavar="DIR", help="Also write each run as one file that `edgemeter bundle verify` checks.")
@click.option(
    "--signing-key-file", envvar="EDGEMETER_SIGNING_KEY_FILE", type=PATH,
    help="Key that signs bundles (see `edgemeter bundle keygen`). Default: the configuration's, or unsigned.",
)  # fmt: skip
@click.option("--why", is_flag=True, help="Show every run, and the evidence of each verdict.")
@quiet_option
@format_option('Print {"runs": [record, ...]}, "sweeps" over users or rates, the "answer" of power modes, and rows of models "together".')
def run(sources: tuple[Path, ...], named: tuple[Path, ...], **options: Any) -> None:
    """Measure a suite of cases (.toml), or models in turn.

    Example: edgemeter run model.tflite --data photos/ --annotations coco.json --threads 4
    """
    from edgemeter.agent.base.durable_file import check_writable
    from edgemeter.agent.cli import run_session

    check_on(options["on"])
    if options["output"]:
        check_writable(options["output"])
    models = (*sources, *named)
    suite = next((source for source in sources if run_session.is_suite_file(source)), None)
    if not models or (suite is not None and len(models) > 1):
        raise click.UsageError("give either one SUITE file (.toml) or models")
    outcome = _measured(suite, models, options)
    document = run_session.session_document(outcome)
    try:
        if not print_data(options["form"], document):
            from edgemeter.agent.cli.run_table import print_runs

            print_runs(outcome.records, console_for(options["form"]), why=options["why"])
    finally:
        # A full or closed standard output does not take the rest with it.
        if options["output"]:
            run_session.write_document(options["output"], document, outcome.errors)
        note(outcome.saved)
        for message, times in Counter(map(str, outcome.errors)).items():
            click.echo(f"edgemeter: {message}{f' ({times} times)' if times > 1 else ''}", err=True)
    if outcome.interruption is not None:
        raise outcome.interruption
    if outcome.undelivered:
        raise TransientError(outcome.undelivered)
    if outcome.errors:
        sys.exit(FAILED)


def _measured(suite: Path | None, models: tuple[Path, ...], options: dict[str, Any]) -> "SessionOutcome":
    """Return what was measured: here, or where `--on` says."""
    from edgemeter.agent.cli import run_session

    cases = run_session.suite_of(suite, models, options)
    for reason in cases.left_out:
        note(f"left out: {reason}")
    if not options["on"]:
        return run_session.run_session(cases, options | {"suite_file": suite}, note)
    from edgemeter.agent.cli import elsewhere

    return elsewhere.measure(suite, models, options, note)
