"""The command `edgemeter models convert`."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from edgemeter.agent.dataset import Dataset
    from edgemeter.models.convert.conversion import Conversion, Outcome, Request
    from edgemeter.models.convert.source import Source
    from edgemeter.models.progress import Tell

_STYLE = {"ok": "green", "degraded": "yellow", "ruined": "bold red"}


@click.command()
@click.argument("source")
@click.option("--to", "goals", multiple=True, required=True, help="onnx-fp16, litert-int8, ... or all; may be given several times.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("converted"), show_default=True, help="Where to write.")
@click.option("--calibration", type=click.Path(path_type=Path), help="Folder of photographs that int8 ranges are measured on.")
@click.option("--calibration-images", type=click.IntRange(1), default=200, show_default=True, help="How many of them at most.")
@click.option("--images", type=click.Path(path_type=Path), help="Folder of photographs to compare on. Default: the calibration's.")
@click.option("--annotations", type=click.Path(path_type=Path), help="Their ground truth: then the accuracy decides.")
@click.option("--limit", type=click.IntRange(1), help="Compare on so many of them, chosen by lot.")
@click.option("--exclude", "keep", multiple=True, metavar="REGEX", help="Keep what has such a name in float; may be given several times.")
@click.option("--json", "as_json", is_flag=True, help='Print {"conversions": [...], "errors": [...], "left_out": [...]}.')
def convert(  # noqa: PLR0917 - click gives them by name
    source: str,
    goals: tuple[str, ...],
    out: Path,
    calibration: Path | None,
    calibration_images: int,
    images: Path | None,
    annotations: Path | None,
    limit: int | None,
    keep: tuple[str, ...],
    *,
    as_json: bool,
) -> None:
    """Convert a model to other formats and precisions, and say of each what it costs in accuracy.

    Example: edgemeter models convert model.pt2 --to onnx-int8 --to litert-int8 --calibration photos/ --images val/ --annotations val.json
    """
    if annotations is not None and images is None:
        message = "--annotations needs --images, the folder of the photographs that they are for"
        raise click.UsageError(message)
    from edgemeter.agent.dataset import open_folder
    from edgemeter.models import progress_bar
    from edgemeter.models.convert import conversion, formats
    from edgemeter.models.convert import source as sources
    from edgemeter.models.convert.calibration import Calibration

    for goal in goals:
        if goal != conversion.ALL:
            formats.find(goal)
    path = sources.find(source)
    with progress_bar.shown() as tell:
        found = sources.load(path)
        with _calibration(found, calibration, calibration_images, goals, tell) as measured:
            pictures = (
                open_folder(images, annotations, subset=limit) if images else _without_images(found, measured if calibration else None)
            )
            asked = conversion.Request(
                source=found,
                goals=goals,
                out=out,
                calibration=Calibration(measured, found.about) if measured is not None and found.about is not None else None,
                pictures=pictures,
                role="validation" if images or found.is_shipped else "calibration",
                keep=keep,
            )
            outcome = conversion.convert(asked, tell)
    _print(outcome, asked, as_json=as_json)


@contextmanager
def _calibration(source: "Source", folder: Path | None, count: int, goals: tuple[str, ...], tell: "Tell") -> Iterator["Dataset | None"]:
    """Yield the calibration pictures: the folder's, or drawn scenes for a model that ships; None where there are none."""
    from edgemeter.agent.dataset import open_folder
    from edgemeter.agent.errors import ConfigError
    from edgemeter.models.convert import formats, shipped

    ways = [formats.way(source.form, goal) or [] for goal in goals if goal in formats.FORMATS]
    is_needed = "all" in goals or any(step.is_calibrated for way in ways for step in way)
    if folder is not None:
        if source.about is None:
            raise ConfigError(source.unknown)
        found = open_folder(folder)
        yield found if len(found.files) <= count else open_folder(folder, subset=count)
    elif source.is_shipped and is_needed:
        with shipped.calibration(tell) as drawn:
            yield drawn
    else:
        yield None


def _without_images(source: "Source", measured: "Dataset | None") -> "Dataset | None":
    from edgemeter.models.convert import shipped

    return shipped.scenes() if source.is_shipped else measured


def _print(outcome: "Outcome", asked: "Request", *, as_json: bool) -> None:
    """Print what came of it; ends the command with status 1 when a conversion failed or is ruined."""
    from edgemeter.models.convert import describe

    ruined = [one for one in outcome.written if one.parity.verdict.state == "ruined"]
    if as_json:
        rows = [describe.row(one, asked) for one in outcome.written]
        errors = [str(error) for error in outcome.errors]
        click.echo(json.dumps({"conversions": rows, "errors": errors, "left_out": outcome.left_out}, indent=2))
    else:
        _print_table(outcome.written, asked)
    for note in _notes(outcome, asked):
        click.echo(note, err=True)
    for one in ruined:
        click.secho(f"RUINED: {one.path.name}: {one.parity.verdict.reason}; {describe.remedy(one)}", err=True, fg="red", bold=True)
    for error in outcome.errors:
        click.echo(f"edgemeter: {' '.join(str(error).split())}", err=True)
    if ruined or outcome.errors:
        sys.exit(1)


def _notes(outcome: "Outcome", asked: "Request") -> list[str]:
    from edgemeter.models.convert import describe

    notes = [f"note: {guess}" for guess in asked.source.guesses]
    if asked.source.about is None:
        notes.append(f"note: compared on noise, outputs only: {asked.source.unknown}")
    elif asked.pictures is None:
        notes.append("note: compared on noise: give --images FOLDER, and --annotations for the accuracy")
    elif asked.pictures.truth is None and asked.pictures.classes is None:
        notes.append("note: no ground truth: what is said is how far both files agree, not how accurate they are (--images, --annotations)")
    if flattering := max((int(one.made.get("calibration_images_also_scored", 0)) for one in outcome.written), default=0):
        notes.append(f"note: {flattering} of the pictures compared on are also calibrated on: int8 looks better on them than it is")
    notes += [f"{one.format.name}: compared was {one.stand_in}" for one in outcome.written if one.stand_in]
    notes += [f"{one.format.name}: {one.made['coverage']}" for one in outcome.written if "coverage" in one.made]
    notes += [
        f"degraded: {one.path.name}: {one.parity.verdict.reason}; {describe.remedy(one)}"
        for one in outcome.written
        if one.parity.verdict.state == "degraded"
    ]
    return [*notes, *(f"left out: {note}" for note in outcome.left_out)]


def _print_table(written: "list[Conversion]", asked: "Request") -> None:
    """Print one row a file."""
    if not written:
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from edgemeter.models.convert import describe

    before = written[0].parity.before
    title = f"{asked.source.path.name}, {asked.source.path.stat().st_size / 1000:.0f} kB"
    title += f", {describe.metric(before)} {before.value:.4f} on {before.images} pictures" if before else ""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    rows = [describe.cells(one) for one in written]
    headings = list(dict.fromkeys(heading for row in rows for heading in row))
    for heading in headings:
        is_name = heading == "file"
        table.add_column(
            heading, justify="left" if is_name else "right", no_wrap=not is_name, overflow="fold", min_width=12 if is_name else None
        )
    table.add_column("verdict", no_wrap=True)
    for one, row in zip(written, rows, strict=True):
        state = one.parity.verdict.state
        word = Text(state.upper() if state == "ruined" else state, style=_STYLE[state])
        table.add_row(*(row.get(heading, "-") for heading in headings), word)
    Console().print(table)
