"""The command `edgemeter rules`: by which rules a run is judged, and what may be compared with what."""

import click

from edgemeter.collector.compare import comparability


@click.command()
@click.option("--json", "as_json", is_flag=True, help='Print {"rules": [...]}, with --comparing {"comparing": [...], "kinds": [...]}.')
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the page docs/rules.md; with --comparing the tables of that.")
@click.option("--comparing", is_flag=True, help="Only what may be compared with what.")
@click.pass_context
def rules(context: click.Context, *, as_json: bool, as_markdown: bool, comparing: bool) -> None:
    """List the rules of the verdict, and what has to be alike for two cases to be compared.

    Example: edgemeter rules --comparing
    """
    from importlib import import_module

    if as_json and as_markdown:
        message = "give either --json or --markdown"
        raise click.UsageError(message)
    if not comparing:
        # By name: the collector imports nothing of the agent that measures.
        context.invoke(import_module("edgemeter.agent.rules_cli").rules, as_json=as_json, as_markdown=as_markdown)
        if as_json or as_markdown:
            return
    if as_json:
        click.echo(comparability.as_json())
    elif as_markdown:
        click.echo(comparability.markdown(), nl=False)
    else:
        _show()


def _show() -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    for title, rows in (("what has to be alike", comparability.rules()), ("which figures stand beside which", comparability.kinds())):
        names = list(rows[0])
        table = Table(*names, title=title, title_justify="left")
        for row in rows:
            table.add_row(*row.values())
        console.print(table)
