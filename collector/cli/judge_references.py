"""`edgemeter references judge` and `readers`: published figures, or a claim, judged by physics, own runs and other rows."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from inspect import getdoc, getmodule
from pathlib import Path
from typing import Any

import click

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.figures import printable
from edgemeter.agent.base.options import PATH, added, format_option
from edgemeter.agent.base.progress import note
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.agent.base.terminal import TableColumn, fitted_table, print_text
from edgemeter.agent.ledger.ledger import default_path
from edgemeter.collector.cli.stores import stored_summaries, stores_option
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.published import ReadTable, create, reader_names, table_file
from edgemeter.collector.published.claim import parse_claim
from edgemeter.collector.published.judge import judge as judge_rows
from edgemeter.collector.published.readers.mapped_table import column
from edgemeter.collector.published.row import NOT_STATED, is_day
from edgemeter.collector.reference import judged_table
from edgemeter.collector.reference.imported import ReferenceStore, default_store

# Facts of one figure, or of all figures of a file.
fact_options = added(
    click.option("--source", help="Publisher. Default of a file: its name."),
    click.option("--edition", "version", help="Edition of the source: a release or a commit. Part of the key."),
    click.option("--retrieved", "date", metavar="YYYY-MM-DD", help="Day of retrieval. Part of the key. Default of a file: today."),
    click.option("--address", help="Address of the source."),
    click.option("-m", "--model", help="Model."),
    click.option("--device", help="Device, as the source names it."),
    click.option("--power-mode", help="Power mode of the device."),
    click.option("--conditions", help="Measurement conditions, as the source states them."),
    click.option("--runtime", help="Runtime."),
    click.option("--precision", help="Precision."),
    click.option("--batch", type=int, help="Batch size."),
    click.option("--input-size", help="Input size, such as 640x640."),
    click.option("--dataset", help="Data set."),
    click.option("--licence", help="Licence of the source."),
)
shelf_option = click.option(
    "--shelf",
    type=PATH,
    envvar="EDGEMETER_REFERENCES",
    help="Folder of imported and published figures. Default: references in $EDGEMETER_HOME.",
)
reader_options = added(
    click.option(
        "--reader", metavar="NAME", help="Format of the file; `references readers` lists them. Default: the first that recognises it."
    ),
    click.option(
        "--column", "columns", multiple=True, metavar="HEADING=FIELD",
        help='What a column of a CSV or Markdown table holds: a field ("Model=model") or a figure ("Latency (ms)=latency:ms"). Repeatable.',
    ),
)  # fmt: skip


def facts_of(path: Path | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts that hold for a whole file: those given, and of its source what the file itself shows."""
    given_facts = {name: value for name, value in options.items() if value is not None}
    day = retrieval_day(given_facts.pop("date", None))
    file_facts = {} if path is None else {"source": path.name, "address": path.resolve().as_uri()}
    return {"version": NOT_STATED, "date": day, **file_facts, **given_facts}


def retrieval_day(day: str | None) -> str:
    """Return the day of retrieval, by default today; raises UsageError for what is no day, or is to come."""
    today = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    if day is not None and not is_day(day):
        raise click.UsageError(f"--retrieved {day!r} is not a date: write YYYY-MM-DD")
    if day is not None and day > today:
        raise click.UsageError(f"--retrieved {day} is in the future: give the day on which the file was retrieved")
    return day or today


def refuse_without_file(reader: str | None, columns: Sequence[str]) -> None:
    """Raise UsageError for options that say how a file is read."""
    if reader or columns:
        raise click.UsageError(f"{'--reader' if reader else '--column'} says how a FILE is read: give one, or omit it")


