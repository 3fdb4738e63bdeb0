"""The commands `edgemeter fleet jobs` and `edgemeter fleet cancel`."""

import json
import time
from typing import TYPE_CHECKING

import click

from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.folder_option import folder_option

if TYPE_CHECKING:
    from edgemeter.provisioning.jobs.executions import Execution
    from edgemeter.provisioning.registry.registry import Registry


@click.command()
@click.argument("job", required=False)
@click.option("--device", help="What this device was asked to do, the newest first.")
@click.option("--text", "with_text", is_flag=True, help="Print what devices answered in words: doctor reports, log lines.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@folder_option
def jobs(job: str | None, folder: FleetFolder, *, device: str | None, with_text: bool, as_json: bool) -> None:
    """Show the newest jobs, one job with its devices, or one device with its jobs.

    Example: edgemeter fleet jobs --device pi5-01
    """
    from contextlib import closing

    from edgemeter.agent.errors import ConfigError
    from edgemeter.provisioning.jobs import executions, ordering
    from edgemeter.provisioning.jobs import jobs as kept
    from edgemeter.provisioning.jobs.waiting import Waiting
    from edgemeter.provisioning.registry import devices
    from edgemeter.provisioning.registry.registry import Registry

    with closing(Registry(folder.registry, "read")) as registry:
        if job is None and device is None:
            _list(registry, as_json=as_json)
            return
        name = None if job is None else kept.named(registry, job).job
        if name is None and devices.find(registry, str(device)) is None:
            message = f"no device is called {device!r}: `edgemeter fleet list` names them"
            raise ConfigError(message)
        held = executions.of_device(registry, str(device)) if name is None else executions.of_job(registry, name)
        held = [one for one in held if device in {None, one.device}]
        waiting = Waiting(folder, registry)
        why = {one.id: waiting.why(one, time.time_ns()) for one in held}
        if with_text:
            for one in held:
                click.echo(f"{one.device}, {one.job}, {one.state}:\n{one.text or ''}")
        elif name is not None:
            ordering.show(registry, name, held, why, as_json=as_json)
        else:
            _show_device(registry, str(device), held, why, as_json=as_json)


@click.command()
@click.argument("job")
@click.argument("device", required=False)
@click.option("--dry-run", is_flag=True, help="Say what would be ended, and end nothing.")
@folder_option
def cancel(job: str, device: str | None, folder: FleetFolder, *, dry_run: bool) -> None:
    """End what is left of a job, on all devices or on one; a run in progress is ended and publishes nothing.

    Example: edgemeter fleet cancel measure-20261120-124500-3fa21c pi5-01
    """
    from contextlib import closing

    from edgemeter.agent.errors import ConfigError
    from edgemeter.provisioning.jobs import executions
    from edgemeter.provisioning.jobs import jobs as kept
    from edgemeter.provisioning.registry.registry import Registry

    with closing(Registry(folder.registry, "read" if dry_run else "write")) as registry:
        name = kept.named(registry, job).job
        if device is not None and executions.find(registry, name, device) is None:
            message = f"job {name!r} is not for device {device!r}: `edgemeter fleet jobs {name}` lists its devices"
            raise ConfigError(message)
        if dry_run:
            for one in executions.of_job(registry, name):
                if not one.is_final and device in {None, one.device}:
                    click.echo(f"{one.device}: would be cancelled ({one.state})")
            return
        touched = kept.cancel(registry, name, device, time.time_ns())
    for one in touched:
        click.echo(f"{one.device}: {'cancelled' if one.is_final else 'is told to end it'}")
    if not touched:
        click.echo("nothing is left to cancel")


def _list(registry: "Registry", *, as_json: bool) -> None:
    from edgemeter.provisioning.inventory import narrow_table
    from edgemeter.provisioning.jobs import executions, shown
    from edgemeter.provisioning.jobs import jobs as kept

    found = [(one, executions.counts(registry, one.job)) for one in kept.latest(registry)]
    if as_json:
        click.echo(json.dumps({"jobs": [shown.outline(one, counts) for one, counts in found]}, indent=2))
        return
    # When it was made stands in a job's name.
    rows = [(one.job, one.title, str(sum(counts.values())), shown.summed(counts)) for one, counts in found]
    made = narrow_table.table(("job", "what", "devices", "states"), rows, folded={"what", "states"}, right={"devices"})
    narrow_table.show(made)


def _show_device(registry: "Registry", device: str, held: "list[Execution]", why: "dict[int, str | None]", *, as_json: bool) -> None:
    from rich.console import Console

    from edgemeter.provisioning.jobs import jobs as kept
    from edgemeter.provisioning.jobs import ordering, shown

    if as_json:
        found = [(kept.named(registry, one.job), one) for one in held]
        click.echo(json.dumps({"device": device, "jobs": [shown.document(job, [one], why) for job, one in found]}, indent=2))
        return
    console = Console()
    console = console if console.is_terminal else Console(width=ordering.PLAIN_WIDTH)
    console.print(shown.table(held, lambda one: why.get(one.id), time.time_ns(), by="job"))
