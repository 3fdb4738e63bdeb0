"""The command `edgemeter report`.

It writes the page as one file, or the runs as CSV, a document or bundles. `edgemeter collector web`
serves the page.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from edgemeter.agent.base import number_text
from edgemeter.agent.base.cli.notes import note, progress_bar
from edgemeter.agent.base.cli.options import PATH, config_option
from edgemeter.agent.base.errors import ConfigError, UnavailableError, os_error_as
from edgemeter.agent.base.plugins import require_extra
from edgemeter.agent.base.progress import Tell
from edgemeter.agent.base.threads import until_stopped
from edgemeter.agent.base.tls import password_from
from edgemeter.agent.contract.record import RunRecord, encode
from edgemeter.collector.cli.stores import (
    all_days_option,
    chosen_stores,
    model_called,
    only_options,
    opened_store,
    store_option,
    warn_of_left_out,
)
from edgemeter.collector.ledgers.place import shown_place

if TYPE_CHECKING:
    from edgemeter.collector.compare.summary import DaysCounted

STDOUT, PAGE = "-", "report.html"
SUFFIXES = (".html", ".csv", ".json")


@click.command(short_help="Write a page that works offline, or a table of all runs.")
@click.argument("sources", nargs=-1, metavar="[SOURCE]...")
@store_option
@click.option(
    "-o",
    "--output",
    "output_text",
    type=click.Path(allow_dash=True),
    default=PAGE,
    help="File (.html, .csv, .json), FOLDER/ for bundles, or - to print CSV. Default: report.html.",
)
@only_options("fleet", "model", "board", "device")
@all_days_option
@click.option(
    "--columns",
    metavar="NAME[,NAME]",
    help=".csv: only these columns, or all. Default: the usual figures.",
)
@config_option
def report(
    *,
    sources: tuple[str, ...],
    stores: tuple[str, ...],
    output_text: str,
    days: "DaysCounted",
    columns: str | None,
    config: Path | None,
    **options: str | None,
) -> None:
    """Write an HTML page, CSV, JSON or bundles, chosen by the suffix of --output.

    SOURCE is the same as --ledger. Except for the page, it may also be a run's id, a bundle, a
    folder, or a selection: 'ledger.sqlite?model=yolov8n&since=2026-10-01'.

    Example: edgemeter report ledger.sqlite -o runs.csv
    """
    where = chosen_stores((*sources, *stores))
    output = Path(output_text)
    is_folder = output_text.endswith("/") or output.is_dir()
    form = "" if is_folder else ".csv" if output_text == STDOUT else output.suffix.lower()
    if not is_folder and form not in SUFFIXES:
        reason = f"{output.suffix} is unknown" if output.suffix else "a suffix tells the format"
        raise click.UsageError(
            f"--output {output_text!r}: {reason}: use {', '.join(SUFFIXES)}, or FOLDER/ for bundles"
        )
    conditions = {name: value for name, value in options.items() if value is not None}
    if columns is not None and form != ".csv":
        raise click.UsageError("--columns is for .csv")
    if form == ".html":
        _write_page(where, output, conditions, days)
        return
    from edgemeter.collector.runs import selection

    selections = [selection.parse_selection(text) for text in where]
    for entry in selections:
        entry.wanted = [*entry.wanted, *conditions.items()]
    totals = [entry.total() for entry in selections]
    total = None if None in totals else sum(number or 0 for number in totals)
    matching = _some(
        chain.from_iterable(entry.runs(with_samples=form != ".csv") for entry in selections), where
    )
    if is_folder:
        _write_bundles(matching, output, config)
    else:
        _write_table(matching, total, output_text, columns)
    warn_of_left_out([*chain.from_iterable(entry.unreadable for entry in selections)])


def _write_page(
    where: Sequence[str], output: Path, conditions: Mapping[str, str], days: "DaysCounted"
) -> None:
    from edgemeter.collector.charts import vega
    from edgemeter.collector.web.one_file import FileChoice, write_file_of
    from edgemeter.collector.web.queries import CaseFilter

    vega.check_installed()
    of = conditions.get
    case_filter = CaseFilter(
        of("fleet"), of("device"), of("board"), model_called(where, of("model")), level=days
    )
    store = opened_store(where)
    with progress_bar() as progress:
        size_bytes = write_file_of(store, output, FileChoice(case_filter), progress)
    note(f"the report: {output.resolve()}, {number_text.significant(size_bytes / 1e6, 2)} MB")


def _write_bundles(runs: Iterable[RunRecord], folder: Path, config: Path | None) -> None:
    from edgemeter.agent.base.config import read
    from edgemeter.agent.bundle.signature import signer
    from edgemeter.agent.bundle.write import check_folder, write_bundle

    key = read(config).signing_key_file
    check_folder(folder)
    for record in runs:
        note(f"wrote {write_bundle(folder, record, signer(Path(key)) if key else None)}")


def _write_table(
    runs: Iterable[RunRecord], total: int | None, output: str, columns: str | None
) -> None:
    """Write runs to a file, as CSV or JSON by its suffix, or as CSV (`-`).

    Raises UnavailableError if it cannot be written.
    """
    from edgemeter.collector.runs.run_table import chosen_columns, every_column, write_csv

    run_columns = (
        every_column()
        if columns == "all"
        else chosen_columns(columns.split(",") if columns else None)
    )
    with progress_bar() as progress:
        counted = _counted(runs, total, progress)
        if output == STDOUT:
            count = write_csv(counted, run_columns, sys.stdout)
        else:
            # Written to another name and renamed: a partial export is never visible.
            part = Path(f"{output}.part")
            with os_error_as(
                UnavailableError,
                f"cannot write {output!r}",
                "give a writable folder with enough space",
            ):
                try:
                    with part.open("w", newline="", encoding="utf-8") as file:
                        count = (
                            _write_document(counted, file)
                            if output.lower().endswith(".json")
                            else write_csv(counted, run_columns, file)
                        )
                    part.replace(output)
                finally:
                    part.unlink(missing_ok=True)
    columns_text = "" if output.lower().endswith(".json") else f", {len(run_columns)} columns"
    note(f"{number_text.count(count, 'run')}{columns_text}")


def _write_document(runs: Iterable[RunRecord], file: TextIO) -> int:
    """Write the document of `edgemeter run --format json`, and return the number of runs.

    It has the raw samples, and one run a line.
    """
    count = 0
    file.write('{"runs":[\n')
    for count, run in enumerate(runs, start=1):
        file.write((",\n" if count > 1 else "") + encode(run).decode())
    file.write("\n]}\n")
    return count


def _some(runs: Iterator[RunRecord], where: Sequence[str]) -> Iterable[RunRecord]:
    """Return the runs, at least one, before a line is written."""
    first = next(runs, None)
    if first is None:
        places = ", ".join(map(shown_place, where))
        raise UnavailableError(
            f"no run of {places!r} matches: nothing was written; `edgemeter runs` shows "
            "what is kept"
        )
    return chain((first,), runs)


def _counted(runs: Iterable[RunRecord], total: int | None, progress: Tell) -> Iterator[RunRecord]:
    for count, run in enumerate(runs, start=1):
        progress("reading records", count, total or 0)
        yield run


@click.command()
@store_option
@click.option(
    "--listen",
    default="127.0.0.1",
    metavar="ADDRESS",
    help="Address to listen on; any but the loopback needs a token. Default: 127.0.0.1.",
)
@click.option(
    "--port",
    default=8080,
    metavar="N",
    type=click.IntRange(0, 65535),
    help="Port; 0 picks a free one. Default: 8080.",
)
@click.option(
    "--token-file", type=PATH, help="File with the access token. Or set EDGEMETER_WEB_TOKEN."
)
def web(stores: tuple[str, ...], listen: str, port: int, token_file: Path | None) -> None:
    """Serve the results as a web page. It only reads, so a collector may run at the same time.

    Example: edgemeter collector web --ledger ledger.sqlite --port 8080
    """
    from edgemeter.collector.charts import vega
    from edgemeter.collector.compare.case_book import CaseBook

    require_extra("collector", "the page needs Starlette and uvicorn", "starlette", "uvicorn")
    vega.check_installed()
    from edgemeter.collector.web.events import TrendEvents
    from edgemeter.collector.web.server import SHOWN, PageServer

    where = chosen_stores(stores)
    store = opened_store(where)
    server = PageServer(
        CaseBook(store, SHOWN), TrendEvents(store), listen, port, _token(token_file)
    )
    with until_stopped() as stopped:
        server.start()
        click.echo(
            f"the page of {', '.join(map(shown_place, where))} is at {server.url}; Ctrl-C ends it",
            err=True,
        )
        stopped.wait()
        server.stop()


def _token(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get("EDGEMETER_WEB_TOKEN") or None
    token = password_from(str(file), "the page", "token file")
    if not token:
        raise ConfigError(f"{str(file)!r} is empty: write the token into it")
    return token
