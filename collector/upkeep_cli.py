"""`edgemeter collector stats`, `vacuum`, `backup` and `restore`: the upkeep of a ledger."""

from dataclasses import asdict
from pathlib import Path

import click

from edgemeter.collector.ledger_option import ledger_option, ledger_path, stamp


@click.command(short_help="Show how large the ledger is, and what takes the space.")
@ledger_option
@click.option("--json", "as_json", is_flag=True, help="Print every number as JSON.")
def stats(ledger: Path | None, *, as_json: bool) -> None:
    """Show what the ledger holds, what takes its space and how fast it grows.

    Example: edgemeter collector stats
    """
    import msgspec

    from edgemeter.collector.show.figures import count
    from edgemeter.collector.upkeep.stats import look

    found = look(ledger_path(ledger))
    if as_json:
        document = asdict(found) | {"size_bytes": found.size_bytes}
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
        return
    click.echo(f"{found.path}: {count(found.runs, 'run')} of {count(found.devices, 'device')}, {count(found.cases, 'case')}")
    click.echo("  verdicts: " + (", ".join(f"{number:,} {state}" for state, number in found.verdicts.items()) or "none"))
    if found.first_received_ns is not None and found.last_received_ns is not None:
        click.echo(f"  received: {stamp(found.first_received_ns)} to {stamp(found.last_received_ns)}")
    click.echo(f"  {found.size_bytes / 1e6:,.1f} MB" + (f", {found.size_bytes / found.runs:,.0f} bytes a run" if found.runs else ""))
    for part in found.parts:
        click.echo(f"  {part.size_bytes / 1e6:>12,.1f} MB  {part.name}")
    if found.growth_bytes_per_day is not None:
        click.echo(f"  grows by {found.growth_bytes_per_day / 1e6:,.2f} MB a day; `collector up --keep-samples-days` forgets raw samples")
    for sink, position in found.sinks.items():
        click.echo(f"  {sink}: {count(found.last_row - position, 'row')} behind")
    if found.quarantined:
        click.echo(f"  {found.quarantined} in quarantine: edgemeter collector quarantine list")


@click.command(short_help="Give the ledger's free space back to the disk.")
@ledger_option
def vacuum(ledger: Path | None) -> None:
    """Pack the ledger's file: what records that were forgotten left free goes back to the disk.

    Example: edgemeter collector vacuum
    """
    from edgemeter.collector.upkeep.copies import vacuum as pack

    done = pack(ledger_path(ledger))
    click.echo(f"{done.before_bytes / 1e6:,.1f} MB before, {done.after_bytes / 1e6:,.1f} MB now", err=True)


@click.command(short_help="Copy the ledger to a file while the collector goes on.")
@click.argument("file", type=click.Path(path_type=Path))
@ledger_option
def backup(file: Path, ledger: Path | None) -> None:
    """Copy the ledger (and FILE.watch, its annotations) to FILE: checked, packed, of one moment; the collector goes on.

    Example: edgemeter collector backup /backups/ledger-2026-11-20.sqlite
    """
    from edgemeter.collector.show.figures import count
    from edgemeter.collector.upkeep.copies import backup as copy_to

    done = copy_to(ledger_path(ledger), file)
    for path in done.files:
        click.echo(path)
    click.echo(f"{count(done.runs, 'run')} copied", err=True)


@click.command(short_help="Bring a backup back.")
@click.argument("file", type=click.Path(path_type=Path))
@ledger_option
def restore(file: Path, ledger: Path | None) -> None:
    """Put the backup FILE where the ledger was; nothing is overwritten. What came after the backup was made is not in it.

    Example: edgemeter collector restore /backups/ledger-2026-11-20.sqlite
    """
    from edgemeter.collector.show.figures import count
    from edgemeter.collector.upkeep.copies import restore as bring_back

    done = bring_back(file, ledger_path(ledger))
    for path in done.files:
        click.echo(path)
    newest = f", the newest of {stamp(done.last_received_ns)}" if done.last_received_ns else ""
    click.echo(f"{count(done.runs, 'run')} restored{newest}; devices have forgotten what was delivered after it", err=True)
