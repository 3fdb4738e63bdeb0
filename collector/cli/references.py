"""`edgemeter references`: the references that devices are compared with, with provenance."""

from dataclasses import asdict
from pathlib import Path

import click
import msgspec

from edgemeter.agent.base import figures
from edgemeter.agent.base.command_group import DefaultGroup
from edgemeter.agent.base.documents import print_json
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.options import PATH, format_option, json_option
from edgemeter.agent.base.tables import Format, console_for, print_data, print_rows
from edgemeter.collector.cli.judge_references import (
    fact_options,
    judge,
    opened_shelf,
    own_cases,
    print_left_out,
    read_table,
    reader_options,
    readers,
    refuse_without_file,
    retrieval_day,
    shelf_option,
)
from edgemeter.collector.cli.stores import stores_option
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.published import ReadTable
from edgemeter.collector.published.row import KINDS, PublishedRow, too_few_items
from edgemeter.collector.reference import mlperf, table
from edgemeter.collector.reference.imported import ListingRequest, ReferenceListing, listing_of

_json_option = json_option("Print one JSON document.")
_store_option = stores_option("Where to read measured references from. Default: the ledger in $EDGEMETER_HOME.")
ROWS_SHOWN = 20


@click.group(cls=DefaultGroup, context_settings={"help_option_names": ["-h", "--help"]})
def references() -> None:
    """Judge what others publish; list measured, imported and published references.

    Example: edgemeter references list
    """


references.add_command(judge)
references.add_command(readers)


@references.command("import", short_help="Import an official MLPerf Inference summary_results.json.")
@click.argument("file", type=PATH)
@click.option("--address", "source", help="Address it was retrieved from. Default: the repository that its rows name.")
@click.option("--retrieved", metavar="YYYY-MM-DD", help="Day of retrieval. Default: today.")
@click.option("--unverified", is_flag=True, help="The results were not reviewed by MLCommons.")
@click.option("--skip-refused", is_flag=True, help="Skip rows that are not understood, and list them.")
@click.option("--replace", is_flag=True, help="Take this file instead of an earlier one of the same round.")
@shelf_option
@_json_option
def import_(
    *,
    file: Path,
    source: str | None,
    retrieved: str | None,
    unverified: bool,
    skip_refused: bool,
    replace: bool,
    shelf: Path | None,
    as_json: bool,
) -> None:
    """Import an official MLPerf Inference round. It is listed separately with its footnote, and never ranked.

    Example: edgemeter references import summary_results.json --retrieved 2026-11-02
    """
    day = retrieval_day(retrieved)
    parsed = mlperf.read(file, skip_refused=skip_refused)
    kept_imports = opened_shelf(shelf).keep_import(file, parsed, source, day, is_verified=not unverified, replaces=replace)
    for refusal in parsed.refused:
        click.echo(f"refused: {refusal}", err=True)
    print_left_out(parsed.repeated)
    for words in filter(None, (kept_import.words() for kept_import in kept_imports)):
        click.echo(words, err=True)
    imports = [kept_import.now for kept_import in kept_imports]
    if as_json:
        rounds = [{"round": now.round, "rows": len(now.rows), "source": now.source, "retrieved": now.retrieved} for now in imports]
        left_out = {"dropped": parsed.dropped, "refused": parsed.refused, "repeated": parsed.repeated}
        print_json({"imported": rounds, **left_out})
        return
    for imported in imports:
        powered = sum(row.power_value is not None for row in imported.rows)
        rows = f"{figures.count(len(imported.rows), 'result')} of {imported.round}, {powered} with measured power"
        click.echo(f"imported {rows}; retrieved from {imported.source} {imported.retrieved}")
    if parsed.dropped:
        click.echo(f"{figures.count(parsed.dropped, 'result')} left out: the round marks them as erroneous", err=True)


