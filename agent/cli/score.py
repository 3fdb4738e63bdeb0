"""The command `edgemeter models score`."""

import sys
from typing import Any

import click

from edgemeter.agent.base.errors import FAILED
from edgemeter.agent.base.options import PATH, format_option
from edgemeter.agent.base.progress import warn
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.agent.cli.case_options import MODEL_OPTIONS, case_options


@click.command()
@click.argument("model", type=PATH)
@case_options(*MODEL_OPTIONS, "subset", "seed")
@click.option("--classes", "with_classes", is_flag=True, help="Also print a table of the classes; JSON always holds them.")
@format_option('{"metric": ..., "value": ..., "low": ..., "high": ..., "per_class": {...}, ...}')
def score(*, with_classes: bool, form: Format, **options: Any) -> None:
    """Score a model on data without timing it. A language model is scored by `edgemeter run MODEL --questions FILE`.

    A detector gets AP, AP50, AP75, small, medium, large and AR; a classifier top-1 and top-5, any other task its own metric.

    Exit status: 0 scored, 1 failed, nothing to find or the verdict is invalid, 2 wrong option or file.

    Example: edgemeter models score model.tflite --data photos/ --annotations instances.json
    """
    from edgemeter.agent.cli.accuracy_scores import document, of_model, show
    from edgemeter.agent.cli.run_session import session_progress, suite_of
    from edgemeter.agent.session import checks
    from edgemeter.agent.verdict.words import verdict_lines

    if options["data"] is None:
        raise click.UsageError("give what to score on: --data photos/ --annotations instances.json")
    suite = suite_of(None, options["model"], options)
    checks.check(suite)
    with session_progress() as on_event:
        scored = of_model(suite.cases[0], on_event)
    if not print_data(form, document(scored), rows=""):
        show(scored, console_for(form), with_classes=with_classes)
        for line in verdict_lines([scored.verdict]):
            click.echo(line, err=True)
        for warning in scored.warnings:
            warn(f"edgemeter: {warning}")
    if scored.accuracy is None or scored.verdict.state == "invalid":
        sys.exit(FAILED)
