"""The command `edgemeter fleet run`."""

import json
import sys
import time
from pathlib import Path

import click

from edgemeter.agent.finite_range import FiniteRange
from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.folder_option import folder_option

DEFAULT_TIMEOUT_S = 3600.0


@click.command()
@click.argument("suite", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--on", "selection", required=True, help="Which devices: 'board=pi5 & coral', 'device=pi5-*', 'fleet=lab | tag=rack', all.")
@click.option(
    "--timeout", "timeout_s", type=FiniteRange(1, 604_800), default=DEFAULT_TIMEOUT_S, show_default=True, help="Seconds a device has."
)
@click.option(
    "--retries", type=click.IntRange(0, 10), default=1, show_default=True, help="Tries more for what timed out or was interrupted."
)
@click.option("--cool-down", "cool_down_s", type=FiniteRange(0, 86_400), default=0.0, help="Seconds between two runs of a device.")
@click.option("--exclusive", multiple=True, metavar="TAG", help="Of the devices with this tag one measures at a time; again for more.")
@click.option("--wait/--detach", "waits", default=True, help="Stay until all have ended (exit 1 when one failed), or leave at once.")
@click.option("--dry-run", is_flag=True, help="Say what would be sent to whom, and send nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the job with its executions as JSON.")
@folder_option
def run(
    suite: Path,
    selection: str,
    folder: FleetFolder,
    *,
    timeout_s: float,
    retries: int,
    cool_down_s: float,
    exclusive: tuple[str, ...],
    waits: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Measure a suite on the devices that a selection picks; its models and photographs travel by hash.

    Example: edgemeter fleet run suite.toml --on 'board=pi5 & coral'
    """
    from contextlib import closing

    from edgemeter.provisioning.jobs import jobs, ordering
    from edgemeter.provisioning.jobs.jobs import NewJob
    from edgemeter.provisioning.registry.registry import Registry

    with closing(Registry(folder.registry, "read" if dry_run else "write")) as registry:
        picked = ordering.without_power(folder, registry, ordering.pick(folder, registry, selection))
        packed = ordering.pack(folder, suite, is_rehearsal=dry_run)
        for note in (*picked.notes, *packed.notes):
            click.echo(f"edgemeter: {note}", err=True)
        if dry_run:
            ordering.say_rehearsed(packed, picked, as_json=as_json)
            return
        new = NewJob(packed.work, packed.title, timeout_s, retries, cool_down_s=cool_down_s, exclusive=exclusive)
        with registry.transaction() as connection:
            job = jobs.add(connection, new, picked.targets, time.time_ns())
        click.echo(f"job {job}: {packed.title!r} on {len(picked.targets)} devices", err=True)
        if not waits:
            click.echo(json.dumps({"job": job}) if as_json else job)
            return
        sys.exit(0 if ordering.wait(folder, registry, job, as_json=as_json) else 1)
