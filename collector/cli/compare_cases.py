"""The cases of a store compared with a reference, as `edgemeter compare --reference` shows them."""

from pathlib import Path

import click

from edgemeter.agent.base.progress import progress_bar
from edgemeter.agent.base.tables import Format, console_for
from edgemeter.collector.compare import columns
from edgemeter.collector.compare import comparison as comparing
from edgemeter.collector.compare.judgement import SmallestDifferences
from edgemeter.collector.compare.summary import DaysCounted
from edgemeter.collector.index.rollup import compare_rolled_up, rolled_up
from edgemeter.collector.index.stored_summaries import read_rests
from edgemeter.collector.runs.store import RunStore
from edgemeter.collector.show.compare_table import shortened, show_answers, show_comparison, show_verdicts


def show_cases(store: RunStore, reference: str, limits: SmallestDifferences, days: DaysCounted, form: Format, html: Path | None) -> None:
    """Show the cases of a store compared with those of `reference`, and write the page to `html`."""
    with progress_bar() as progress:
        # A table shows some cases, everything else all of them.
        ready = rolled_up(store, progress, days=days, in_full=form in ("json", "csv"))
    if ready is None:
        comparison = comparing.compare(store.contents(), reference, limits, days)
    else:
        comparison = compare_rolled_up(ready, reference, limits)
    if html is not None:
        from edgemeter.collector.cli.report import write_page
        from edgemeter.collector.web.one_file import FileChoice
        from edgemeter.collector.web.queries import CaseFilter

        write_page(store, html, FileChoice(CaseFilter(level=days), baseline=reference, matters=limits))
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
            "see them all with --format csv, --format json, --output or `edgemeter collector web`",
            err=True,
        )