@click.command(short_help="Judge published figures, or a claim.")
@click.argument("file", required=False, type=PATH)
@click.option("--claim", metavar="TEXT", help="A claim instead of a FILE: MODEL on DEVICE: FIGURE UNIT, CONDITION, ...")
@reader_options
@fact_options
@shelf_option
@stores_option("Own runs to compare with. Default: the ledger in $EDGEMETER_HOME.")
@format_option("Print each row with all its evidence: value, limit and unit")
def judge(
    *,
    file: Path | None,
    claim: str | None,
    reader: str | None,
    columns: tuple[str, ...],
    shelf: Path | None,
    stores: tuple[str, ...],
    form: Format | None,
    **options: str | int | None,
) -> None:
    """Judge the figures of FILE, of a claim, or all kept figures: impossible, unclear or plausible, and why.

    FILE is the output of a tool or a table saved from a page; options state what it does not. Each figure is checked against the bounds of
    its board and compared with own runs and other published figures of its case. None of them enters a statistic.

    Of a table, name the columns: edgemeter references judge page.md --column "Model=model" --column "FPS=throughput" --device "Jetson Orin
    Nano"

    Example: edgemeter references judge --claim "Llama 3.2 3B Q4 on Raspberry Pi AI HAT+ 2: 20 tokens/s"
    """
    if file and claim is not None:
        raise click.UsageError("give a FILE or --claim, not both")
    if claim is not None and not claim.strip():
        raise click.UsageError('--claim is empty: give "MODEL on DEVICE: FIGURE UNIT"')
    if file is None:
        refuse_without_file(reader, columns)
        if claim is None and any(value is not None for value in options.values()):
            raise click.UsageError("options state facts of a FILE or a claim: give a FILE or --claim, or omit them")
    stored_rows = opened_shelf(shelf).published()
    rows = stored_rows if claim is None else parse_claim(claim, facts_of(None, options))
    table = read_table(file, reader, columns, options) if file else ReadTable(tuple(rows))
    judged = judge_rows(table.rows, own_cases(stores), stored_rows)
    print_left_out(table.left_out)
    if print_data(form, judged_table.document(judged, table.left_out), "rows"):
        return
    console = console_for(form)
    (judged_table.show if claim is None else judged_table.show_claim)(judged, console)
    print_text(console, judged_table.summary(judged), "bold")


@click.command(short_help="List the formats of published figures.")
@format_option("Print each reader with what it reads")
def readers(*, form: Format | None) -> None:
    """List the formats of published figures, in the order in which they are tried.

    Example: edgemeter references readers
    """
    rows = [{"reader": name, "reads": _first_line(name)} for name in reader_names()]
    if not print_data(form, rows):
        console = console_for(form)
        columns = [TableColumn(name, [row[name] for row in rows], "left", folds=name == "reads") for name in ("reader", "reads")]
        console.print(fitted_table(columns, console.width), crop=False)


def read_table(path: Path, reader: str | None, columns: Sequence[str], options: Mapping[str, Any]) -> ReadTable:
    """Return the figures of a file, by the options of a command; raises ConfigError as `read_any` does."""
    facts = facts_of(path, options)
    if columns and reader not in (None, "table"):
        raise click.UsageError(f"--column maps the columns of a table: the reader {reader} knows its own, omit one of the two")
    if columns:
        return table_file.read_any(path, reader or "table", {**facts, "columns": [column(text) for text in columns]})
    return table_file.read_any(path, reader, facts)


def print_left_out(reasons: Iterable[str]) -> None:
    """Print on standard error what is left out of a file: its words, none of which may steer the terminal."""
    for words in reasons:
        click.echo(f"left out: {printable(words)}", err=True)


def opened_shelf(path: Path | None) -> ReferenceStore:
    """Return the imported and published figures that are kept."""
    return ReferenceStore(path) if path else default_store()


def own_cases(stores: tuple[str, ...]) -> Sequence[CaseSummary]:
    """Return the cases of own runs: of no ledger there are none, of the default one that gives none it is said why.

    Raises:
        UnavailableError: a ledger is named, and gives none.
    """
    if not stores and not default_path().exists():
        return []
    try:
        return stored_summaries(stores)
    except UnavailableError as error:
        if stores:
            raise
        note(f"judged without own runs: {error}")
        return []


def _first_line(name: str) -> str:
    """Return what a reader's module says that it reads."""
    module = getmodule(type(create(name)))
    return (getdoc(module) or "").partition("\n")[0]
