"""What came of all devices: a table for people, with the remedies below it, and JSON for machines."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from edgemeter.provisioning.apply.outcome import Outcome

STYLE = {"ok": "green", "changed": "cyan", "failed": "red"}
ABSENT = "-"


def table(outcomes: Sequence[Outcome], *, is_dry: bool) -> Table:
    """Return a row per device: what came of it, which steps changed something, and what was found."""
    shown = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("device", "result", "would change" if is_dry else "changed", "skipped", "found"):
        shown.add_column(heading, overflow="fold", no_wrap=heading in {"device", "result"})
    for outcome in outcomes:
        changed, skipped = (
            ", ".join(step.step for step in outcome.steps if step.state == state) or ABSENT for state in ("changed", "skipped")
        )
        result = Text("would change" if is_dry and outcome.state == "changed" else outcome.state, style=STYLE[outcome.state])
        shown.add_row(Text(outcome.device), result, *map(Text, (changed, skipped, outcome.found or ABSENT)))
    return shown


def print_table(outcomes: Sequence[Outcome], *, is_dry: bool) -> None:
    """Print the table, and below it what to do about those that failed; where nobody looks, no row is folded."""
    console = Console()
    (console if console.is_terminal else Console(width=300)).print(table(outcomes, is_dry=is_dry))
    for outcome in outcomes:
        if outcome.remedy is not None:
            console.print(f"{outcome.device}: {outcome.remedy}", markup=False, highlight=False, soft_wrap=True)


def as_json(outcomes: Sequence[Outcome], *, is_dry: bool) -> str:
    """Return all of it."""
    return json.dumps({"dry_run": is_dry, "devices": [{**asdict(outcome), "result": outcome.state} for outcome in outcomes]}, indent=2)
