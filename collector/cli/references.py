"""`edgemeter references`: figures that others publish, judged by three laws and next to own runs; measured references; the datacenter."""

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

from edgemeter.agent.base import figures
from edgemeter.agent.base.command_group import DefaultGroup
from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.options import PATH, added, format_option
from edgemeter.agent.base.progress import warn
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.agent.base.terminal import TableColumn, fitted_table, print_text
from edgemeter.agent.contract.figures import FigureView, in_view
from edgemeter.agent.ledger.ledger import default_path
from edgemeter.collector.cli.datacenter import datacenter
from edgemeter.collector.cli.stores import stored_summaries, stores_option
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.published import laws, listing
from edgemeter.collector.published.claim import parse_claim
from edgemeter.collector.published.own_runs import own_runs
from edgemeter.collector.published.published_folder import default_folder
from edgemeter.collector.published.readers import ReadRows, read
from edgemeter.collector.published.row import NOT_STATED, PublishedRow

ROWS_SHOWN = 10
_file_options = added(
    click.option(
        "--column", "columns", multiple=True, metavar="HEADING=FIELD",
        help='What a column of a table holds: a field ("Model=model") or a figure ("Latency (ms)=latency:ms"). Repeatable.',
    ),
    click.option(
        "--fact", "facts", multiple=True, metavar="FIELD=VALUE",
        help="What the source does not state itself: device, precision, batch, version, address, ... Repeatable.",
    ),
)  # fmt: skip


@click.group(cls=DefaultGroup, context_settings={"help_option_names": ["-h", "--help"]})
def references() -> None:
    """Judge what others publish; list references; compare a device with a datacenter.

    Example: edgemeter references list
    """


references.add_command(datacenter)


@references.command(short_help="Judge published figures, or a claim.")
@click.argument("file", required=False, type=PATH)
@click.option("--claim", metavar="TEXT", help="A claim instead of a FILE: MODEL on DEVICE: NUMBER UNIT.")
@_file_options
@stores_option("Own runs to compare with. Default: the ledger in $EDGEMETER_HOME.")
@format_option("each figure with what every law finds: value, limit and unit")
def judge(
    *,
    file: Path | None,
    claim: str | None,
    columns: tuple[str, ...],
    facts: tuple[str, ...],
    stores: tuple[str, ...],
    form: Format,
) -> None:
    """Judge the figures of FILE, of a claim, or all kept figures: impossible, unclear or plausible, and why.

    FILE is a CSV or Markdown table, MLPerf's summary_results.json, or TOML with a [[case]] for each measurement. Each figure is checked
    against the memory, the compute units and the supply of its board, and shown next to your own runs. None enters a statistic.

    For a table, name the columns: edgemeter references judge page.md --column "Model=model" --column "FPS=throughput:fps"

    Example: edgemeter references judge --claim "Llama 3.2 3B Q4 on Raspberry Pi AI HAT+ 2: 20 tokens/s"
    """
    if file and claim is not None:
        raise click.UsageError("give a FILE or --claim, not both")
    if file is None and (columns or (facts and claim is None)):
        raise click.UsageError("--column and --fact describe a FILE or a claim: give one, or omit them")
    if file:
        content = _read(file, columns, facts)
    else:
        content = ReadRows([parse_claim(claim, _facts(None, facts))] if claim is not None else default_folder().rows())
    judged, cases = laws.judge(content.rows), _own_cases(stores)
    runs_by_key = {row.key: own_runs(row, cases) for row in content.rows}
    if not print_data(form, listing.document(judged, runs_by_key, content.left_out), "rows"):
        listing.show(judged, runs_by_key, console_for(form))


@references.command(short_help="Keep the published figures of a file.")
@click.argument("file", type=PATH)
@_file_options
def add(*, file: Path, columns: tuple[str, ...], facts: tuple[str, ...]) -> None:
    """Keep published figures, or a round of MLPerf: they are listed and judged, and enter no statistic.

    Example: edgemeter references add summary_results.json --fact date=2026-11-02
    """
    rows = _read(file, columns, facts).rows
    new = default_folder().add(rows)
    click.echo(f"{figures.count(len(new), 'new figure')}, {len(rows) - len(new)} already present")


