"""`edgemeter compare BASELINE NEW`: a change for the place where code is reviewed."""

import sys
from collections.abc import Sequence

import click

from edgemeter.collector.compare.judging import Matters


def review(sides: Sequence[str], matters: Matters, form: str | None, fail_on: str | None, *, has_more: bool) -> None:
    """Print the review of two sides; exit 1 where a limit is broken. `has_more` is whether options were given that have no place here."""
    if len(sides) != 2:
        message = "a review takes two sides: edgemeter compare BASELINE NEW --markdown --fail-on slower:3%"
        raise click.UsageError(message)
    if has_more:
        message = "BASELINE and NEW take --markdown, --json, --fail-on and --matters; choose runs by selectors: 'ledger.sqlite?device=pi-1'"
        raise click.UsageError(message)
    from edgemeter.collector.review import document, gate, markdown
    from edgemeter.collector.review import review as reviewing
    from edgemeter.collector.review.sides import read
    from edgemeter.collector.show import figures

    limits = () if fail_on is None else gate.parse(fail_on)
    baseline, new = sides
    found = reviewing.review((baseline, read(baseline)), (new, read(new)), matters)
    findings = gate.judge(found, limits)
    if form == "markdown":
        click.echo(markdown.to_markdown(found, findings), nl=False)
    elif form == "json":
        click.echo(document.to_json(found, findings))
    else:
        for line in document.lines(found, findings):
            click.echo(figures.printable(line))
    if gate.is_broken(findings):
        sys.exit(1)
