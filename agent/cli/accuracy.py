"""The command `edgemeter accuracy`."""

import sys
from collections.abc import Mapping
from typing import Any

import click

from edgemeter.agent.base.errors import FAILED
from edgemeter.agent.base.options import PATH, format_option
from edgemeter.agent.base.progress import note
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.agent.cli.case_options import MODEL_OPTIONS, case_options

_IMAGES = {"help": "Data of any kind: a folder of images or arrays, class folders, or one file. Predictions need annotations alone."}
# What goes with a file of predictions, and what with a model only.
_OF_PREDICTIONS = ("predictions", "annotations", "data", "reader", "task", "bounds", "cluster_by")
_NOT_OF_MODELS = ("task", "bounds")
# Those whose predictions are scored from a file; here, because nothing of them is imported for a page of help.
_TASKS = (
    "detection", "segmentation", "pose", "classification",
)  # fmt: skip


@click.command()
@click.option(
    "--predictions",
    type=PATH,
    help="COCO results (boxes, masks, keypoints), or JSON lines, JSON, CSV, TSV: id and label or scores.",
)
@click.option("-m", "--model", type=PATH, help="Model file to score on --data, instead of predictions.")
@click.option("--task", type=click.Choice(_TASKS), help="--predictions: their task, where annotations and file leave several.")
@case_options(*MODEL_OPTIONS, "cluster_by", "subset", "seed", data=_IMAGES)
@click.option(
    "--bounds",
    type=click.Choice(["auto", "always", "never"]),
    help="--predictions of COCO: compute 95% bounds by a jackknife over images or clusters. Default: auto, up to 300,000 detections.",
)
@click.option("--classes", "with_classes", is_flag=True, help="Also print a table of the classes; JSON always holds them.")
@format_option('Print one object: {"ap": ..., "ap50": ..., "ap75": ..., "per_class": {...}, ...}.')
def accuracy(*, with_classes: bool, form: Format | None, **options: Any) -> None:
    """Score a file of predictions, or a model without timing it.

    A detector gets AP, AP50, AP75, small, medium, large and AR; a classifier top-1 and top-5; other tasks what their metric is called.

    JSON keys: task (of predictions), metric, value, better (higher or lower), reason (of a null value),
    ap, ap50, ap75, ap_small, ap_medium, ap_large, ar_1, ar_10, ar_100, ar_small, ar_medium, ar_large (of a classifier top1,
    top5), low, high, interval, interval_reason, clusters, images, detections, per_class, by_objects, groups, group_gap,
    verdict and reasons (of a model), warnings. A figure is null if there is nothing to find. At most 100 detections per image
    and class count.

    Exit status: 0 scored, 1 failed, nothing to find or the verdict on the model is invalid, 2 wrong option or file.

    Example: edgemeter accuracy --annotations instances.json --predictions results.json
    """
    _check(options)
    from edgemeter.agent.cli.accuracy_scores import document, of_model, show

    if options["predictions"]:
        from edgemeter.agent.cli.accuracy_predictions import of_predictions

        scored = of_predictions(**{key: options[key] for key in _OF_PREDICTIONS})
    else:
        from edgemeter.agent.cli.run_session import session_progress, suite_of
        from edgemeter.agent.session import session

        suite = suite_of(None, options["model"], options)
        session.check(suite)
        with session_progress() as on_event:
            scored = of_model(suite.cases[0], on_event)
    if not print_data(form, document(scored), rows=""):
        show(scored, console_for(form), with_classes=with_classes)
        if scored.verdict is not None:
            for reason in scored.verdict.reasons:
                click.echo(f"{scored.verdict.state}: {reason}", err=True)
        elif scored.reason is not None:
            click.echo(f"no accuracy: {scored.reason}", err=True)
        for warning in scored.warnings:
            note(f"note: {warning}")
    if scored.accuracy is None or (scored.verdict is not None and scored.verdict.state == "invalid"):
        sys.exit(FAILED)


def _check(options: Mapping[str, Any]) -> None:
    """Refuse options that do not go together: one without effect would be a wrong number."""
    is_file = options["predictions"] is not None
    if is_file == (options["model"] is not None):
        raise click.UsageError("give either --predictions FILE or --model FILE")
    source = "predictions" if is_file else "model"
    idle = [name for name in options if options[name] is not None and (name not in _OF_PREDICTIONS if is_file else name in _NOT_OF_MODELS)]
    if idle:
        raise click.UsageError(f"--{idle[0]} has no effect with --{source}: leave it out")
    if is_file and options["annotations"] is None and options["data"] is None:
        raise click.UsageError("--annotations is missing: what the score is made of, such as --annotations instances.json")
    if not is_file and options["data"] is None:
        raise click.UsageError("--data is missing: what the score is made of, such as --data photos/ --annotations instances.json")
