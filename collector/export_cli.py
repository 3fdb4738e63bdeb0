"""The command `edgemeter export`."""

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from edgemeter.agent.errors import UnavailableError

if TYPE_CHECKING:
    from edgemeter.agent.records import RunRecord
    from edgemeter.collector.export.columns import Column

Item = TypeVar("Item")


@click.command(short_help="Write runs to a CSV or Parquet file, a row each.")
@click.argument("source", default="")
@click.option(
    "--csv", "csv_path", type=click.Path(path_type=Path, allow_dash=True), metavar="FILE", help="Write CSV; - is standard output."
)
@click.option("--parquet", "parquet_path", type=click.Path(path_type=Path), metavar="FILE", help="Write Parquet (edgemeter[parquet]).")
@click.option("--columns", metavar="NAME[,NAME]", help="Only these columns, or all. Default: the usual figures and what they mean.")
@click.option("--list", "is_list", is_flag=True, help="Print the names and types of all columns.")
def export(source: str, csv_path: Path | None, parquet_path: Path | None, columns: str | None, *, is_list: bool) -> None:
    """Write the runs of SOURCE (ledger, document, bundle, folder, InfluxDB; with ?KEY=VALUE only some) to a file, a row each.

    Example: edgemeter export 'ledger.sqlite?model=yolov8n&since=2026-10-01' --parquet runs.parquet
    """
    from edgemeter.collector import selection
    from edgemeter.collector.export import columns as known
    from edgemeter.collector.export import csv_file, parquet_file

    if is_list:
        for column in known.every():
            click.echo(f"{column.name}  {column.kind}")
        return
    if (csv_path is None) == (parquet_path is None):
        message = "give either --csv FILE or --parquet FILE"
        raise click.UsageError(message)
    wanted = known.every() if columns == "all" else known.chosen(columns.split(",") if columns else None)
    chosen = selection.parse(source) if source else selection.of("", {})
    with _shown(_some(chosen.runs(), source), chosen.total) as runs:
        if parquet_path is not None:
            count = _put_in_place(parquet_path, lambda part: parquet_file.write(runs, wanted, part))
        elif str(csv_path) == "-":
            count = csv_file.write(runs, wanted, sys.stdout)
        else:
            count = _put_in_place(csv_path or Path(), lambda part: _write_csv(runs, wanted, part))
    for entry in chosen.unreadable:
        click.echo(f"left out: {entry.run or 'something'}: {entry.reason}", err=True)
    click.echo(f"{count:,} run{'s' * (count != 1)}, {len(wanted)} columns", err=True)


def _some(runs: "Iterator[RunRecord]", source: str) -> "Iterable[RunRecord]":
    """Return the runs, known to be there before a line is written."""
    first = next(runs, None)
    if first is None:
        message = (
            f"there is no such run in {source or 'the ledger'!r}: nothing is written; `edgemeter collector devices` names what is there"
        )
        raise UnavailableError(message)
    return chain((first,), runs)


def _write_csv(runs: "Iterable[RunRecord]", wanted: "Sequence[Column]", path: Path) -> int:
    from edgemeter.collector.export import csv_file

    with path.open("w", newline="", encoding="utf-8") as file:
        return csv_file.write(runs, wanted, file)


def _put_in_place(path: Path, write: Callable[[Path], int]) -> int:
    """Write beside the file and rename: there is never half of an export."""
    part = path.with_name(f"{path.name}.part")
    try:
        count = write(part)
        part.replace(path)
    except OSError as error:
        message = f"cannot write {str(path)!r} ({error.strerror}): give a folder that may be written and has room"
        raise UnavailableError(message) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
    return count


@contextlib.contextmanager
def _shown(items: Iterable[Item], total: Callable[[], int | None]) -> Iterator[Iterable[Item]]:
    """Show on standard error how far it is, where that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not console.is_terminal:
        yield items
        return
    with Progress(console=console, transient=True) as bars:
        yield bars.track(items, total=total(), description="exporting")
