"""The cases of a store compared with a reference, as `edgemeter compare --reference` and its views show them."""

import time
from pathlib import Path

import click

from edgemeter.agent.base.documents import json_document
from edgemeter.agent.base.progress import progress_bar
from edgemeter.agent.base.tables import Format, console_for
from edgemeter.agent.base.terminal import print_text
from edgemeter.collector.compare import columns, views
from edgemeter.collector.compare import comparison as comparing
from edgemeter.collector.compare.comparison import Comparison
from edgemeter.collector.compare.judgement import SmallestDifferences
from edgemeter.collector.compare.matrix import Across, coverage, matrix
from edgemeter.collector.compare.summary import DaysCounted
from edgemeter.collector.compare.trade_off import Cost, trade_offs
from edgemeter.collector.index.rollup import RolledUp, compare_rolled_up, rolled_up
from edgemeter.collector.index.stored_summaries import read_rests
from edgemeter.collector.runs.store import RunStore, StoreContents
from edgemeter.collector.show import matrix_table
from edgemeter.collector.show.compare_table import shortened, show_answers, show_comparison, show_verdicts


def show_cases(
    store: RunStore,
    reference: str | None,
    view: str,
    *,
    figure: str,
    across: Across,
    stale_days: int,
    limits: SmallestDifferences,
    days: DaysCounted,
    form: Format | None,
    html: Path | None,
) -> None:
    """Show the cases of a store in a view; with a `reference`, of the views `table` and `nearest`, also as a page at `html`."""
    with progress_bar() as progress:
        # A table shows some cases, everything else all of them.
        ready = rolled_up(store, progress, days=days, in_full=view not in ("table", "nearest") or form in ("json", "csv"))
    if view not in ("table", "nearest") or reference is None:
        _show_view(store.contents() if ready is None else ready, view, figure, across, stale_days, days, form)
        return
    if ready is None:
        comparison = comparing.compare(store.contents(), reference, limits, days)
    else:
        comparison = compare_rolled_up(ready, reference, limits)
    if html is not None:
        from edgemeter.collector.cli.report import write_page
        from edgemeter.collector.web.one_file import FileChoice
        from edgemeter.collector.web.queries import CaseFilter

        write_page(store, html, FileChoice(CaseFilter(level=days), baseline=reference, matters=limits))
    _show_nearest(comparison, form) if view == "nearest" else _show(comparison, form)


def _show(comparison: Comparison, form: Format | None) -> None:
    if form in ("json", "csv"):
        click.echo(columns.to_json(comparison) if form == "json" else columns.to_csv(comparison.rows), nl=form == "json")
        return
    console = console_for(form)
    shortest = shortened(comparison)
    read_rests(row.case for row in shortest.rows)
    show_comparison(shortest, console)
    show_verdicts(shortest, console)
    show_answers(comparison, console)
    hidden = len(comparison.rows) - len(shortest.rows)
    if hidden:
        click.echo(
            f"{hidden} more cases are not shown: those above differ most from their reference; "
            "see them all with --format csv, --json, --output or `edgemeter collector web`",
            err=True,
        )


def _show_nearest(comparison: Comparison, form: Format | None) -> None:
    nearest = comparison.nearest
    if form == "json":
        click.echo(json_document({"nearest": nearest}))
    elif form == "csv":
        rows = [
            {"case": case.case, "reference": case.reference, "differs_in": "; ".join(d.what for d in case.differs_in)} for case in nearest
        ]
        click.echo(views.to_csv(rows), nl=False)
    else:
        console = console_for(form)
        for case in nearest:
            print_text(console, case.words())
        click.echo(f"{len(nearest)} unmatched cases" if nearest else "every case has a match", err=True)


def _show_view(
    contents: StoreContents | RolledUp, view: str, figure: str, across: Across, stale_days: int, days: DaysCounted, form: Format | None
) -> None:
    if isinstance(contents, StoreContents):
        gathered, unreadable = views.gather(contents, days), contents.left_out
    else:
        gathered, unreadable = views.GatheredCases(contents.summaries, contents.unusable()), contents.unreadable
    if view == "pareto":
        _show_pareto(gathered, figure, form)
        return
    table = matrix(gathered.summaries, figure, time.time_ns(), across, stale_days, gathered.refused)
    covered = coverage(table)
    rows = [row for row in views.matrix_rows(table) if view == "matrix" or row["state"] != "measured"]
    if form == "json":
        click.echo(json_document({view: rows, "cells": covered.cells, "states": covered.states, "left_out": unreadable}))
    elif form == "csv":
        click.echo(views.to_csv(rows), nl=False)
    elif view == "matrix":
        matrix_table.show_matrix(table, console_for(form))
    else:
        matrix_table.show_coverage(covered, console_for(form))


def _show_pareto(gathered: views.GatheredCases, figure: str, form: Format | None) -> None:
    if figure not in ("latency", "energy"):
        raise click.UsageError(f"--view pareto needs --figure latency or energy, not {figure}")
    cost: Cost = "energy" if figure == "energy" else "latency"
    places, absent = trade_offs(gathered.summaries, cost)
    rows = views.trade_off_rows(places, cost)
    if form == "json":
        click.echo(json_document({"pareto": rows, "absent": [{**views.case_row(entry.case), "reason": entry.reason} for entry in absent]}))
    elif form == "csv":
        click.echo(views.to_csv(rows), nl=False)
    else:
        matrix_table.show_trade_offs(places, absent, cost, console_for(form))
