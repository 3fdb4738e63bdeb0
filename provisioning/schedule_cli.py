"""The command `edgemeter fleet schedule`."""

import json
import sys
import time
from pathlib import Path

import click

from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.folder_option import folder_option

# How long a device has to take note of a schedule, not how long it may measure.
TIMEOUT_S = 3600.0


@click.command()
@click.argument("name")
@click.argument("suite", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option("--on", "selection", required=True, help="Which devices: 'board=pi5 & coral', 'device=pi5-*', all.")
@click.option("--cron", help="When, in the device's local time: 'MINUTE HOUR DAY MONTH WEEKDAY', or @daily.")
@click.option("--end", is_flag=True, help="End the schedule of that name.")
@click.option("--golden", is_flag=True, help="Measure the model that ships with the agent instead of a suite.")
@click.option("--wait/--detach", "waits", default=False, help="Stay until all devices have taken note, or leave at once.")
@click.option("--dry-run", is_flag=True, help="Say what would be sent to whom, and send nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@folder_option
def schedule(
    name: str,
    suite: Path | None,
    selection: str,
    folder: FleetFolder,
    *,
    cron: str | None,
    end: bool,
    golden: bool,
    waits: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Let devices measure a suite by themselves from now on, also while they are offline for weeks.

    Example: edgemeter fleet schedule nightly suite.toml --cron '0 2 * * *' --on board=pi5
    """
    from contextlib import closing

    from edgemeter.provisioning.jobs import jobs, ordering, scheduling
    from edgemeter.provisioning.jobs.jobs import NewJob
    from edgemeter.provisioning.registry.registry import Registry

    scheduling.check(name, cron, suite, is_end=end, is_golden=golden)
    with closing(Registry(folder.registry, "read" if dry_run else "write")) as registry:
        picked = ordering.pick(folder, registry, selection)
        work, notes = scheduling.work(folder, name, cron, suite, is_rehearsal=dry_run)
        for note in (*picked.notes, *notes):
            click.echo(f"edgemeter: {note}", err=True)
        title = f"schedule {name}: {cron or 'end'}"
        if dry_run and as_json:
            click.echo(json.dumps({"schedule": name, "cron": cron, "devices": [one.device for one in picked.devices]}))
            return
        if dry_run:
            for device in picked.devices:
                click.echo(f"would order {device.device}: {title}")
            return
        with registry.transaction() as connection:
            job = jobs.add(connection, NewJob(work, title, TIMEOUT_S), picked.targets, time.time_ns())
        click.echo(f"job {job}: {title} on {len(picked.targets)} devices", err=True)
        if not waits:
            click.echo(json.dumps({"job": job}) if as_json else job)
            return
        sys.exit(0 if ordering.wait(folder, registry, job, as_json=as_json) else 1)
