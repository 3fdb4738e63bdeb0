"""The part of `edgemeter compare` behind BASELINE and NEW: review a change by the runs before it and after it."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import click

from edgemeter.agent.base import figures
from edgemeter.agent.base.errors import FAILED, ConfigError
from edgemeter.agent.base.tables import Format, console_for
from edgemeter.agent.base.terminal import fitted_table, print_lines, print_text
from edgemeter.collector.choose import choice_document
from edgemeter.collector.choose.choice import Choice, choose
from edgemeter.collector.choose.limits import parse_limits
from edgemeter.collector.compare.judgement import SmallestDifferences
from edgemeter.collector.compare.summary import DaysCounted
from edgemeter.collector.review import document, gate
from edgemeter.collector.review import review as reviewing
from edgemeter.collector.review.review import Review
from edgemeter.collector.runs import selection


@dataclass(frozen=True, slots=True)
class ReviewRequest:
    """The options of a review: both sides, the limits of `--fail-on` and `--choose`, and where the page of the runs is."""

    sides: Sequence[str]
    matters: SmallestDifferences
    fail_on: str | None
    days: DaysCounted
    limits_text: str | None = None
    by: str | None = None
    page_url: str | None = None


def review_change(request: ReviewRequest, form: Format, *, has_more: bool) -> None:
    """Print the review of two sides; exit 1 where the gate stays closed, or nothing is compared. `has_more`: options of other modes."""
    if len(request.sides) != 2:
        raise click.UsageError(
            f"give two sides to compare, not {len(request.sides)} (each a run's id, a device, a file of runs, or '?model=NAME'): "
            "edgemeter compare BASELINE NEW --fail-on slower:3%"
        )
    if has_more:
        raise click.UsageError(
            "BASELINE and NEW take --format table, json or markdown, --fail-on, --choose, --choose-by, --page-url, "
            "--matters and --all-days; select runs as in 'ledger.sqlite?device=pi-1'"
        )
    limits = () if request.fail_on is None else gate.parse(request.fail_on)
    baseline, new = request.sides
    page = document.page_address(request.page_url)
    if form == "markdown" and (why := _why_no_baseline(baseline)):
        click.echo(document.without_baseline(request.sides, why, reviewing.read_side(new), limits, page), nl=False)
        sys.exit(FAILED)
    contents = reviewing.read_sides(baseline, new)
    review = reviewing.review((baseline, contents[0]), (new, contents[1]), request.matters, request.days)
    findings = gate.judge(review, limits)
    choice = _choice(request, review)
    if form == "markdown":
        click.echo(document.to_markdown(review, findings, page, choice.sentence if choice else ""), nl=False)
    elif form == "json":
        click.echo(document.to_json(review, findings, choice_document.choice_fields(choice) if choice else None))
    else:
        _show(review, findings, choice, form)
    if gate.state_of(findings) != "open" or not (review.pairs or review.choice):
        sys.exit(FAILED)


def _why_no_baseline(baseline: str) -> str:
    """Return why there is nothing to compare with; empty where there is. Raises ConfigError if the text is no selection."""
    selection.parse_selection(baseline)
    try:
        reviewing.read_side(baseline)
    except ConfigError as error:
        return str(error)
    return ""


def _choice(request: ReviewRequest, review: Review) -> Choice | None:
    """Return the choice among the cases of the new side, and those of the baseline that it does not have."""
    if request.limits_text is None:
        return None
    return choose(review.candidates, parse_limits(request.limits_text), request.by)


def _show(review: Review, findings: Sequence[gate.GateFinding], decided: Choice | None, form: Format) -> None:
    console = console_for(form)
    if decided:
        choice_document.show(decided, console)
    if choice := review.choice:
        print_text(console, f"{choice.sentence}.", "bold")
        console.print(fitted_table(document.choice_columns(choice), console.width))
        print_lines(console, document.choice_notes(choice))
    for line in document.review_lines(review, findings):
        click.echo(figures.printable(line))
