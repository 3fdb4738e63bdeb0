"""The command `edgemeter config rules`: the rules of the verdict, and what may be compared with what."""

import click

from edgemeter.agent.base.options import format_option
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.agent.base.terminal import entry_table
from edgemeter.agent.verdict import judge
from edgemeter.collector.compare.pairing import comparability_kinds, comparability_markdown, comparability_rules


@click.command()
@format_option('Print {"rules": [...]}, with --comparing {"comparing": [...], "kinds": [...]}; Markdown is a whole page')
@click.option("--comparing", is_flag=True, help="Show only what may be compared with what.")
def rules(*, form: Format | None, comparing: bool) -> None:
    """List the rules of the verdict (what each requires, and the verdict of a run that violates it), and what must match to be compared.

    Example: edgemeter config rules --comparing
    """
    if form == "markdown":
        click.echo(comparability_markdown() if comparing else judge.rules_markdown(judge.RULES), nl=False)
    elif not print_data(
        form, {"comparing": comparability_rules(), "kinds": comparability_kinds()} if comparing else judge.rules_json(judge.RULES)
    ):
        console = console_for(form)
        if not comparing:
            verdict_rules = [(row.name, row.state, row.requirement, row.remedy) for row in judge.rule_rows(judge.RULES)]
            console.print(entry_table("", ("rule", "violated, a run is", "requirement", "what to do"), verdict_rules))
        for title, rows in (("what must match", comparability_rules()), ("which figures are compared with which", comparability_kinds())):
            console.print(entry_table(title, tuple(rows[0]), [tuple(row.values()) for row in rows]))
