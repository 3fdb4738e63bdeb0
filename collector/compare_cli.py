"""The command `edgemeter compare`."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgemeter.collector import review_cli
from edgemeter.collector.compare import columns
from edgemeter.collector.compare import comparison as comparing
from edgemeter.collector.compare.comparison import Comparison
from edgemeter.collector.compare.judging import Matters
from edgemeter.collector.store_path import StorePath

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from edgemeter.collector.compare.matrix import Across, Figure
    from edgemeter.collector.compare.store import Contents, LeftOut, Store
    from edgemeter.collector.compare.views import Flat, Gathered
    from edgemeter.collector.digest.digest import Digested


def _ratio(_ctx: click.Context, _param: click.Parameter, value: str) -> float:
    """Return `3%` or `0.03` as 0.03."""
    try:
        ratio = float(value.removesuffix("%")) / (100 if value.endswith("%") else 1)
    except ValueError:
        ratio = -1.0
    if not 0 < ratio < 1:
        message = f"{value!r} is no share: give a percentage (3%) or a ratio (0.03)"
        raise click.BadParameter(message)
    return ratio


@click.command(short_help="Compare devices with a reference, like with like.")
@click.argument("sides", nargs=-1, metavar="[BASELINE NEW]")
@click.option("--reference", metavar="DEVICE|ROLE", help="What the others are compared with: a device, or a role (reference).")
@click.option(
    "--store",
    "stores",
    multiple=True,
    type=StorePath(),
    metavar="FILE|URL",
    envvar="EDGEMETER_STORE",
    help="A ledger, what `edgemeter run --json` printed, or an InfluxDB (http://HOST:8086?bucket=BUCKET, version 1: ?db=DATABASE); "
    "several are read as one. Default: the ledger below $EDGEMETER_HOME.",
)
@click.option("--influx-token-file", type=click.Path(path_type=Path), help="Of an InfluxDB. Or set EDGEMETER_INFLUX_TOKEN.")
@click.option(
    "--view",
    type=click.Choice(["table", "matrix", "pareto", "coverage", "nearest"]),
    default="table",
    help="table: cases beside their reference; matrix: models x devices; pareto: cost against accuracy; coverage: what was never "
    "measured or is stale; nearest: what could be compared if measured alike. Default: table.",
)
@click.option(
    "--figure",
    type=click.Choice(["latency", "throughput", "energy", "accuracy"]),
    default="latency",
    help="Of matrix and coverage; pareto takes latency or energy as the cost. Default: latency.",
)
@click.option("--across", type=click.Choice(["device", "board"]), default="device", help="Columns of the matrix. Default: device.")
@click.option("--stale-days", type=click.IntRange(1), default=30, help="A cell without a newer run is stale. Default: 30.")
@click.option("--matters", default="3%", callback=_ratio, help="The smallest difference that matters, of latency and energy. Default: 3%.")
@click.option("--json", "form", flag_value="json", help="Print rows and what was left out as JSON.")
@click.option("--csv", "form", flag_value="csv", help="Print the rows as CSV, the same columns as in JSON.")
@click.option("--markdown", "form", flag_value="markdown", help="BASELINE NEW: print a comment for a pull or merge request.")
@click.option(
    "--fail-on",
    metavar="LIMITS",
    help="BASELINE NEW: exit 1 where it is worse by more: slower:3%,energy:5%,memory:10%,ap:0.5 (ap in points of 100).",
)
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Also write a report: one page that needs nothing else.")
def compare(
    *,
    sides: tuple[str, ...],
    reference: str | None,
    stores: tuple[str, ...],
    influx_token_file: Path | None,
    view: str,
    figure: "Figure",
    across: "Across",
    stale_days: int,
    matters: float,
    form: str | None,
    fail_on: str | None,
    html: Path | None,
) -> None:
    """Compare every device with a reference, like with like; or the runs of NEW with those of BASELINE (ledger, document, bundle, folder).

    Example: edgemeter compare --reference server-1 --html report.html
    """
    if sides or fail_on is not None or form == "markdown":
        has_more = bool(reference or stores or html) or view != "table" or form == "csv"
        review_cli.review(sides, Matters(ratio=matters), form, fail_on, has_more=has_more)
        return
    from edgemeter.agent.config import home
    from edgemeter.collector.compare.store import open_store

    if view in ("table", "nearest") and reference is None:
        message = f"Missing option '--reference': the view {view} needs what the others are compared with."
        raise click.UsageError(message)
    if html is not None and view != "table":
        message = f"--html writes the report of the view table, not {view}"
        raise click.UsageError(message)
    where = stores or (str(home() / "ledger.sqlite"),)
    store = open_store(*where, influx_token_file=influx_token_file)
    ready = _digested(store) if html is None else None
    if view not in ("table", "nearest") or reference is None:
        _show_view(store.contents() if ready is None else ready, view, figure, across, stale_days, form)
        return
    found = _compared(store, ready, reference, Matters(ratio=matters), with_samples=html is not None)
    if html is not None:
        _write_report(found, html, f"edgemeter compare --reference {reference} " + " ".join(f"--store {Path(one).name}" for one in where))
    if view == "nearest":
        _show_nearest(found, form)
    elif form == "json":
        click.echo(as_json(found))
    elif form == "csv":
        click.echo(columns.to_csv(found.rows), nl=False)
    else:
        _show(found)


def _digested(store: "Store") -> "Digested | None":
    from edgemeter.collector.digest import digest, progress_bar

    with progress_bar.shown() as progress:
        return digest.digested(store, progress)


def _compared(store: "Store", ready: "Digested | None", reference: str, matters: Matters, *, with_samples: bool) -> Comparison:
    from edgemeter.collector.digest import digest

    if ready is not None:
        return digest.compare(ready, reference, matters)
    return comparing.compare(store.contents(with_samples=with_samples), reference, matters)


def as_json(comparison: Comparison) -> str:
    """Return `{"rows": [...], "left_out": [...]}` as text."""
    return columns.to_json(comparison).decode()


def _write_report(comparison: Comparison, path: Path, asked: str) -> None:
    from edgemeter.collector.show import report

    report.write(comparison, path, asked)
    click.echo(f"the report: {path.resolve()}", err=True)


def _show(comparison: Comparison) -> None:
    from edgemeter.collector.show import verdict_lines
    from edgemeter.collector.show.compare_table import shortened, show

    console = _console()
    shown = shortened(comparison)
    show(shown, console)
    verdict_lines.show(shown, console)
    hidden = len(comparison.rows) - len(shown.rows)
    if hidden:
        click.echo(f"{hidden} more cases are not shown: --json, --csv, --html and `edgemeter collector web` have all", err=True)


def _console() -> "Console":
    from rich.console import Console

    console = Console()
    # Nobody reads a pipe at 80 columns: what goes on to a file or another program is not cut.
    return console if console.is_terminal else Console(width=400)


def _show_nearest(found: Comparison, form: str | None) -> None:
    from edgemeter.collector.compare import views

    if form == "json":
        click.echo(views.to_json({"nearest": found.nearest}))
    elif form == "csv":
        rows = [
            {"case": one.case, "reference": one.reference, "differs_in": "; ".join(d.what for d in one.differs_in)} for one in found.nearest
        ]
        click.echo(views.to_csv(rows), nl=False)
    else:
        for one in found.nearest:
            click.echo(one.words())
        click.echo(f"{len(found.nearest)} cases that nothing is like", err=True)


def _show_view(contents: "Contents | Digested", view: str, figure: "Figure", across: "Across", stale_days: int, form: str | None) -> None:
    from edgemeter.collector.compare import views

    gathered = _gathered(contents)
    if view == "pareto":
        _show_pareto(gathered, figure, form)
        return
    from edgemeter.collector.compare.coverage import coverage
    from edgemeter.collector.compare.matrix import matrix
    from edgemeter.collector.show import matrix_table

    found = matrix(gathered.summaries, figure, time.time_ns(), across, stale_days, gathered.refused)
    covered = coverage(found)
    rows: list[Flat] = [row for row in views.matrix_rows(found) if view == "matrix" or row["state"] != "measured"]
    if form == "json":
        click.echo(views.to_json({view: rows, "cells": covered.cells, "states": covered.states, "left_out": _unreadable(contents)}))
    elif form == "csv":
        click.echo(views.to_csv(rows), nl=False)
    elif view == "matrix":
        matrix_table.show_matrix(found, _console())
    else:
        matrix_table.show_coverage(covered, _console())


def _gathered(contents: "Contents | Digested") -> "Gathered":
    from edgemeter.collector.compare import views
    from edgemeter.collector.compare.matrix import Refused
    from edgemeter.collector.compare.store import Contents

    if isinstance(contents, Contents):
        return views.gather(contents)
    return views.Gathered(contents.summaries, [Refused(one.run, one.reason) for one in contents.unusable()])


def _unreadable(contents: "Contents | Digested") -> "Sequence[LeftOut]":
    from edgemeter.collector.compare.store import Contents

    return contents.left_out if isinstance(contents, Contents) else contents.unreadable


def _show_pareto(gathered: "Gathered", figure: "Figure", form: str | None) -> None:
    from edgemeter.collector.compare import views
    from edgemeter.collector.compare.trade_off import trade_offs
    from edgemeter.collector.show import matrix_table

    if figure not in ("latency", "energy"):
        message = f"the cost of a trade-off is --figure latency or energy, not {figure}"
        raise click.UsageError(message)
    found, absent = trade_offs(gathered.summaries, figure)
    rows = views.trade_off_rows(found, figure)
    if form == "json":
        click.echo(views.to_json({"pareto": rows, "absent": views.absent_rows(absent)}))
    elif form == "csv":
        click.echo(views.to_csv(rows), nl=False)
    else:
        matrix_table.show_trade_offs(found, absent, figure, _console())
