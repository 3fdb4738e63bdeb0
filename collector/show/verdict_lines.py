"""The verdicts of a comparison in words, below the table: what each case is against its reference, and what is nearest to what has none."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from edgemeter.collector.compare.comparison import Comparison, Row
from edgemeter.collector.compare.naming import names_of
from edgemeter.collector.show import figures

NEAREST_SHOWN = 5


def show(comparison: Comparison, console: Console) -> None:
    """Print a line for each judgement of each case, and the nearest comparable cases."""
    rows = [row for row in comparison.rows if not row.is_reference and lines(row)]
    if rows:
        _print(console, "Verdicts (suspect runs marked ?):", "bold")
    names = names_of(key for row in comparison.rows for key in (row.case.key, row.reference.key))
    for row in rows:
        doubt = " ?" if row.case.suspect or row.reference.suspect else ""
        _print(console, f"  {names[row.case.key]}{doubt} against {names[row.reference.key]}")
        for line in lines(row):
            _print(console, f"    {line}")
    near = comparison.nearest
    if near:
        _print(console, "What could be compared if it were measured alike:", "bold")
    for one in near[:NEAREST_SHOWN]:
        _print(console, f"  {one.words()}")
    if len(near) > NEAREST_SHOWN:
        _print(console, f"  and {len(near) - NEAREST_SHOWN} more: --view nearest --json lists all")


def lines(row: Row) -> Sequence[str]:
    """Return the judgements of a row in words, latency first; of an open or offline load throughput is what was asked for."""
    said = row.judgements
    found = {"latency": said.latency, "throughput": said.throughput, "energy": said.energy, "accuracy": said.accuracy}
    is_offline = row.case.key.scenario == "offline"
    shown = [name for name, judged in found.items() if judged and (name != "throughput" or is_offline)]
    return [f"{name}: {judged.words}" for name in shown if (judged := found[name])]


def _print(console: Console, text: str, style: str = "") -> None:
    console.print(Text(figures.printable(text), style), soft_wrap=True)