@references.command(short_help="Keep published figures of a file, or one by options.")
@click.argument("file", required=False, type=PATH)
@reader_options
@fact_options
@click.option(
    "--figure",
    type=click.Choice(list(KINDS)),
    help="What the figure measures.",
)
@click.option("--value", type=float, help="The figure, in --unit.")
@click.option("--unit", help="Unit: ms, s, us; per s, fps; tokens/s; mJ, J; W; ratio, %; MB.")
@click.option("--image-count", "images", type=int, help="Number of images of an accuracy.")
@shelf_option
def add(*, file: Path | None, reader: str | None, columns: tuple[str, ...], shelf: Path | None, **options: str | float | None) -> None:
    """Keep published figures: they are listed and judged, and enter no statistic.

    FILE has any format that `references readers` lists, or is a TOML or CSV file with a figure in each [[row]] or line. Options state what
    the file does not; without FILE they state one figure.

    Example: edgemeter references add figures.toml
    """
    figure_options = {name: value for name, value in options.items() if value is not None}
    of_one = [f"--{name}" for name in ("figure", "value", "unit") if name in figure_options]
    if file is None and not figure_options:
        raise click.UsageError("give a file, or the options of one figure (--source, --edition, --retrieved, --address, --model, ...)")
    if file is None:
        refuse_without_file(reader, columns)
        retrieval_day(day if isinstance(day := options["date"], str) else None)
    if file is not None and of_one:
        raise click.UsageError(f"{of_one[0]} describes one figure: omit it, or omit the file")
    try:
        rows = _rows_of(read_table(file, reader, columns, figure_options)) if file else [msgspec.convert(figure_options, PublishedRow)]
    except msgspec.ValidationError as error:
        raise ConfigError(f"the figure is incomplete: {error}") from error
    new = opened_shelf(shelf).add(rows)
    for row in new:
        click.echo(f"{row.id}  {row.model} on {row.device}: {row.figure} {row.value:g} {row.unit}  ({row.key})")
    click.echo(f"{len(new)} new, {len(rows) - len(new)} already present", err=True)


def _rows_of(table: ReadTable) -> list[PublishedRow]:
    # An accuracy over a few images is judged, and not kept.
    reasons = [(row, too_few_items(row)) for row in table.rows]
    refusals = [f"{row.model} on {row.device}: {why}" for row, why in reasons if why]
    print_left_out((*table.left_out, *refusals))
    return [row for row, why in reasons if why is None]


@references.command("list", short_help="List measured, imported and published references separately.")
@click.option("-m", "--model", help="Part of the model name.")
@click.option("--device", help="Part of the device, system or accelerator name.")
@click.option("--scenario", help="Part of the scenario name.")
@click.option("--suite", help="MLPerf suite: datacenter or edge.")
@click.option("--kind", type=click.Choice(["measured", "imported", "published"]), help="Only this kind.")
@shelf_option
@_store_option
@format_option('Print {"measured": [...], "imported": [...], "published": [...]}; CSV holds all of them.')
def list_(
    *,
    model: str | None,
    device: str | None,
    scenario: str | None,
    suite: str | None,
    kind: str | None,
    shelf: Path | None,
    stores: tuple[str, ...],
    form: Format | None,
) -> None:
    """List measured references, which rank with devices, and imported and published ones, which do not.

    Example: edgemeter references list --model resnet --suite datacenter
    """
    _print(_gather(shelf, stores, ListingRequest(model, device, scenario, suite), kind), kind, form)


@references.command(short_help="Show one reference in full.")
@click.argument("key")
@shelf_option
@_store_option
@_json_option
def show(*, key: str, shelf: Path | None, stores: tuple[str, ...], as_json: bool) -> None:
    """Show a reference in full by its key: an MLPerf entry (6.0-0028), the id of a published row, or DEVICE/MODEL of a measured one.

    Example: edgemeter references show 6.0-0028
    """
    if not key.strip():
        raise click.UsageError("the key is empty: list the keys with `edgemeter references list`")
    listing = _gather(shelf, stores, ListingRequest(key=key), None)
    blocks = asdict(listing)
    if not any(blocks.values()):
        raise ConfigError(f"no reference has the key {key!r}: list the keys with `edgemeter references list`")
    if as_json:
        print_json(listing.document)
        return
    for name, rows in blocks.items():
        for row in rows:
            click.echo(f"{name}{'' if name == 'measured' else ', not ranked'}")
            for field, value in row.items():
                if value not in (None, "", {}):
                    click.echo(f"  {field}: {figures.printable(_in_words(value))}")


def _gather(shelf: Path | None, stores: tuple[str, ...], request: ListingRequest, kind: str | None) -> ReferenceListing:
    store = opened_shelf(shelf)
    return listing_of(
        _measured(stores) if kind in (None, "measured") else [],
        store.imports() if kind in (None, "imported") else [],
        store.published() if kind in (None, "published") else [],
        request,
    )


def _measured(stores: tuple[str, ...]) -> list[CaseSummary]:
    """Return the cases that were measured in the role of a reference; without a ledger there are none."""
    return [case for case in own_cases(stores) if case.key.role == "reference"]


def _print(listing: ReferenceListing, kind: str | None, form: Format | None) -> None:
    if form == "csv":
        print_rows([{"kind": name, **row} for name, rows in asdict(listing).items() for row in rows])
    if form == "csv" or print_data(form, listing.document):
        return
    if not (listing.measured or listing.imported or listing.published):
        click.echo("no reference matches: list all with `edgemeter references list`", err=True)
    table.show(listing, console_for(form), ROWS_SHOWN, kind)


def _in_words(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_in_words(part)}" for name, part in value.items())
    return f"{value:.6g}" if isinstance(value, float) else str(value)
