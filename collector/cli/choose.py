"""The part of `edgemeter compare` behind --choose: choose one case of a store by limits."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from edgemeter.agent.base.errors import FAILED
from edgemeter.agent.base.tables import Format, console_for
from edgemeter.collector.choose import choice_document
from edgemeter.collector.choose.choice import choose
from edgemeter.collector.choose.limits import parse_limits
from edgemeter.collector.cli.stores import chosen_stores, stored_summaries
from edgemeter.collector.compare.comparison import reference_cases
from edgemeter.collector.compare.summary import DaysCounted


def show_choice(
    limits_text: str,
    by: str | None,
    reference: str | None,
    stores: Sequence[str],
    days: DaysCounted,
    form: Format,
    html: Path | None,
) -> None:
    """Print the choice among the cases of the stores; exit 1 where no case meets the limits with certainty."""
    limits = parse_limits(limits_text)
    summaries = stored_summaries(stores, days)
    references = None
    if reference is not None:
        belongs = reference_cases((case.key.device for case in summaries), (case.key.role for case in summaries), reference)
        references = [case for case in summaries if belongs(case.key)]
    choice = choose(summaries, limits, by, references)
    if html is not None:
        from edgemeter.collector.cli.report import write_page
        from edgemeter.collector.runs.store import open_store
        from edgemeter.collector.web.decide import fields_of
        from edgemeter.collector.web.one_file import FileChoice
        from edgemeter.collector.web.queries import CaseFilter
        from edgemeter.collector.web.view import ViewRequest

        store = open_store(*chosen_stores(stores))
        write_page(store, html, FileChoice(CaseFilter(level=days), first=ViewRequest("decide", fields_of(limits, by, reference))))
    if form == "json":
        click.echo(choice_document.to_json(choice))
    elif form == "csv":
        click.echo(choice_document.to_csv(choice), nl=False)
    else:
        choice_document.show(choice, console_for(form))
    if choice.pick is None:
        sys.exit(FAILED)
