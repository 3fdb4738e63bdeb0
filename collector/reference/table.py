"""References on a terminal: three blocks that never mix, the official results with their footnotes."""

from collections.abc import Sequence

from rich.console import Console

from edgemeter.agent.base import figures
from edgemeter.agent.base.terminal import TableColumn, fitted_table, print_notes, print_text
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
# On a narrow terminal these go, the highest rank first.
SPARED = {
    **dict.fromkeys(("is_inferred", "submitter", "accelerator", "energy_scope", "energy_provenance"), 3),
    **dict.fromkeys(("division", "suite", "accuracy", "accelerators"), 2), "conditions": 1, "notes": 1,
}  # fmt: skip
PUBLISHED = ("id", "verdict", "model", "device", "figure", "value", "unit", "runtime", "precision", "conditions", "key")


def show(references: ReferenceListing, console: Console, row_limit: int, kind: str | None = None) -> None:
    """Print the three blocks, or that of one `kind`, of each the first `row_limit` rows."""
    if kind in (None, "measured"):
        title = "Measured by the same agent in the role reference: ranked together with devices"
        _block(console, title, references.measured, MEASURED, row_limit)
    _mlperf_block(console, "MLPerf\N{TRADE MARK SIGN} Inference, official results, not ranked", references.imported, IMPORTED, row_limit)
    elsewhere = [row for row in references.published if "footnote" not in row]
    if elsewhere:
        _block(console, "Published elsewhere, not ranked, excluded from statistics", elsewhere, PUBLISHED, row_limit)
    single = [row for row in references.published if "footnote" in row]
    _mlperf_block(console, "MLPerf\N{TRADE MARK SIGN}, single published results, not ranked", single, PUBLISHED, row_limit)


def _mlperf_block(console: Console, title: str, rows: Sequence[ReferenceRow], columns: Sequence[str], row_limit: int) -> None:
    """Print results of MLPerf with what MLCommons requires: apart, each with its footnote."""
    if not rows:
        return
    notes = Notes()
    cited = [{**row, "id": f"{row['id']} [{notes.cite(str(row['footnote']))}]"} for row in rows[:row_limit]]
    _block(console, title, cited, columns, row_limit, len(rows))
    print_text(console, APART, "dim")
    print_notes(console, notes.texts)


def _block(
    console: Console, title: str, rows: Sequence[ReferenceRow], columns: Sequence[str], row_limit: int, total: int | None = None
) -> None:
    print_text(console, title, "bold")
    if not rows:
        print_text(console, "  none")
        return
    listed = rows[:row_limit]
    of_texts = {name for name in columns for row in listed if isinstance(row.get(name), str | bool | dict)}
    shown_columns = [
        TableColumn(
            name.replace("_", " ").replace(" mj", " mJ"), [_cell(row.get(name)) for row in listed], "left" if name in of_texts else "right",
            rank=SPARED.get(name, 0), folds=name in of_texts,
        ) for name in columns
    ]  # fmt: skip
    console.print(fitted_table(shown_columns, console.width), crop=False)
    hidden = (total or len(rows)) - min(len(rows), row_limit)
    if hidden:
        print_text(console, f"  and {hidden} more: filter with --model or --device, or see --json")


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
