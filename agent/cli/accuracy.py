"""The command `edgemeter accuracy`, which shows the score of a model or of predictions in a file.

It shows a table or JSON.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgemeter.agent.base.cli.notes import warn
from edgemeter.agent.base.cli.options import PATH, format_option
from edgemeter.agent.base.cli.tables import Format, console_for, print_data
from edgemeter.agent.base.errors import FAILED
from edgemeter.agent.base.number_text import ABSENT
from edgemeter.agent.cli.case_options import MODEL_OPTIONS, case_options, case_settings

if TYPE_CHECKING:
    from edgemeter.agent.base.console import Console
    from edgemeter.agent.contract.case_settings import Settings
    from edgemeter.agent.engine.job import Scored


@click.command()
@click.argument("model", type=PATH, required=False)
@case_options(*MODEL_OPTIONS, "subset", "seed")
@click.option(
    "--predictions",
    type=PATH,
    help="Score COCO results of any tool: a list of image_id, category_id, bbox and score.",
)
@click.option("--classes", "with_classes", is_flag=True, help="Also print a table of the classes.")
@format_option('{"metric": ..., "value": ..., "low": ..., "high": ..., "per_class": {...}, ...}')
def accuracy(
    *,
    model: Path | None,
    predictions: Path | None,
    with_classes: bool,
    form: Format,
    **options: Any,
) -> None:
    """Score a model, or the predictions of another tool, without timing.

    A detector gets AP, AP50, AP75, AP by size and AR; a classifier top-1 and top-5; any other task
    its own metric. Score a language model with `edgemeter run MODEL --questions FILE`.

    The exit status is 1 if scoring failed, there was nothing to find, or the verdict is invalid.

    Example: edgemeter accuracy model.tflite --data photos/ --annotations instances.json
    """
    import msgspec

    from edgemeter.agent.verdict.facts import Facts
    from edgemeter.agent.verdict.judge import judge_outputs
    from edgemeter.agent.verdict.words import verdict_lines

    if predictions is not None:
        model_options = [
            key
            for key, value in options.items()
            if value is not None and key not in ("annotations", "seed")
        ]
        if model is not None or model_options or options["annotations"] is None:
            raise click.UsageError(
                "write --predictions results.json --annotations instances.json, without a model "
                "and its options"
            )
        scored = _of_predictions(predictions, options["annotations"])
    elif model is None or options["data"] is None:
        raise click.UsageError(
            "give what to score: MODEL --data photos/ --annotations FILE, or --predictions FILE "
            "--annotations FILE"
        )
    else:
        scored = _of_model(model, case_settings(options))
    verdict = judge_outputs(Facts(scored))
    warnings = list(
        dict.fromkeys((*scored.notes, *(scored.accuracy.warnings if scored.accuracy else ())))
    )
    judged = {
        "verdict": verdict.state,
        "violations": msgspec.to_builtins(verdict.violations),
        "warnings": warnings,
    }
    if not print_data(form, _document(scored) | judged, rows=""):
        _show(scored, console_for(form), with_classes=with_classes)
        for line in verdict_lines([verdict]):
            click.echo(line, err=True)
        for warning in warnings:
            warn(f"edgemeter: {warning}")
    if scored.accuracy is None or verdict.state == "invalid":
        sys.exit(FAILED)


def _of_model(model: Path, settings: "Settings") -> "Scored":
    """Return the score of a model from a separate process.

    A crash of the runtime ends only that process.
    """
    from edgemeter.agent.cli.session import session_progress
    from edgemeter.agent.contract import model_file
    from edgemeter.agent.engine import isolation, job
    from edgemeter.agent.measuring.suites import suite_of
    from edgemeter.agent.session import checks

    suite = suite_of(None, model, settings)
    checks.check(suite)
    (case,) = suite.cases
    size_bytes = model_file.size_bytes(Path(case.model))
    work = job.RunJob(
        case=case,
        sha256=case.sha256 or "",
        size_bytes=size_bytes,
        seed=case.seed,
        accuracy=True,
        idle=False,
        spawned_ns=0,
    )
    with session_progress() as on_event:
        return isolation.score_isolated(work, lambda event, _pid: on_event(event))


def _of_predictions(predictions: Path, annotations: Path) -> "Scored":
    from edgemeter.agent.contract.record_conditions import RuntimeInfo
    from edgemeter.agent.engine.job import NOTHING_TO_FIND, Answers, Scored
    from edgemeter.agent.tasks.coco_results import score_results

    results = score_results(predictions, annotations)
    return Scored(
        accuracy=results.accuracy,
        accuracy_reason=None if results.accuracy else NOTHING_TO_FIND,
        images=results.images,
        notes=results.notes,
        # Nothing ran, and the scores of other tools may be on any scale: only the detections are
        # judged.
        runtime=RuntimeInfo(name="none", package="none", version="none", backend="none", threads=1),
        outputs=(),
        answers=Answers(
            inputs=results.images,
            alike=0,
            not_finite=0,
            objects=results.objects,
            found=results.predictions,
        ),
    )


def _name(metric: str) -> str:
    """Return the label of a metric's value among its details."""
    return "ap" if metric == "coco_ap" else metric


