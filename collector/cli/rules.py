"""The command `edgemeter config rules`.

It shows the rules of the verdict, and what may be compared with what.
"""

import click

from edgemeter.agent.base.cli.options import format_option
from edgemeter.agent.base.cli.tables import Format, console_for, print_data
from edgemeter.agent.base.terminal import EntryTable
from edgemeter.agent.verdict.words import rule_rows
from edgemeter.collector.compare.pairing import comparability_rules


@click.command()
@format_option('{"rules": [...], "comparing": [...]}')
def rules(*, form: Format) -> None:
    """List the rules of verdicts and comparisons.

    Example: edgemeter config rules
    """
    verdict_rules, matching = rule_rows(), comparability_rules()
    if print_data(form, {"rules": verdict_rules, "comparing": matching}):
        return
    console = console_for(form)
    console.print(
        EntryTable(
            "rules of the verdict (N is a number of the run, ... what it is about)",
            ("verdict", "rule", "sentence", "what to do"),
            [(row.effect, row.name, row.sentence, row.remedy) for row in verdict_rules],
        )
    )
    console.print(
        EntryTable(
            "what must match in a comparison",
            tuple(matching[0]),
            [tuple(row.values()) for row in matching],
        )
    )
