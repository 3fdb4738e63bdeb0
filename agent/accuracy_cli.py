"""The command `edgemeter accuracy`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click


def _names(_ctx: click.Context, _param: click.Parameter, value: str | None) -> list[str] | None:
    return None if value is None else [part.strip() for part in value.split(",")]


@click.command(short_help="Score detections in COCO's result format, or a model, without timing it.")
@click.option("--annotations", type=click.Path(path_type=Path), help="Ground truth: COCO JSON; with --model also YOLO labels or an index.")
@click.option("--detections", type=click.Path(path_type=Path), help="COCO results: [{image_id, category_id, bbox: [x, y, w, h], score}].")
@click.option("--model", type=click.Path(path_type=Path), help="A model file to score instead of detections, on --images.")
@click.option("--images", type=click.Path(path_type=Path), help="Folder of photographs, or of class folders.")
@click.option("--runtime", help="litert, onnx, pytorch, ... Default: by the file's suffix.")
@click.option("--backend", help="The runtime's own: xnnpack, builtin; cpu, cuda, ...")
@click.option("--threads", type=click.IntRange(1, 1024), help="Threads of the runtime. Default: 1.")
@click.option("--subset", type=click.IntRange(1), help="Use so many of the photographs, chosen by the seed. Default: all.")
@click.option("--seed", type=click.IntRange(0), help="Draws the subset and the corruptions. Default: 0.")
@click.option(
    "--corrupt",
    callback=_names,
    metavar="NAME[,NAME]",
    help="Also score on corrupted photographs, five severities each: gaussian_noise, motion_blur, ..., or all.",
)
@click.option(
    "--bounds",
    type=click.Choice(["auto", "always", "never"]),
    help="Of detections: 95 % bounds by a jackknife over images. Default: auto, up to 100,000 detections.",
)
@click.option("--classes", "with_classes", is_flag=True, help="Also print a table of the classes; JSON always holds them.")
@click.option("--json", "as_json", is_flag=True, help='Print one object: {"ap": ..., "ap50": ..., "ap75": ..., "per_class": {...}, ...}.')
def accuracy(*, with_classes: bool, as_json: bool, **options: Any) -> None:
    """Score detections in COCO's result format, or a model without timing it: AP, AP50, AP75, small, medium, large, AR; or top-1, top-5.

    JSON keys: ap, ap50, ap75, ap_small, ap_medium, ap_large, ar_1, ar_10, ar_100, ar_small, ar_medium, ar_large (of a classifier top1,
    top5), low, high, images, detections, per_class, by_objects, groups, group_gap, robustness, verdict and reasons (of a model), warnings;
    null: nothing to find there. At most 100 detections of an image count.

    Example: edgemeter accuracy --annotations instances.json --detections results.json
    """
    _check(options)
    import msgspec

    from edgemeter.agent import accuracy_command, accuracy_table

    if options["detections"]:
        scored = accuracy_command.of_detections(options["annotations"], options["detections"], options["bounds"] or "auto")
    else:
        scored = _of_model(options)
    if as_json:
        click.echo(msgspec.json.encode(accuracy_command.document(scored)))
        return
    accuracy_table.show(scored, with_classes=with_classes)
    if scored.verdict is not None:
        for reason in scored.verdict.reasons:
            click.echo(f"{scored.verdict.state}: {reason}", err=True)
    for warning in scored.warnings:
        click.echo(f"note: {warning}", err=True)


def _check(options: Mapping[str, Any]) -> None:
    """Refuse options that do not go together: one without effect would be a wrong number."""
    if (options["detections"] is None) == (options["model"] is None):
        message = "give either --detections FILE or --model FILE"
        raise click.UsageError(message)
    if options["detections"]:
        idle = [name for name in options if name not in ("detections", "annotations", "bounds") and options[name] is not None]
        needed = "annotations"
    else:
        idle = [name for name in ("bounds",) if options[name] is not None]
        needed = "images"
    if idle:
        message = f"--{idle[0]} has no effect with --{'detections' if options['detections'] else 'model'}: leave it out"
        raise click.UsageError(message)
    if options[needed] is None:
        message = f"--{needed} is missing"
        raise click.UsageError(message)


def _of_model(options: Mapping[str, Any]) -> Any:
    from contextlib import nullcontext

    from edgemeter.agent import accuracy_command, progress, run_command
    from edgemeter.agent.engine import session

    settings = {key: value for key, value in options.items() if key in run_command.CASE_OPTIONS}
    suite = run_command.suite_of(None, options["model"], dict.fromkeys(run_command.CASE_OPTIONS) | settings)
    session.check(suite)
    with progress.Bars() if progress.on_terminal() else nullcontext(lambda _: None) as tell:
        return accuracy_command.of_model(suite.cases[0], tell)
