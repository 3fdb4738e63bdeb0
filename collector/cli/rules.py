"""The command `edgemeter config rules`: the rules of the verdict, and what may be compared with what."""

from importlib import import_module
from typing import Any

import click

from edgemeter.collector.compare.pairing import comparability_json, comparability_kinds, comparability_markdown, comparability_rules


@click.command()
@click.option("--json", "as_json", is_flag=True, help='Print {"rules": [...]}, with --comparing {"comparing": [...], "kinds": [...]}.')
@click.option(
    "--markdown", "as_markdown", is_flag=True, help="Print the page docs/reference/rules.md; with --comparing the tables of that."
)
@click.option("--comparing", is_flag=True, help="Show only what may be compared with what.")
def rules(*, as_json: bool, as_markdown: bool, comparing: bool) -> None:
    """List the rules of the verdict (what each requires, and the verdict of a run that violates it), and what must match to be compared.

    Example: edgemeter config rules --comparing
    """
    if as_json and as_markdown:
        raise click.UsageError("give either --json or --markdown")
    # By name: the collector imports nothing of the agent that measures.
    judge = import_module("edgemeter.agent.verdict.judge")
    if as_json:
        click.echo(comparability_json() if comparing else judge.rules_json(judge.RULES))
    elif as_markdown:
        click.echo(comparability_markdown() if comparing else judge.rules_markdown(judge.RULES), nl=False)
    else:
        _show(None if comparing else judge.rule_rows(judge.RULES))


def _show(verdict_rules: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if verdict_rules is not None:
        table = Table("rule", "violated, a run is", "requirement")
        for row in verdict_rules:
            table.add_row(row.name, row.state, row.requirement)
        console.print(table)
    for title, rows in (("what must match", comparability_rules()), ("which figures are compared with which", comparability_kinds())):
        table = Table(*rows[0], title=title, title_justify="left")
        for row in rows:
            table.add_row(*row.values())
        console.print(table)
