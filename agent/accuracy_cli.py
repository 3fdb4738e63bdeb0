"""The command `edgemeter accuracy`."""

from pathlib import Path
from typing import Any

import click


@click.command(short_help="Score detections in COCO's result format, or a model, without timing it.")
@click.option(
    "--annotations",
    required=True,
    type=click.Path(path_type=Path),
    help="Ground truth: COCO JSON; with --model every form that `run` reads.",
)
@click.option("--detections", type=click.Path(path_type=Path), help="COCO results: [{image_id, category_id, bbox: [x, y, w, h], score}].")
@click.option(
    "--bounds",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="95 % bounds by bootstrap over images; auto: up to 100,000 detections.",
)
@click.option("--classes", "with_classes", is_flag=True, help="Also print a table of the classes; JSON always holds them.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: ap, ap50, ap75, ..., per_class, groups, warnings.")
def accuracy(**options: Any) -> None:
    """Print COCO's AP, AP50, AP75 (small, medium, large) and AR of detections, by class, by objects per image and by group.

    JSON keys: ap, ap50, ap75, ap_small, ap_medium, ap_large, ar_1, ar_10, ar_100, ar_small, ar_medium, ar_large, images, detections,
    per_class, by_objects, groups, warnings; a figure is null where there is nothing to find. At most 100 detections of an image count.

    Example: edgemeter accuracy --annotations instances.json --detections results.json
    """
    import msgspec

    from edgemeter.agent import accuracy_command, accuracy_table

    scored = accuracy_command.of_detections(options["annotations"], options["detections"], options["bounds"])
    if options["as_json"]:
        click.echo(msgspec.json.encode(accuracy_command.document(scored)))
        return
    for warning in scored.warnings:
        click.echo(f"note: {warning}", err=True)
    accuracy_table.show(scored, with_classes=options["with_classes"])