@references.command("list", short_help="List measured and published references separately.")
@click.option("-m", "--model", help="Part of the model name.")
@click.option("--device", help="Part of the device name.")
@click.option("--kind", type=click.Choice(["measured", "published"]), help="Only this kind.")
@stores_option("Where to read measured references from. Default: the ledger in $EDGEMETER_HOME.")
@format_option('{"measured": {"rows": [...]}, "published": {"rows": [...]}}')
def list_(*, model: str | None, device: str | None, kind: str | None, stores: tuple[str, ...], form: Format) -> None:
    """List measured references, which rank with devices, and published ones, which do not.

    Example: edgemeter references list --model resnet
    """

    def is_listed(entry: Any) -> bool:
        return (model or "").casefold() in entry.model.casefold() and (device or "").casefold() in entry.device.casefold()

    cases = [case for case in _own_cases(stores) if case.key.role == "reference" and is_listed(case.key)] if kind != "published" else []
    rows: list[PublishedRow] = [row for row in default_folder().rows() if is_listed(row)] if kind != "measured" else []
    measured, judged = [_measured(case) for case in cases], laws.judge(rows)
    document = {"measured": {"ranks": True, "rows": measured}, "published": listing.document(judged, {})}
    if print_data(form, document):
        return
    console = console_for(form)
    if measured:
        print_text(console, "Measured by the same agent in the role reference: ranked together with devices", "bold")
        cells = {name: [_cell(row[name]) for row in measured] for name in measured[0]}
        console.print(fitted_table([TableColumn(name, column, "left") for name, column in cells.items()], console.width), crop=False)
    if judged:
        listing.show(judged, {}, console, ROWS_SHOWN)
    if not (measured or judged):
        click.echo("no reference matches: list all with `edgemeter references list`", err=True)


def _measured(case: CaseSummary) -> dict[str, object]:
    names = [entry.name for entry in in_view(FigureView.TABLE) if not entry.rank]
    return {
        **{name: getattr(case.key, name) for name in ("device", "model", "precision", "runtime", "scenario")},
        "runs": case.size,
        **{name: case.figures[name].value if name in case.figures else None for name in names},
        "energy_scope": case.energy.scope if case.energy else None,
        "energy_provenance": case.energy.provenance if case.energy else None,
    }


def _cell(value: object) -> str:
    return figures.significant(value, 4) if isinstance(value, float) else figures.ABSENT if value is None else figures.printable(str(value))


def _facts(path: Path | None, texts: Sequence[str]) -> dict[str, Any]:
    """Return the facts that hold for a whole file or a claim: those given, and of its source what the file itself shows."""
    pairs = [text.partition("=") for text in texts]
    fields = PublishedRow.__struct_fields__
    if wrong := next((text for text, (name, equals, _) in zip(texts, pairs, strict=True) if not equals or name not in fields), None):
        raise click.UsageError(f"--fact {wrong!r} is not FIELD=VALUE: the fields are {', '.join(fields)}")
    of_file = {"source": path.name, "address": path.resolve().as_uri()} if path else {}
    today = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    return {"version": NOT_STATED, "date": today, **of_file, **{name: value for name, _, value in pairs}}


def _read(path: Path, columns: Sequence[str], facts: Sequence[str]) -> ReadRows:
    """Return the figures of a file, and print on standard error what is left out."""
    content = read(path, columns, _facts(path, facts))
    for words in content.left_out:
        click.echo(f"left out: {words}", err=True)
    return content


def _own_cases(stores: tuple[str, ...]) -> Sequence[CaseSummary]:
    """Return the cases of own runs: of no ledger there are none, of the default one that gives none it is said why."""
    if not stores and not default_path().exists():
        return []
    try:
        return stored_summaries(stores)
    except UnavailableError as error:
        if stores:
            raise
        warn(f"edgemeter: judged without own runs: {error}")
        return []
