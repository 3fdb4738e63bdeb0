"""`edgemeter models references`: the references that devices are compared with, with provenance."""

from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path

import click
import msgspec

from edgemeter.agent.base import figures
from edgemeter.agent.base.command_group import DefaultGroup
from edgemeter.agent.base.documents import print_json
from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.base.options import PATH, format_option, json_option, renamed_option
from edgemeter.agent.base.tables import Format, console_for, print_data, print_rows
from edgemeter.agent.ledger.ledger import default_path
from edgemeter.collector.cli.stores import stored_summaries, stores_option
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.published import table_file
from edgemeter.collector.published.row import KINDS, PublishedRow, is_day
from edgemeter.collector.reference import mlperf, table
from edgemeter.collector.reference.imported import ListingRequest, ReferenceListing, ReferenceStore, default_store, listing_of

_shelf_option = click.option(
    "--shelf",
    type=PATH,
    envvar="EDGEMETER_REFERENCES",
    help="Folder of imported and published figures. Default: references in $EDGEMETER_HOME.",
)
_json_option = json_option("Print one JSON document.")
_store_option = stores_option("Where to read measured references from. Default: the ledger in $EDGEMETER_HOME.")
ROWS_SHOWN = 20


@click.group(cls=DefaultGroup, context_settings={"help_option_names": ["-h", "--help"]})
def references() -> None:
    """Manage references: measured by the same agent, imported from official results, or published elsewhere.

    Example: edgemeter models references list
    """


