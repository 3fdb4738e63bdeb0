"""The tables of `edgemeter models`, at most 80 columns wide."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from edgemeter.agent.base.metrics import metric_name
from edgemeter.agent.contract import model_file
from edgemeter.models.catalogue.catalogue import CatalogueEntry
from edgemeter.models.catalogue.shipped_models import LanguageFile, ModelFile
from edgemeter.models.fetch.cache import ModelCache
from edgemeter.models.fetch.local_files import VerifiedFile

# How to get a model, in a word.
_FORMS = {"in an archive": "download", "exported": "export", "compiled": "compile", "built on the device": "build", "own": "own"}


def print_shipped(models: Sequence[ModelFile], console: Console) -> None:
    """Print one table per model name."""
    for name in dict.fromkeys(model.about.name for model in models):
        table = _new_table(name, ("file", "format", "precision"), ("kB", "AP"), ("sha256",))
        for model in (model for model in models if model.about.name == name):
            ap = model.about.accuracy.get("value")
            figures = (f"{model.size_bytes / 1000:.0f}", "" if ap is None else f"{float(ap):.3f}", (model.about.sha256 or "")[:8])
            table.add_row(model.path.name, model.format, model.about.precision, *figures)
        console.print(table)


def print_language(files: Sequence[LanguageFile], console: Console) -> None:
    """Print the files of the shipped language model."""
    table = _new_table("edgemeter-notes, a language model", ("name", "precision"), ("kB",), ("sha256",))
    for file in files:
        size_bytes = sum(part.stat().st_size for part in model_file.parts(file.path))
        table.add_row(file.name, file.precision, f"{size_bytes / 1000:.0f}", file.sha256[:8])
    console.print(table)


def print_catalogue(entries: Iterable[CatalogueEntry], cache: ModelCache, console: Console) -> None:
    """Print the entries of the catalogue: those whose file was scored here, then the user's own, then what is unverified."""
    scored = _new_table("catalogue: scored by us", ("name",), ("score",), ("on", "with", "day", "get by"), gap=1)
    tables = {
        status: _new_table(f"catalogue: {title}", ("name", "on", "form"), ("published",), ("licence", "get by"), gap=1)
        for status, title in (("verified", "your own"), ("unverified", "unverified"))
    }
    cached = {model.name for model in cache.models() if model.path}
    for entry in entries:
        get_by = "(here)" if entry.name in cached or entry.path else _FORMS.get(entry.form, entry.form)
        if (score := entry.scored) is not None:
            scored.add_row(entry.name, f"{score.value:.3f} {metric_name(score.metric)}", score.data, score.runtime, score.day, get_by)
        else:
            on = ",".join(entry.accelerators)
            tables[entry.status].add_row(entry.name, on, entry.precision, _published(entry), entry.licence[:10], get_by)
    for table in (scored, *tables.values()):
        if table.row_count:
            console.print(table)
    console.print("~ accuracy of the original weights; (...) not verified at its source: `edgemeter models show NAME`", style="dim")


def print_checked(files: Sequence[VerifiedFile], console: Console) -> None:
    """Print the states of files."""
    table = _new_table(None, ("name", "state", "sha256"), (), ("by",))
    for file in files:
        style = {"ok": "green", "changed": "red", "absent": "yellow"}[file.state]
        table.add_row(file.name, f"[{style}]{file.state}[/]", (file.actual or "")[:12], file.by)
    console.print(table)


def print_cached(cache: ModelCache, console: Console) -> None:
    """Print the cached models, the most recently used first, and their total size."""
    cached = sorted(cache.models(), key=lambda model: -model.used_ns)
    table = _new_table(str(cache.folder), ("name", "file"), ("MB",), ())
    for model in cached:
        table.add_row(model.name, model.path.name if model.path else "unfinished", f"{model.size_bytes / 1e6:.1f}")
    table.add_section()
    table.add_row("", f"of {cache.limit_bytes / 1e6:.0f}", f"{sum(model.size_bytes for model in cached) / 1e6:.1f}")
    console.print(table)


def shipped_row(model: ModelFile) -> Mapping[str, Any]:
    """Return a shipped model as a JSON row."""
    return {
        "name": model.about.name,
        "file": str(model.path),
        "format": model.format,
        "precision": model.about.precision,
        "size_bytes": model.size_bytes,
        "accuracy": model.about.accuracy,
        "sha256": model.about.sha256,
    }


def _published(entry: CatalogueEntry) -> str:
    if not entry.accuracy:
        return ""
    best = entry.accuracy[0]
    text = f"{'~' if best.of == 'the original weights' else ''}{best.value:.3f}"
    return f"{text if best.status == 'verified' else f'({text})'} {metric_name(best.metric)}"


def _new_table(title: str | None, left_aligned: Sequence[str], right: Sequence[str], last: Sequence[str], gap: int = 2) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, gap, 0, 0))
    for headings, justify in ((left_aligned, "left"), (right, "right"), (last, "left")):
        for heading in headings:
            # Only names and reasons give way on a narrow terminal.
            gives_way = heading in ("name", "by")
            table.add_column(heading, justify="right" if justify == "right" else "left", overflow="fold", no_wrap=not gives_way)
    return table