def _document(scored: "Scored") -> dict[str, Any]:
    """Return the accuracy as plain data with short names.

    A figure is null if there is nothing to find.
    """
    from edgemeter.agent.tasks.coco_matches import METRICS

    if (accuracy := scored.accuracy) is None:
        figures: dict[str, Any] = dict.fromkeys(("metric", "value", "better", *METRICS))
        return {
            **figures,
            "images": scored.images,
            "per_class": {},
            "reason": scored.accuracy_reason,
        }
    names = (
        "metric",
        "value",
        "better",
        "low",
        "high",
        "interval_reason",
        "images",
        "per_class",
        "dataset_sha256",
    )
    fields = (
        {name: getattr(accuracy, name) for name in names}
        | {_name(accuracy.metric): accuracy.value}
        | accuracy.detail
    )
    optional = {"normalisation": accuracy.normalisation, "drawn_from": scored.drawn_from}
    return fields | {name: value for name, value in optional.items() if value is not None}


def _show(scored: "Scored", console: "Console", *, with_classes: bool) -> None:
    """Print the accuracy; the classes on request only, as there may be a thousand."""
    from edgemeter.agent.base.console import Table
    from edgemeter.agent.base.metrics import metric_name

    accuracy = scored.accuracy
    console.print(f"{scored.images:,} images{'' if accuracy else ': no accuracy'}")
    if accuracy is None:
        return
    detail, counts, name = (
        accuracy.detail,
        accuracy.per_class_objects,
        metric_name(_name(accuracy.metric)),
    )
    table = Table("", "", "95%", right=("", "95%"))
    table.add_row(name, _figure(accuracy.value), _bounds(accuracy.low, accuracy.high))
    # Print the bounds of a figure next to it, not below.
    for key in (key for key in detail if not key.endswith(("_low", "_high"))):
        table.add_row(
            metric_name(key),
            _figure(detail[key]),
            _bounds(detail.get(f"{key}_low"), detail.get(f"{key}_high")),
        )
    console.print(table)
    reasons = {
        f"no bounds of {name}": accuracy.interval_reason if accuracy.low is None else None,
        "compared by": accuracy.normalisation,
    }
    for heading in (heading for heading in reasons if reasons[heading]):
        console.print(f"{heading}: {reasons[heading]}")
    if accuracy.per_class and with_classes:
        classes = Table("class", name, *(["objects"] if counts else []), right=(name, "objects"))
        for label, value in accuracy.per_class.items():
            classes.add_row(label, _figure(value), *([f"{counts[label]:,}"] if counts else []))
        console.print(classes)


def _figure(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.4f}"


def _bounds(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{low:.4f} .. {high:.4f}"