@references.command("import", short_help="Import an official MLPerf Inference summary_results.json.")
@click.argument("file", type=PATH)
@renamed_option(
    "--address", "source", former=["--source"], help="Address it was retrieved from. Default: the repository that its rows name."
)
@click.option("--retrieved", metavar="YYYY-MM-DD", help="Day of retrieval. Default: today.")
@click.option("--unverified", is_flag=True, help="The results were not reviewed by MLCommons.")
@click.option("--skip-refused", is_flag=True, help="Skip rows that are not understood, and list them.")
@click.option("--replace", is_flag=True, help="Take this file instead of an earlier one of the same round.")
@_shelf_option
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

    Example: edgemeter models references import summary_results.json --retrieved 2026-11-02
    """
    today = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    if retrieved is not None and is_day(retrieved) and retrieved > today:
        raise click.UsageError(f"--retrieved {retrieved} is in the future: give the day on which the file was retrieved")
    parsed = mlperf.read(file, skip_refused=skip_refused)
    day = retrieved or today
    kept_imports = _shelf(shelf).keep_import(file, parsed, source, day, is_verified=not unverified, replaces=replace)
    for refusal in parsed.refused:
        click.echo(f"refused: {refusal}", err=True)
    for repeat in parsed.repeated:
        click.echo(f"left out: {repeat}", err=True)
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


@references.command(short_help="Add published figures: one by options, or a TOML or CSV file of them.")
@click.argument("file", required=False, type=PATH)
@click.option("--source", help="Publisher.")
@renamed_option("--edition", "version", former=["--version"], help="Edition: a release or a commit. Part of the key.")
@renamed_option("--retrieved", "date", former=["--date"], metavar="YYYY-MM-DD", help="Day of retrieval. Part of the key.")
@click.option("--address", help="Address of the source.")
@click.option("-m", "--model", help="Model.")
@click.option("--device", help="Device, as named there.")
@renamed_option(
    "--figure",
    former=["--metric"],
    type=click.Choice(list(KINDS)),
    help="What the figure measures.",
)
@click.option("--value", type=float, help="The figure, in --unit.")
@click.option("--unit", help="Unit: ms, s, us; per s, fps; mJ, J; W; ratio, %; MB.")
@click.option("--conditions", help="Measurement conditions, as stated there.")
@click.option("--runtime", help="Runtime.")
@click.option("--precision", help="Precision.")
@click.option("--batch", type=int, help="Batch size.")
@click.option("--input-size", help="Input size, such as 640x640.")
@click.option("--dataset", help="Data set.")
@renamed_option("--image-count", "images", former=["--images"], type=int, help="Number of images of an accuracy.")
@click.option("--licence", help="Licence of the source.")
@_shelf_option
def add(*, file: Path | None, shelf: Path | None, **options: str | float | None) -> None:
    """Add published figures. They are displayed, and excluded from statistics.

    Example: edgemeter models references add figures.toml
    """
    figure_options = {name: value for name, value in options.items() if value is not None}
    if (file is None) == (not figure_options):
        raise click.UsageError(
            "give either a TOML or CSV file, or the options of one figure (--source, --edition, --retrieved, --address, --model, ...)"
        )
    try:
        rows = table_file.read(file) if file else [msgspec.convert(figure_options, PublishedRow)]
    except msgspec.ValidationError as error:
        raise ConfigError(f"the figure is incomplete: {error}") from error
    new = _shelf(shelf).add(rows)
    for row in new:
        click.echo(f"{row.id}  {row.model} on {row.device}: {row.figure} {row.value:g} {row.unit}  ({row.key})")
    click.echo(f"{len(new)} new, {len(rows) - len(new)} already present", err=True)


@references.command("list", short_help="List measured, imported and published references separately.")
@click.option("-m", "--model", help="Part of the model name.")
@click.option("--device", help="Part of the device, system or accelerator name.")
@click.option("--scenario", help="Part of the scenario name.")
@click.option("--suite", help="MLPerf suite: datacenter or edge.")
@click.option("--kind", type=click.Choice(["measured", "imported", "published"]), help="Only this kind.")
@_shelf_option
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
    """List measured references, which are ranked with devices, and imported and published figures, which are not.

    Example: edgemeter models references list --model resnet --suite datacenter
    """
    _print(_gather(shelf, stores, ListingRequest(model, device, scenario, suite), kind), kind, form)


@references.command(short_help="Show one reference in full.")
@click.argument("key")
@_shelf_option
@_store_option
@_json_option
def show(*, key: str, shelf: Path | None, stores: tuple[str, ...], as_json: bool) -> None:
    """Show references by key: an MLPerf entry (6.0-0028), the id of a published row, or DEVICE/MODEL of a measured one.

    Example: edgemeter models references show 6.0-0028
    """
    listing = _gather(shelf, stores, ListingRequest(key=key), None)
    blocks = asdict(listing)
    if not any(blocks.values()):
        raise ConfigError(f"no reference has the key {key!r}: list the keys with `edgemeter models references list`")
    if as_json:
        print_json(listing.document)
        return
    for name, rows in blocks.items():
        for row in rows:
            click.echo(f"{name}{'' if name == 'measured' else ', not ranked'}")
            for field, value in row.items():
                if value not in (None, "", {}):
                    click.echo(f"  {field}: {figures.printable(_in_words(value))}")


def _shelf(path: Path | None) -> ReferenceStore:
    return ReferenceStore(path) if path else default_store()


def _gather(shelf: Path | None, stores: tuple[str, ...], request: ListingRequest, kind: str | None) -> ReferenceListing:
    store = _shelf(shelf)
    return listing_of(
        _measured(stores) if kind in (None, "measured") else [],
        store.imports() if kind in (None, "imported") else [],
        store.published() if kind in (None, "published") else [],
        request,
    )


def _measured(stores: tuple[str, ...]) -> list[CaseSummary]:
    """Return the cases that were measured in the role of a reference; without a ledger there are none."""
    if not stores and not default_path().exists():
        return []
    try:
        return [case for case in stored_summaries(stores) if case.key.role == "reference"]
    except UnavailableError:
        return []


def _print(listing: ReferenceListing, kind: str | None, form: Format | None) -> None:
    if form == "csv":
        print_rows([{"kind": name, **row} for name, rows in asdict(listing).items() for row in rows])
    if form == "csv" or print_data(form, listing.document):
        return
    if not (listing.measured or listing.imported or listing.published):
        click.echo("no reference matches: list all with `edgemeter models references list`", err=True)
    table.show(listing, console_for(form), ROWS_SHOWN, kind)


def _in_words(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_in_words(part)}" for name, part in value.items())
    return f"{value:.6g}" if isinstance(value, float) else str(value)
