"""The command `edgemeter accuracy`."""

import sys
from collections.abc import Mapping
from typing import Any

import click

from edgemeter.agent.base.errors import FAILED
from edgemeter.agent.base.options import PATH, format_option, quiet_option
from edgemeter.agent.base.progress import note
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.agent.cli.case_options import MODEL_OPTIONS, case_options

_IMAGES = {"help": "--model: data of any kind: a folder of images or recordings, class folders, or one file."}


@click.command()
@click.option("--detections", type=PATH, help="COCO results: [{image_id, category_id, bbox: [x, y, w, h], score}].")
@click.option("-m", "--model", type=PATH, help="Model file to score on --data, instead of detections.")
@case_options(*MODEL_OPTIONS, "cluster_by", "subset", "seed", "corrupt", data=_IMAGES)
@click.option(
    "--bounds",
    type=click.Choice(["auto", "always", "never"]),
    help="--detections: compute 95% bounds by a jackknife over images or clusters. Default: auto, up to 300,000 detections.",
)
@click.option("--classes", "with_classes", is_flag=True, help="Also print a table of the classes; JSON always holds them.")
@quiet_option
@format_option('Print one object: {"ap": ..., "ap50": ..., "ap75": ..., "per_class": {...}, ...}.')
def accuracy(*, with_classes: bool, form: Format | None, **options: Any) -> None:
    """Score detections in COCO's result format, or a model, without timing it.

    A detector gets AP, AP50, AP75, small, medium, large and AR; a classifier top-1 and top-5; other tasks what their metric is called.

    JSON keys: ap, ap50, ap75, ap_small, ap_medium, ap_large, ar_1, ar_10, ar_100, ar_small, ar_medium, ar_large (of a classifier top1,
    top5), low, high, interval, interval_reason, clusters, images, detections, per_class, by_objects, groups, group_gap, robustness,
    verdict and reasons (of a model), warnings. A figure is null if there is nothing to find. At most 100 detections per image
    and class count.

    Exit status: 0 scored, 1 failed or the verdict on the model is invalid, 2 wrong option or file.

    Example: edgemeter accuracy --annotations instances.json --detections results.json
    """
    _check(options)
    from edgemeter.agent.cli.accuracy_scores import document, of_detections, of_model, show

    if options["detections"]:
        scored = of_detections(options["annotations"], options["detections"], options["bounds"] or "auto", options["cluster_by"])
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
        for warning in scored.warnings:
            note(f"note: {warning}")
    if scored.verdict is not None and scored.verdict.state == "invalid":
        sys.exit(FAILED)


def _check(options: Mapping[str, Any]) -> None:
    """Refuse options that do not go together: one without effect would be a wrong number."""
    if (options["detections"] is None) == (options["model"] is None):
        raise click.UsageError("give either --detections FILE or --model FILE")
    if options["detections"]:
        idle = [name for name in options if name not in ("detections", "annotations", "bounds", "cluster_by") and options[name] is not None]
        required = "annotations"
    else:
        idle = [name for name in ("bounds",) if options[name] is not None]
        required = "data"
    if idle:
        raise click.UsageError(f"--{idle[0]} has no effect with --{'detections' if options['detections'] else 'model'}: leave it out")
    if options[required] is None:
        example = "--annotations instances.json" if options["detections"] else "--data photos/ --annotations instances.json"
        raise click.UsageError(f"--{required} is missing: what the score is made of, such as {example}")
