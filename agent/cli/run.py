"""The command `edgemeter run`."""

from pathlib import Path
from typing import Any

import click

from edgemeter.agent.base.cli.command_group import LongCommand
from edgemeter.agent.base.cli.completion import completes
from edgemeter.agent.base.cli.notes import is_quiet, note, warn
from edgemeter.agent.base.cli.options import (
    PATH,
    format_option,
    names_and_config,
    quiet_option,
    save_option,
)
from edgemeter.agent.base.cli.tables import console_for, print_data
from edgemeter.agent.base.model_names import model_names
from edgemeter.agent.cli.case_options import CASE_OPTIONS, case_options, case_settings
from edgemeter.agent.cli.session_options import (
    delivery_timeout_option,
    on_options,
    power_option,
    session_settings,
)
from edgemeter.agent.measuring.settings import IF_NO_BROKER

# The options that `edgemeter run --help` shows; `--help-all` shows all.
COMMON = {
    "data", "annotations", "runtime", "backend", "task", "threads", "subset", "scenario", "batch",
    "rate_per_s", "mode", "repeats", "precision_ratio", "time_s", "prompt_tokens", "output_tokens",
    "power", "on", "broker", "output", "wide", "quiet", "form",
}  # fmt: skip


@click.command(cls=LongCommand, common=COMMON)
@click.argument(
    "sources",
    nargs=-1,
    type=PATH,
    shell_complete=completes(model_names, files=True),
    metavar="[SUITE | MODEL...]",
)
@case_options(*CASE_OPTIONS)
@on_options
@click.option(
    "--together",
    is_flag=True,
    help="Measure the models alone, then at the same time, to see how much each slows down.",
)
@power_option
@click.option(
    "--broker",
    metavar="ADDRESS",
    envvar="EDGEMETER_BROKER",
    help="Deliver by MQTT to HOST[:PORT] or mqtts://HOST.",
)
@click.option(
    "--if-no-broker", type=click.Choice(["fail", "keep"]), default=IF_NO_BROKER, show_default=True,
    help="What to do if no broker answers: fail, or keep the results in the outbox.",
)  # fmt: skip
@delivery_timeout_option
@names_and_config
@save_option
@click.option("-o", "--output", type=PATH, help="Also write the records to this file (JSON).")
@click.option(
    "--bundle", type=PATH, metavar="DIR", help="Also write each run as a bundle to this folder."
)
@click.option("--wide", is_flag=True, help="Also show every run with all its figures.")
@quiet_option
@format_option()
def run(sources: tuple[Path, ...], **options: Any) -> None:
    """Measure one model, several in turn, or a suite of cases (.toml).

    A model is a file, FILE.py:make, package.module:make, or a catalogue name.

    Example: edgemeter run model.tflite --data photos/ --annotations coco.json
    """
    from edgemeter.agent.base.durable_file import check_writable
    from edgemeter.agent.cli.session import (
        end_session,
        session_document,
        session_progress,
        write_document,
    )
    from edgemeter.agent.measuring.suites import is_suite_file, suite_of, written_suite

    session = session_settings(options)
    if options["output"]:
        check_writable(options["output"])
    suite = next((source for source in sources if is_suite_file(source)), None)
    if not sources or (suite is not None and len(sources) > 1):
        raise click.UsageError("give either one SUITE file (.toml) or models")
    notes = list[str]()
    settings = case_settings(options)
    cases = suite_of(suite, sources, settings)
    for reason in cases.left_out:
        warn(f"edgemeter: left out: {reason}")
    if session.on:
        from edgemeter.agent.measuring.elsewhere import measure_on_boards

        outcome = measure_on_boards(*written_suite(suite, sources, settings), session, note)
    else:
        with session_progress() as on_event:
            from edgemeter.agent.measuring.measure_suite import measure_suite

            outcome = measure_suite(cases, session, on_event, notes.append)
    document = session_document(outcome)
    try:
        if not print_data(options["form"], document):
            from edgemeter.agent.cli.run_output import print_runs, saved_line

            if outcome.saved is not None:
                notes.append(saved_line(outcome.records, cases.cases if suite else [], settings))
            shown_notes = [] if is_quiet() else notes
            print_runs(
                outcome.records,
                console_for(options["form"]),
                wide=options["wide"],
                seconds=outcome.seconds,
                notes=shown_notes,
            )
    finally:
        # A full or closed standard output must not stop the rest.
        if options["output"]:
            write_document(options["output"], document, outcome.errors)
        end_session(outcome)
