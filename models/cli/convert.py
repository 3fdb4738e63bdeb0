"""The command `edgemeter models convert`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgemeter.agent.base.cli.notes import note
from edgemeter.agent.base.cli.options import PATH, format_option, trusted_option
from edgemeter.agent.base.cli.tables import Format, console_for, print_data
from edgemeter.agent.base.errors import FAILED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edgemeter.agent.base.console import Console
    from edgemeter.models.convert.conversion_report import Conversion, ConversionRequest


@click.command()
@click.argument("source")
@click.option(
    "--to",
    "goals",
    multiple=True,
    required=True,
    help="Format: onnx-fp16, litert-int8, edgetpu, ... Repeatable.",
)
@click.option(
    "-o",
    "--output",
    "out",
    type=PATH,
    default=Path("converted"),
    show_default=True,
    help="Output folder.",
)
@click.option("--calibration", type=PATH, help="Folder of images to measure int8 ranges on.")
@click.option(
    "--calibration-images",
    metavar="N",
    type=click.IntRange(1),
    default=200,
    help="Calibration images at most. Default: 200.",
)
@click.option(
    "-d",
    "--data",
    "images",
    type=PATH,
    help="Folder of images to compare on. Default: half of the calibration images.",
)
@click.option(
    "-a", "--annotations", type=PATH, help="Ground truth of --data; the accuracy then decides."
)
@click.option(
    "--subset",
    "limit",
    metavar="N",
    type=click.IntRange(1),
    help="Compare on a random subset of N images.",
)
@trusted_option
@format_option('{"conversions": [...], "errors": [...]}')
def convert(
    source: str,
    goals: tuple[str, ...],
    out: Path,
    calibration: Path | None,
    calibration_images: int,
    images: Path | None,
    annotations: Path | None,
    limit: int | None,
    *,
    is_trusted: bool,
    form: Format,
) -> None:
    """Convert a model and report the loss of accuracy.

    Needs the extra convert: pip install 'edgemeter[convert]'.

    Example: edgemeter models convert model.pt2 --to onnx-int8 --to litert-int8 --calibration
    photos/ --data val/ --annotations val.json
    """
    if annotations is not None and images is None:
        raise click.UsageError("--annotations needs --data, the folder of the annotated images")
    from edgemeter.agent.base.cli.notes import progress_bar
    from edgemeter.agent.base.plugins import require_extra
    from edgemeter.agent.contract.model_formats import FORMATS
    from edgemeter.agent.datasets.dataset import open_folder
    from edgemeter.agent.sandbox.run_grant import data_files, model_files
    from edgemeter.models.cli.confined import run_confined
    from edgemeter.models.convert import conversion, formats
    from edgemeter.models.convert import source as sources
    from edgemeter.models.convert.conversion_report import ConversionRequest, report_row
    from edgemeter.models.convert.photo_split import split

    for goal in goals:
        formats.find_format(goal)
    path = sources.find_source(source)
    if FORMATS.get(path.suffix) == "pytorch":
        require_extra("convert", f"converting {source!r} needs PyTorch and its converters", "torch")
    data = (
        *(data_files(calibration, None) if calibration else ()),
        *(data_files(images, annotations) if images else ()),
    )
    run_confined(path, (*model_files(path), *data), out, is_trusted=is_trusted)
    with progress_bar() as report:
        model = sources.load_source(path)
        routes = conversion.routes_to(goals, model)
        is_calibrated = any(step.is_calibrated for route in routes for step in route)
        measured = (
            sources.open_calibration(model, calibration, calibration_images)
            if is_calibrated
            else None
        )
        pictures = (
            open_folder(images, annotations, subset=limit)
            if images
            else sources.shipped_scenes()
            if model.is_shipped
            else None
        )
        request = ConversionRequest(model, routes, out, split(measured, pictures))
        conversions, errors = conversion.convert(request, report)
    rows = [report_row(entry, request) for entry in conversions]
    if (
        not print_data(form, {"conversions": rows, "errors": [str(error) for error in errors]})
        and conversions
    ):
        _print_table(conversions, request, console_for(form))
    for text in _notes(conversions, request):
        note(text)
    for error in errors:
        click.echo(f"edgemeter: {' '.join(str(error).split())}", err=True)
    if errors or any(entry.is_ruined for entry in conversions):
        sys.exit(FAILED)


def _notes(conversions: "Sequence[Conversion]", request: "ConversionRequest") -> "Iterator[str]":
    from edgemeter.models.convert.conversion_report import remedy

    compared, ranges = request.photos.compared, request.photos.ranges
    yield from (f"note: {guess}" for guess in request.source.guesses)
    if request.source.unknown is not None:
        yield f"note: compared on noise, outputs only: {request.source.unknown}"
    elif compared is None:
        yield "note: compared on noise: give --data FOLDER, and --annotations for the accuracy"
    elif not compared.has_truth:
        yield (
            "note: no ground truth: agreement of both files is reported, not accuracy (--data, "
            "--annotations)"
        )
    if ranges is not None and compared is not None:
        yield (
            f"images: {len(ranges.items)} to measure ranges on, {len(compared.items)} to compare on"
        )
    for conversion in conversions:
        name, verdict = conversion.format.name, conversion.parity.verdict
        if conversion.stand_in:
            yield f"{name}: compared was {conversion.stand_in}"
        if "left_on_cpu" in conversion.facts:
            yield (
                f"{name}: {conversion.facts['cpu_operations']} operations run on the CPU: "
                f"{conversion.facts['left_on_cpu']}"
            )
        if conversion.is_ruined:
            yield click.style(
                f"RUINED: {conversion.path.name} is not written: {verdict.reason}; "
                f"{remedy(conversion)}",
                fg="red",
                bold=True,
            )
        elif verdict.state != "ok":
            advice = f"; {remedy(conversion)}" if verdict.state == "degraded" else ""
            yield f"{verdict.state}: {conversion.path.name}: {verdict.reason}{advice}"


def _print_table(
    conversions: "Sequence[Conversion]", request: "ConversionRequest", console: "Console"
) -> None:
    from edgemeter.agent.base.metrics import metric_name
    from edgemeter.agent.base.terminal import TableColumn, fitted_table, print_text, table_width
    from edgemeter.models.convert.conversion_report import report_cells

    before = conversions[0].parity.before
    title = f"{request.source.path.name}, {request.source.path.stat().st_size / 1000:.0f} kB"
    print_text(
        console,
        f"{title}, {metric_name(before.metric)} {before.value:.4f} on {before.images} images"
        if before
        else title,
    )
    rows = [report_cells(conversion) for conversion in conversions]
    columns = [
        TableColumn(
            heading,
            [row.get(heading, "-") for row in rows],
            "left" if heading in {"file", "verdict"} else "right",
        )
        for heading in dict.fromkeys(heading for row in rows for heading in row)
    ]
    console.print(fitted_table(columns, table_width(console)))
