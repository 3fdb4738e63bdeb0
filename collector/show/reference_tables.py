"""References on a terminal: three blocks that never mix, the official results with their footnotes."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from edgemeter.collector.reference.footnote import APART
from edgemeter.collector.reference.listing import Flat, Listing
from edgemeter.collector.show import figures
from edgemeter.collector.show.notes import Notes

MEASURED = (
    "device",
    "model",
    "precision",
    "runtime",
    "scenario",
    "runs",
    "latency_p50_ms",
    "throughput_per_s",
    "energy_gross_mj",
    "energy_scope",
)
IMPORTED = (
    "id",
    "suite",
    "division",
    "submitter",
    "system",
    "model",
    "scenario",
    "value",
    "measure",
    "accuracy",
    "energy_mj",
    "energy_per",
    "accelerator",
    "accelerators",
    "is_inferred",
    "notes",
)
# On a narrow terminal these go, in this order, and a text of more characters is folded.
SPARED = (
    "is_inferred",
    "submitter",
    "accelerator",
    "energy_scope",
    "division",
    "suite",
    "accuracy",
    "accelerators",
    "backend",
    "conditions",
    "notes",
)
FOLDED = 24
PUBLISHED = ("id", "model", "device", "metric", "value", "unit", "runtime", "precision", "conditions", "key")


def show(found: Listing, console: Console, most: int, kind: str | None = None) -> None:
    """Print the three blocks, or that of one `kind`, of each the first `most` rows."""
    if kind in (None, "measured"):
        _block(console, "Measured by the same agent in the role of a reference: these rank beside devices", found.measured, MEASURED, most)
    if found.imported:
        notes = Notes()
        shown = [{**row, "id": f"{row['id']} [{notes.cite(str(row['footnote']))}]"} for row in found.imported[:most]]
        _block(console, "MLPerf\N{TRADE MARK SIGN} Inference, official results, not ranked", shown, IMPORTED, most, len(found.imported))
        _say(console, APART, "dim")
        for number, text in enumerate(notes.texts, start=1):
            _say(console, f"[{number}] {text}", "dim")
    if found.published:
        _block(console, "Published elsewhere, not ranked, in no statistic", found.published, PUBLISHED, most)


def _block(console: Console, title: str, rows: Sequence[Flat], columns: Sequence[str], most: int, total: int | None = None) -> None:
    _say(console, title, "bold")
    if not rows:
        _say(console, "  none")
        return
    present = [name for name in columns if any(row.get(name) not in (None, "", {}) for row in rows)]
    kept = _fitting(present, rows[:most], console.width)
    unfit, present = len(present) - len(kept), kept
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for name in present:
        is_number = all(isinstance(row.get(name), int | float | None) and not isinstance(row.get(name), bool) for row in rows)
        table.add_column(Text(name.replace("_", " ").replace(" mj", " mJ")), justify="right" if is_number else "left", overflow="fold")
    for row in rows[:most]:
        table.add_row(*(Text(_cell(row.get(name))) for name in present))
    console.print(table, crop=False)
    if unfit:
        _say(console, f"  {figures.count(unfit, 'column')} did not fit: widen the terminal, or see --json", "dim")
    hidden = (total or len(rows)) - min(len(rows), most)
    if hidden:
        _say(console, f"  and {hidden} more: narrow it by --model or --device, or see --json")


def _fitting(names: Sequence[str], rows: Sequence[Flat], width: int) -> list[str]:
    """Return the columns that have room, each as wide as its text up to where it folds; what matters least goes first."""
    wide = {name: min(FOLDED, max([len(name), *(len(_cell(row.get(name))) for row in rows)])) + 1 for name in names}
    kept = list(names)
    for name in SPARED:
        if sum(wide[one] for one in kept) > width and name in kept:
            kept.remove(name)
    return kept


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


def _say(console: Console, text: str, style: str = "") -> None:
    written = figures.printable(text).encode(console.encoding, "replace").decode(console.encoding)
    console.print(Text(written, style), soft_wrap=True)
