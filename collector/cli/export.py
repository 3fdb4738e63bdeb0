"""The command `edgemeter export`."""

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from edgemeter.agent.base.errors import UnavailableError

if TYPE_CHECKING:
    from edgemeter.agent.contract.record import RunRecord
    from edgemeter.collector.export.run_table import RunColumn

Item = TypeVar("Item")


@click.command(short_help="Export runs to a CSV or Parquet file.")
@click.argument("source", default="")
@click.option(
    "--csv", "csv_path", type=click.Path(path_type=Path, allow_dash=True), metavar="FILE", help="Write CSV; - for standard output."
)
@click.option("--parquet", "parquet_path", type=click.Path(path_type=Path), metavar="FILE", help="Write Parquet (edgemeter[parquet]).")
@click.option("--columns", metavar="NAME[,NAME]", help="Only these columns, or all. Default: the usual figures.")
@click.option("--list", "is_list", is_flag=True, help="List the names and types of all columns.")
def export(source: str, csv_path: Path | None, parquet_path: Path | None, columns: str | None, *, is_list: bool) -> None:
    """Export the runs of SOURCE, one row each. SOURCE is a ledger, document, bundle, folder or InfluxDB, with optional ?KEY=VALUE filters.

    Example: edgemeter export 'ledger.sqlite?model=yolov8n&since=2026-10-01' --parquet runs.parquet
    """
    from edgemeter.collector.export.run_table import chosen_columns, every_column, write_csv, write_parquet
    from edgemeter.collector.runs import selection

    if is_list:
        for column in every_column():
            click.echo(f"{column.name}  {column.kind}")
        return
    if (csv_path is None) == (parquet_path is None):
        raise click.UsageError("give either --csv FILE or --parquet FILE")
    wanted = every_column() if columns == "all" else chosen_columns(columns.split(",") if columns else None)
    chosen = selection.parse_selection(source) if source else selection.selections_of("", {})
    with _shown(_some(chosen.runs(), source), chosen.total) as runs:
        if parquet_path is not None:
            count = _put_in_place(parquet_path, lambda part: write_parquet(runs, wanted, part))
        elif str(csv_path) == "-":
            count = write_csv(runs, wanted, sys.stdout)
        else:
            count = _put_in_place(csv_path or Path(), lambda part: _write_csv(runs, wanted, part))
    for entry in chosen.unreadable:
        click.echo(f"left out: {entry.run or 'something'}: {entry.reason}", err=True)
    click.echo(f"{count:,} run{'s' * (count != 1)}, {len(wanted)} columns", err=True)


def _some(runs: "Iterator[RunRecord]", source: str) -> "Iterable[RunRecord]":
    """Return the runs, at least one, before a line is written."""
    first = next(runs, None)
    if first is None:
        raise UnavailableError(
            f"no run of {source or 'the ledger'!r} matches: nothing was written; list the devices with `edgemeter collector devices`"
        )
    return chain((first,), runs)


def _write_csv(runs: "Iterable[RunRecord]", wanted: "Sequence[RunColumn]", path: Path) -> int:
    from edgemeter.collector.export.run_table import write_csv

    with path.open("w", newline="", encoding="utf-8") as file:
        return write_csv(runs, wanted, file)


def _put_in_place(path: Path, write: Callable[[Path], int]) -> int:
    """Write beside the file and rename, so that a partial export is never visible."""
    part = path.with_name(f"{path.name}.part")
    try:
        count = write(part)
        part.replace(path)
    except OSError as error:
        raise UnavailableError(f"cannot write {str(path)!r} ({error.strerror}): give a writable folder with enough space") from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
    return count


@contextlib.contextmanager
def _shown(items: Iterable[Item], total: Callable[[], int | None]) -> Iterator[Iterable[Item]]:
    """Show a progress bar, if standard error is a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not console.is_terminal:
        yield items
        return
    with Progress(console=console, transient=True) as bars:
        yield bars.track(items, total=total(), description="exporting")
