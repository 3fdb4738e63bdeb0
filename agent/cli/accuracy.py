"""The command `edgemeter accuracy`."""

import sys
from typing import Any

import click

from edgemeter.agent.base.errors import FAILED
from edgemeter.agent.base.options import PATH, format_option
from edgemeter.agent.base.progress import note
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.agent.cli.case_options import MODEL_OPTIONS, case_options


@click.command()
@click.option("-m", "--model", type=PATH, required=True, help="Model file to score.")
@case_options(*MODEL_OPTIONS, "subset", "seed")
@click.option("--classes", "with_classes", is_flag=True, help="Also print a table of the classes; JSON always holds them.")
@format_option('Print one object: {"ap": ..., "ap50": ..., "ap75": ..., "per_class": {...}, ...}.')
def accuracy(*, with_classes: bool, form: Format | None, **options: Any) -> None:
    """Score a model without timing it.

    A detector gets AP, AP50, AP75, small, medium, large and AR; a classifier top-1 and top-5; other tasks what their metric is called.

    JSON keys: metric, value, better (higher or lower), reason (of a null value),
    ap, ap50, ap75, ap_small, ap_medium, ap_large, ar_1, ar_10, ar_100, ar_small, ar_medium, ar_large (of a classifier top1,
    top5), low, high, interval, interval_reason, images, per_class, by_objects, groups, group_gap, verdict, reasons,
    warnings. A figure is null if there is nothing to find. At most 100 detections per image and class count.

    Exit status: 0 scored, 1 failed, nothing to find or the verdict on the model is invalid, 2 wrong option or file.

    Example: edgemeter accuracy --model model.tflite --data photos/ --annotations instances.json
    """
    if options["data"] is None:
        raise click.UsageError("--data is missing: what the score is made of, such as --data photos/ --annotations instances.json")
    from edgemeter.agent.cli.accuracy_scores import document, of_model, show
    from edgemeter.agent.cli.run_session import session_progress, suite_of
    from edgemeter.agent.session import session

    suite = suite_of(None, options["model"], options)
    session.check(suite)
    with session_progress() as on_event:
        scored = of_model(suite.cases[0], on_event)
    if not print_data(form, document(scored), rows=""):
        show(scored, console_for(form), with_classes=with_classes)
        for reason in scored.verdict.reasons:
            click.echo(f"{scored.verdict.state}: {reason}", err=True)
        for warning in scored.warnings:
            note(f"note: {warning}")
    if scored.accuracy is None or scored.verdict.state == "invalid":
        sys.exit(FAILED)
