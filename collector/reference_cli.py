"""`edgemeter reference`: what devices are held against, with provenance."""

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgemeter.agent.config import home
from edgemeter.agent.errors import ConfigError, UnavailableError
from edgemeter.collector.store_path import StorePath

if TYPE_CHECKING:
    from edgemeter.collector.compare.summary import Summary
    from edgemeter.collector.reference.listing import Asked, Listing
    from edgemeter.collector.reference.shelf import Shelf

_shelf_option = click.option(
    "--shelf",
    type=click.Path(path_type=Path),
    envvar="EDGEMETER_REFERENCES",
    help="The folder of imported and published figures. Default: references in $EDGEMETER_HOME.",
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
_store_option = click.option(
    "--store", "stores", multiple=True, type=StorePath(), envvar="EDGEMETER_STORE", help="Where measured references are read from."
)
ROWS_SHOWN = 20


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def reference() -> None:
    """Keep what devices are held against: measured by the same agent, imported from official results, or published elsewhere.

    Example: edgemeter reference list
    """


@reference.command("import", short_help="Import an official MLPerf Inference summary_results.json.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--source", help="Where it was retrieved from. Default: the repository that its rows name.")
@click.option("--retrieved", metavar="YYYY-MM-DD", help="When it was retrieved. Default: today.")
@click.option("--unverified", is_flag=True, help="The results did not go through MLCommons' review.")
@click.option("--skip-refused", is_flag=True, help="Import the rest where a row is not understood, and name what was refused.")
@_shelf_option
@_json_option
def import_(
    *, file: Path, source: str | None, retrieved: str | None, unverified: bool, skip_refused: bool, shelf: Path | None, as_json: bool
) -> None:
    """Import an official MLPerf Inference round: shown apart with its footnote, never ranked.

    Example: edgemeter reference import summary_results.json --retrieved 2026-11-02
    """
    from edgemeter.collector.reference import mlperf, published
    from edgemeter.collector.show import figures

    today = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    if retrieved is not None and published.is_day(retrieved) and retrieved > today:
        message = f"--retrieved {retrieved} is still to come: give the day on which the file was retrieved"
        raise click.UsageError(message)
    parsed = mlperf.read(file, skip_refused=skip_refused)
    day = retrieved or today
    kept = _shelf(shelf).keep_import(file, parsed, source, day, is_verified=not unverified)
    for refusal in parsed.refused:
        click.echo(f"refused: {refusal}", err=True)
    if as_json:
        rounds = [{"round": one.round, "rows": len(one.rows), "source": one.source, "retrieved": one.retrieved} for one in kept]
        click.echo(json.dumps({"imported": rounds, "dropped": parsed.dropped, "refused": parsed.refused}, indent=2))
        return
    for one in kept:
        powered = sum(row.power_value is not None for row in one.rows)
        rows = f"{figures.count(len(one.rows), 'result')} of {one.round}, {powered} with measured power"
        click.echo(f"imported {rows}; retrieved from {one.source} {one.retrieved}")
    if parsed.dropped:
        click.echo(f"{figures.count(parsed.dropped, 'result')} left out: the round itself marks what is erroneous", err=True)


@reference.command(short_help="Add published figures: one by options, or a TOML or CSV file of them.")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--source", help="Who published it.")
@click.option("--version", help="Which edition: a release, a commit. Part of the key.")
@click.option("--date", metavar="YYYY-MM-DD", help="When it was retrieved. Part of the key.")
@click.option("--address", help="Where it can be looked up.")
@click.option("--model")
@click.option("--device")
@click.option("--metric", type=click.Choice(["latency", "throughput", "energy", "power", "accuracy", "size"]))
@click.option("--value", type=float)
@click.option("--unit", help="ms, s, us; per s, fps; mJ, J; W; ratio, %; MB.")
@click.option("--conditions", help="What it was measured under, as stated there.")
@click.option("--runtime")
@click.option("--precision")
@click.option("--batch", type=int)
@click.option("--input-size")
@click.option("--dataset")
@click.option("--images", type=int, help="How many images an accuracy is over.")
@click.option("--licence")
@_shelf_option
def add(*, file: Path | None, shelf: Path | None, **options: str | float | None) -> None:
    """Add published figures, which are shown and enter no statistic.

    Example: edgemeter reference add figures.toml
    """
    import msgspec

    from edgemeter.collector.reference import published

    given = {name: value for name, value in options.items() if value is not None}
    if (file is None) == (not given):
        message = "give either a TOML or CSV file, or the options of one figure (--source, --version, --date, --address, --model, ...)"
        raise click.UsageError(message)
    try:
        rows = published.read(file) if file else [msgspec.convert(given, published.PublishedRow)]
    except msgspec.ValidationError as error:
        message = f"the figure is not complete: {error}"
        raise ConfigError(message) from error
    new = _shelf(shelf).add(rows)
    for row in new:
        click.echo(f"{row.id}  {row.model} on {row.device}: {row.metric} {row.value:g} {row.unit}  ({row.key})")
    click.echo(f"{len(new)} new, {len(rows) - len(new)} there already", err=True)


@reference.command("list", short_help="List references in three blocks that never mix.")
@click.option("--model", help="Part of the model's name.")
@click.option("--device", help="Part of the device's, system's or accelerator's name.")
@click.option("--scenario", help="Part of the scenario's name.")
@click.option("--suite", help="Of MLPerf: datacenter or edge.")
@click.option("--kind", type=click.Choice(["measured", "imported", "published"]), help="Only these.")
@_shelf_option
@_store_option
@_json_option
def list_(
    *,
    model: str | None,
    device: str | None,
    scenario: str | None,
    suite: str | None,
    kind: str | None,
    shelf: Path | None,
    stores: tuple[str, ...],
    as_json: bool,
) -> None:
    """List measured references, which rank beside devices, and imported and published figures, which do not.

    Example: edgemeter reference list --model resnet --suite datacenter
    """
    from edgemeter.collector.reference.listing import Asked

    _print(_gather(shelf, stores, Asked(model, device, scenario, suite), kind), kind, as_json=as_json)


@reference.command(short_help="Show one reference with all that is known of it.")
@click.argument("key")
@_shelf_option
@_store_option
@_json_option
def show(*, key: str, shelf: Path | None, stores: tuple[str, ...], as_json: bool) -> None:
    """Show references by their key: an MLPerf entry (6.0-0028), a published row's id, or DEVICE/MODEL of a measured one.

    Example: edgemeter reference show 6.0-0028
    """
    from edgemeter.collector.reference.listing import Asked

    found = _gather(shelf, stores, Asked(key=key), None)
    blocks = {"measured": found.measured, "imported": found.imported, "published": found.published}
    if not any(blocks.values()):
        message = f"no reference is called {key!r}: `edgemeter reference list` shows their keys"
        raise ConfigError(message)
    if as_json:
        click.echo(json.dumps(found.document, indent=2))
        return
    for name, rows in blocks.items():
        for row in rows:
            click.echo(f"{name}{'' if name == 'measured' else ', ranks nowhere'}")
            for field, value in row.items():
                if value not in (None, "", {}):
                    click.echo(f"  {field}: {_printable(_told(value))}")


def _shelf(path: Path | None) -> "Shelf":
    from edgemeter.collector.reference.shelf import Shelf

    return Shelf(path or home() / "references")


def _gather(shelf: Path | None, stores: tuple[str, ...], asked: "Asked", kind: str | None) -> "Listing":
    from edgemeter.collector.reference.listing import listing

    kept = _shelf(shelf)
    return listing(
        _measured(stores) if kind in (None, "measured") else [],
        kept.imports() if kind in (None, "imported") else [],
        kept.published() if kind in (None, "published") else [],
        asked,
    )


def _measured(stores: tuple[str, ...]) -> "list[Summary]":
    """Return the cases that were measured in the role of a reference; without a ledger there are none."""
    from edgemeter.collector import stored_cases

    if not stores and not stored_cases.default_ledger().exists():
        return []
    try:
        return [case for case in stored_cases.summaries(stores) if case.key.role == "reference"]
    except UnavailableError:
        return []


def _print(found: "Listing", kind: str | None, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(found.document, indent=2))
        return
    from rich.console import Console

    from edgemeter.collector.show import reference_tables

    if not (found.measured or found.imported or found.published):
        click.echo("no reference is like that: `edgemeter reference list` alone lists all", err=True)
    console = Console()
    reference_tables.show(found, console if console.is_terminal else Console(width=400), ROWS_SHOWN, kind)


def _told(value: object) -> str:
    """Return a value in words: no Python of ours."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_told(part)}" for name, part in value.items())
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
