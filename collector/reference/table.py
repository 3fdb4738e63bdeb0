"""References on a terminal: three blocks that never mix, the official results with their footnotes."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from edgemeter.agent.base import figures
from edgemeter.agent.base.terminal import plain_table, print_notes, print_text
from edgemeter.agent.contract.figures import in_view
from edgemeter.collector.reference.imported import ReferenceListing, ReferenceRow
from edgemeter.collector.reference.mlperf import APART
from edgemeter.collector.show.wording import Notes

MEASURED = (
    "device", "model", "precision", "runtime", "scenario", "runs", *(entry.column for entry in in_view("references")),
    "energy_scope", "energy_provenance",
)  # fmt: skip
IMPORTED = (
    "id", "suite", "division", "submitter", "system", "model", "scenario", "value", "measure", "accuracy", "energy_mj", "energy_per",
    "accelerator", "accelerators", "is_inferred", "notes",
)  # fmt: skip
# On a narrow terminal these go, in this order, and a text of more characters is folded.
SPARED = (
    "is_inferred", "submitter", "accelerator", "energy_scope", "energy_provenance", "division", "suite", "accuracy", "accelerators",
    "backend", "conditions", "notes",
)  # fmt: skip
FOLDED = 24
PUBLISHED = ("id", "model", "device", "metric", "value", "unit", "runtime", "precision", "conditions", "key")


def show(references: ReferenceListing, console: Console, row_limit: int, kind: str | None = None) -> None:
    """Print the three blocks, or that of one `kind`, of each the first `row_limit` rows."""
    if kind in (None, "measured"):
        title = "Measured by the same agent in the role reference: ranked together with devices"
        _block(console, title, references.measured, MEASURED, row_limit)
    if references.imported:
        notes = Notes()
        cited = [{**row, "id": f"{row['id']} [{notes.cite(str(row['footnote']))}]"} for row in references.imported[:row_limit]]
        title = "MLPerf\N{TRADE MARK SIGN} Inference, official results, not ranked"
        _block(console, title, cited, IMPORTED, row_limit, len(references.imported))
        print_text(console, APART, "dim")
        print_notes(console, notes.texts)
    if references.published:
        _block(console, "Published elsewhere, not ranked, excluded from statistics", references.published, PUBLISHED, row_limit)


def _block(
    console: Console, title: str, rows: Sequence[ReferenceRow], columns: Sequence[str], row_limit: int, total: int | None = None
) -> None:
    print_text(console, title, "bold")
    if not rows:
        print_text(console, "  none")
        return
    present = [name for name in columns if any(row.get(name) not in (None, "", {}) for row in rows)]
    fitting = _fitting(present, rows[:row_limit], console.width)
    unfit, present = len(present) - len(fitting), fitting
    table = plain_table()
    for name in present:
        is_number = all(isinstance(row.get(name), int | float | None) and not isinstance(row.get(name), bool) for row in rows)
        table.add_column(Text(name.replace("_", " ").replace(" mj", " mJ")), justify="right" if is_number else "left", overflow="fold")
    for row in rows[:row_limit]:
        table.add_row(*(Text(_cell(row.get(name))) for name in present))
    console.print(table, crop=False)
    if unfit:
        print_text(console, f"  {figures.count(unfit, 'column')} do not fit: widen the terminal, or see --json", "dim")
    hidden = (total or len(rows)) - min(len(rows), row_limit)
    if hidden:
        print_text(console, f"  and {hidden} more: filter with --model or --device, or see --json")


def _fitting(names: Sequence[str], rows: Sequence[ReferenceRow], width: int) -> list[str]:
    """Return the columns that have room, each as wide as its text up to where it folds; what matters least goes first."""
    wide = {name: min(FOLDED, max([len(name), *(len(_cell(row.get(name))) for row in rows)])) + 1 for name in names}
    fitting = list(names)
    for name in SPARED:
        if sum(wide[column] for column in fitting) > width and name in fitting:
            fitting.remove(name)
    return fitting


def _cell(value: object) -> str:
    if value is None:
        return figures.ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return figures.significant(value, 4)
    if isinstance(value, dict):
        return figures.printable(", ".join(f"{name} {number:g}" for name, number in value.items()))
    return figures.printable(str(value))
