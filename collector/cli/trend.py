"""The commands `edgemeter trend` for changes over time, `units` and `annotate`.

`alerts` is in its own file.
"""

import gc
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click
import msgspec

from edgemeter.agent.base.cli.command_group import CommandGroup, Sections
from edgemeter.agent.base.cli.notes import progress_bar
from edgemeter.agent.base.cli.options import format_option
from edgemeter.agent.base.cli.tables import Format, console_for, print_data
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.base.number_text import count, printable
from edgemeter.agent.contract.series import SeriesKey, series_of
from edgemeter.collector.cli.stores import (
    FigureParam,
    chosen_stores,
    day_number,
    existing_store,
    model_called,
    only_options,
    store_option,
    warn_of_left_out,
)
from edgemeter.collector.compare.odd_boards import FEWEST, BoardType, board_types
from edgemeter.collector.ledgers.place import ledger_place
from edgemeter.collector.runs.store import open_store
from edgemeter.collector.trend import watch
from edgemeter.collector.trend.finding import iso
from edgemeter.collector.trend.history import History
from edgemeter.collector.trend.metrics import DEFAULT, METRICS
from edgemeter.collector.trend.trend_list import show_trends
from edgemeter.collector.trend.trend_text import (
    amount_text,
    annotations_table,
    points_csv,
    trends_document,
)
from edgemeter.collector.trend.watch_file import (
    Annotation,
    add_annotation,
    annotations_of,
    open_watch,
    read_annotations,
    remove_annotation,
)

_FOLLOWED = FigureParam(metric.figure for metric in METRICS.values())


