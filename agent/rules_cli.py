"""The command `edgemeter rules`: by which rules a run is called valid, suspect or invalid."""

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help='Print {"rules": [...]}.')
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the page docs/rules.md.")
def rules(*, as_json: bool, as_markdown: bool) -> None:
    """List the rules of the verdict: what each asks, and what breaking it makes of a run.

    Example: edgemeter rules
    """
    from edgemeter.agent.engine.verdict import judge as verdict
    from edgemeter.agent.engine.verdict import rule_table

    if as_json and as_markdown:
        message = "give either --json or --markdown"
        raise click.UsageError(message)
    if as_json:
        click.echo(rule_table.as_json(verdict.RULES))
    elif as_markdown:
        click.echo(rule_table.markdown(verdict.RULES), nl=False)
    else:
        from rich.console import Console
        from rich.table import Table

        table = Table("rule", "broken, a run is", "it asks that")
        for row in rule_table.rows(verdict.RULES):
            table.add_row(row.name, row.broken_is, row.asks)
        Console().print(table)
