"""The tables of `edgemeter models`, at most 80 columns wide."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from edgemeter.agent.base.metrics import metric_name
from edgemeter.models.catalogue.catalogue import CatalogueEntry
from edgemeter.models.catalogue.shipped_models import LANGUAGE_FOLDER, LanguageFile, ModelFile
from edgemeter.models.fetch.fetching import local_file


def print_shipped(models: Sequence[ModelFile], console: Console) -> None:
    """Print the shipped models, or others with a card."""
    table = new_table("edgemeter-shapes, a detector", ("file", "format", "precision"), ("kB", "AP"), ("sha256",))
    for model in models:
        ap = model.about.accuracy.get("value")
        figures = (f"{model.size_bytes / 1000:.0f}", "" if ap is None else f"{float(ap):.3f}", (model.about.sha256 or "")[:8])
        table.add_row(model.path.name, model.format, model.about.precision, *figures)
    console.print(table)


def print_language(files: Sequence[LanguageFile], console: Console) -> None:
    """Print the files of the shipped language model."""
    table = new_table("edgemeter-notes, a language model", ("name", "precision"), ("kB",), ("sha256",))
    for file in files:
        size_bytes = (LANGUAGE_FOLDER / file.file).stat().st_size
        table.add_row(file.file, file.precision, f"{size_bytes / 1000:.0f}", file.sha256[:8])
    console.print(table)


def print_catalogue(entries: Iterable[CatalogueEntry], console: Console) -> None:
    """Print the entries of the catalogue with licence, accuracy, hash, and how to get them."""
    table = new_table("catalogue", ("name", "licence", "sha256"), ("accuracy",), ("get by",), gap=1)
    for entry in entries:
        accuracy = ""
        if entry.accuracy is not None:
            metric = metric_name(entry.accuracy.metric)
            accuracy = (
                f"{entry.accuracy.value:.3f} {metric}, {entry.accuracy.images} images"
                if entry.accuracy.images
                else f"~{entry.accuracy.value:.3f} {metric}"
            )
        get_by = "(here)" if local_file(entry).is_file() else "fetch" if entry.address else "export"
        table.add_row(entry.name, entry.licence[:10], (entry.sha256 or "unverified")[:10], accuracy, get_by)
    console.print(table)
    notes = (
        "unverified: no sha256 of the file is known to us; the others are refused unless they match theirs.",
        "~ published for the original weights; N images: scored by us. Sources: `edgemeter models show NAME`",
    )
    console.print("\n".join(notes), style="dim")


def shipped_row(model: ModelFile) -> Mapping[str, Any]:
    """Return a shipped model as a JSON row."""
    return {
        "name": model.about.name,
        "file": str(model.path),
        "format": model.format,
        "precision": model.about.precision,
        "size_bytes": model.size_bytes,
        "accuracy": model.about.accuracy,
        "licence": model.about.licence,
        "sha256": model.about.sha256,
    }


def new_table(title: str | None, left_aligned: Sequence[str], right: Sequence[str] = (), last: Sequence[str] = (), gap: int = 2) -> Table:
    """Return an empty table with columns on the left, on the right, and on the left again."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, gap, 0, 0))
    for heading in (*left_aligned, *right, *last):
        # Only names give way on a narrow terminal.
        table.add_column(heading, justify="right" if heading in right else "left", overflow="fold", no_wrap=heading != "name")
    return table