def chosen_metrics(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> tuple[str, ...]:
    """Return the names of metrics in an option, by default the usual ones."""
    if value is None:
        return DEFAULT
    return (
        tuple(METRICS)
        if value == "all"
        else tuple(_FOLLOWED.convert(part, param, ctx) for part in value.split(","))
    )


def _history_of(
    where: Sequence[str], selection: watch.SeriesSelection
) -> tuple[History, list[SeriesKey]]:
    """Return a history, and the selected series; for one device, the runs of others are not read.

    Raises ConfigError without any.
    """
    history = History(open_store(*where), selection.device)
    if not any(map(selection.takes, history.series())):
        # Only all series together have the list of known names.
        history = History(open_store(*where))
    return history, watch.keys_of(history, selection)


_metrics_option = click.option(
    "--figure",
    "metrics",
    callback=chosen_metrics,
    metavar="NAME[,NAME]",
    help=f"{', '.join(metric.figure.title for metric in METRICS.values())}, or all. "
    f"Default: {', '.join(METRICS[name].figure.title for name in DEFAULT)}.",
)
COMMANDS: Sections = {
    "Commands": {
        "units": (
            "edgemeter.collector.cli.trend:units",
            "Compare boards of one type and find outliers.",
        ),
        "annotate": (
            "edgemeter.collector.cli.trend:annotate",
            "Mark the start of an expected new level.",
        ),
        "alerts": (
            "edgemeter.collector.cli.alerts:alerts",
            "Evaluate alert rules and notify people.",
        ),
    }
}


@click.group(cls=CommandGroup, sections=COMMANDS, invoke_without_command=True)
@store_option
@_metrics_option
@only_options("fleet", "device", "board", "model", "precision", "runtime")
@click.option("--run", "run_id", metavar="ID", help="Only the series of this run.")
@click.option(
    "--by-type",
    is_flag=True,
    help="Analyse each board type with two or more devices, instead of each device.",
)
@click.option(
    "--until",
    callback=day_number,
    metavar="DAY",
    help="Last day on which results were due. Default: the day of the newest run.",
)
@click.option("--all", "with_quiet", is_flag=True, help="Include series without findings.")
@click.option(
    "--members",
    "with_members",
    is_flag=True,
    help="List the findings of an event instead of the event.",
)
@format_option(
    '{"series": [...], "events": [...]} with every figure of the findings; CSV holds the points, '
    "one row a day"
)
@click.pass_context
def trend(
    context: click.Context,
    /,
    stores: tuple[str, ...],
    metrics: tuple[str, ...],
    run_id: str | None,
    until: int | None,
    form: Format,
    *,
    by_type: bool,
    with_quiet: bool,
    with_members: bool,
    **selected: str | None,
) -> None:
    """Find changes over time on each device and case.

    The list shows size, interval, first day, and what changed on the device that day.

    A change of several devices by the same cause, or of several series of one device, is listed
    once, as an event.

    Example: edgemeter trend --figure energy --device pi-7
    """
    if context.invoked_subcommand is not None:
        return

    # The data of a million runs stays in use until the command ends: garbage collection would take
    # long and find nothing.
    gc.disable()
    context.call_on_close(gc.enable)
    where = chosen_stores(stores)
    if run_id is not None:
        (run,) = open_store(run_id).contents().runs
        series = {
            name: value
            for name, value in msgspec.structs.asdict(series_of(run)).items()
            if name in selected
        }
        selected = {name: value or series[name] for name, value in selected.items()}
    selected["model"] = model_called(where, selected["model"])
    with progress_bar() as progress:
        annotations = annotations_of(where[0])
        history, keys = _history_of(where, watch.SeriesSelection(**selected))
        trends = watch.trends_of(
            history,
            annotations,
            metrics,
            keys,
            by_type=by_type,
            progress=progress,
            processes=len(os.sched_getaffinity(0)),
        )
    newest = history.newest_day()
    if until is not None and until < newest:
        raise click.UsageError(
            f"--until {iso(until)} is before the newest run, of {iso(newest)}: give that "
            "day or a later one"
        )
    last = newest if until is None else until
    if form == "csv":
        click.echo(
            points_csv(
                [
                    (trend.key, trend.metric, watch.points(history, trend.key, trend.metric))
                    for trend in trends
                ]
            ),
            nl=False,
        )
    elif form == "json":
        click.echo(trends_document(trends, last))
    else:
        show_trends(
            trends, last, console_for(form), with_quiet=with_quiet, with_members=with_members
        )
    warn_of_left_out(history.store.left_out())


@click.command(short_help="Annotate a day: an expected new level, or a remark.")
@click.argument("text", required=False)
@store_option
@click.option(
    "--day",
    callback=day_number,
    metavar="DAY",
    help="First day of the new level, such as 2026-11-20. Default: today (UTC).",
)
@only_options("fleet", "device", "model")
@click.option("--figure", "metric", type=_FOLLOWED, help="Only for this figure.")
@click.option("--author", help="Author of the annotation.")
@click.option("--remark", is_flag=True, help="Add a remark only: it starts no new level.")
@click.option("--remove", type=click.IntRange(1), metavar="NUMBER", help="Remove an annotation.")
@format_option('{"annotations": [...]}')
def annotate(
    text: str | None,
    stores: tuple[str, ...],
    remove: int | None,
    *,
    remark: bool,
    form: Format,
    **about: Any,
) -> None:
    """Mark the start of an expected new level.

    With --remark add a remark only; without TEXT list the annotations.

    Example: edgemeter trend annotate --device pi-7 --day 2026-11-02 "new power supply"
    """
    if text is not None and remove is not None:
        raise click.UsageError("give TEXT or --remove NUMBER, not both")
    if text is not None and not text.strip():
        raise click.UsageError("the TEXT is empty: describe what happened on the day")
    where = chosen_stores(stores)
    about["model"] = model_called(where, about["model"])
    with open_watch(ledger_place(existing_store(where[0]))) as file:
        if text is not None:
            # A mistyped name would annotate nothing.
            _history_of(
                where,
                watch.SeriesSelection(
                    fleet=about["fleet"], device=about["device"], model=about["model"]
                ),
            )
            day = about.pop("day")
            entry = Annotation(
                day=time.time_ns() // NS_PER_DAY if day is None else day,
                text=text,
                begins_level=not remark,
                **about,
            )
            click.echo(f"annotation {add_annotation(file, entry)} saved in {file.where}", err=True)
        elif remove is not None:
            if not remove_annotation(file, remove):
                raise ConfigError(
                    f"no annotation {remove} in {file.where!r}: see `edgemeter trend annotate`"
                )
            click.echo(f"annotation {remove} removed", err=True)
        else:
            annotations = read_annotations(file)
            document = {
                "annotations": [
                    asdict(annotation) | {"day": iso(annotation.day)} for annotation in annotations
                ]
            }
            if not print_data(form, document) and annotations:
                console_for(form).print(annotations_table(annotations))


@click.command()
@store_option
@_metrics_option
@only_options("fleet", "board", "model")
@format_option('{"board_types": [...]}')
def units(
    stores: tuple[str, ...],
    metrics: tuple[str, ...],
    fleet: str | None,
    board: str | None,
    model: str | None,
    *,
    form: Format,
) -> None:
    """Compare boards of one type and find outliers.

    Example: edgemeter trend units --board "Raspberry Pi 5 Model B Rev 1.0" --figure energy
    """
    where = chosen_stores(stores)
    history = History(open_store(*where))
    keys = watch.keys_of(
        history, watch.SeriesSelection(fleet=fleet, board=board, model=model_called(where, model))
    )
    types = [
        board_type
        for name in metrics
        if METRICS[name].rule.scale != "share"
        for board_type in board_types(history, name, keys)
    ]
    warn_of_left_out(history.store.left_out())
    if not print_data(form, {"board_types": types}):
        console = console_for(form)
        if not types:
            click.echo("edgemeter: no board type has an ok run with this figure", err=True)
        for board_type in types:
            for line in _odd_lines(board_type):
                console.print(
                    printable(
                        f"{board_type.board}, {METRICS[board_type.metric].figure.title}: {line}"
                    )
                )


def _odd_lines(board_type: BoardType) -> list[str]:
    boards = count(board_type.boards, "board")
    if not board_type.odd:
        return [
            f"{boards}, none odd"
            if board_type.boards >= FEWEST
            else f"{boards}, too few to judge (at least {FEWEST})"
        ]
    return [
        f"{odd.device} deviates by {amount_text(board_type.metric, odd.apart)} from {boards} "
        f"over {count(odd.cases, 'case')} "
        f"({odd.score:.1f} standard deviations)"
        for odd in board_type.odd
    ]
