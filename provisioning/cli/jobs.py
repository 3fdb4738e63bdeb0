"""The commands that order measurements and show jobs: `edgemeter fleet run`, `jobs`, `cancel`."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click
import msgspec
from rich.console import Console

from edgemeter.agent.base.errors import DONE, FAILED, ConfigError
from edgemeter.agent.base.figures import count, short_id
from edgemeter.agent.base.options import FiniteRange, format_option
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.agent.base.terminal import print_lines, print_text
from edgemeter.agent.contract import suite as suites
from edgemeter.agent.contract.orders import IntervalSeconds, TimeOfDay
from edgemeter.provisioning.cli.options import in_folder, print_notes, rehearsed_options, selection_option
from edgemeter.provisioning.health.server_status import server_issues
from edgemeter.provisioning.inventory.fleet_file import open_registry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.inventory.formatting import narrow_table
from edgemeter.provisioning.jobs.job_view import counts_text, executions_table, follow_job, job_document, job_outline, summary_of
from edgemeter.provisioning.jobs.scheduler import WaitReasons
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry import jobs as kept
from edgemeter.provisioning.registry.jobs import Execution, NewJob, count_states, executions_of_device, executions_of_job, find_execution
from edgemeter.provisioning.registry.registry import Registry

RUN_TIMEOUT_S = 3600.0
_UNITS_S = {"m": 60, "h": 3600, "d": 86_400}
MOST_RUN_LINES = 20


def _interval_s(_context: click.Context, _parameter: click.Parameter, text: str | None) -> int | None:
    """Return an interval as seconds."""
    if text is None:
        return None
    try:
        return msgspec.convert(int(text[:-1]) * _UNITS_S[text[-1:]], IntervalSeconds)
    except (KeyError, ValueError, msgspec.ValidationError) as error:
        raise click.BadParameter(f"{text!r}: write minutes, hours or days such as 30m, 6h or 1d, at most 31d") from error


def _time_of_day(_context: click.Context, _parameter: click.Parameter, text: str | None) -> str | None:
    try:
        return msgspec.convert(text, TimeOfDay | None)
    except msgspec.ValidationError as error:
        raise click.BadParameter(f"{text!r}: write hours and minutes such as 02:30") from error


@click.command()
@click.argument("suite", type=click.Path(path_type=Path, dir_okay=False))
@selection_option("measure on")
@click.option("--at", callback=_time_of_day, metavar="HH:MM", help="Repeat it each day at this local time of the device.")
@click.option("--every", "every_s", callback=_interval_s, metavar="INTERVAL", help="Repeat it at this interval: 30m, 6h, 1d.")
@click.option(
    "--timeout",
    "timeout_s",
    type=FiniteRange(1, 604_800),
    default=RUN_TIMEOUT_S,
    show_default=True,
    help="Time limit of a device, in seconds.",
)
@click.option("--retries", type=click.IntRange(0, 10), default=1, show_default=True, help="Retries after a time-out or an interruption.")
@click.option("--exclusive", multiple=True, metavar="TAG", help="Let one device with this tag measure at a time; may be repeated.")
@click.option(
    "--wait/--detach", "waits", default=True, help="Wait until all have ended (exit 1 when one failed), or return at once. Default: wait."
)
@rehearsed_options
def run(
    suite: Path,
    selection: str,
    folder: FleetFolder,
    *,
    at: str | None,
    every_s: int | None,
    timeout_s: float,
    retries: int,
    exclusive: tuple[str, ...],
    waits: bool,
    dry_run: bool,
    form: Format,
) -> None:
    """Measure a suite on the selected devices; its models and images are sent along.

    With --at or --every each device repeats it by itself until `edgemeter fleet cancel`, without the service as well.

    Example: edgemeter fleet run suite.toml --on 'board=pi5 & coral'
    """
    from edgemeter.provisioning.jobs import ordering

    if at is not None and every_s is not None:
        raise click.UsageError("--at and --every exclude each other: leave one out")
    # A mistake in the suite is reported first, before devices are looked up and large files are packed.
    suites.read_file(suite)
    with open_registry(folder, read_only=dry_run) as registry:
        picked = ordering.pick(folder, registry, selection)
        packed = ordering.pack(folder, suite, is_dry_run=dry_run)
        print_notes((*picked.notes, *packed.notes, *server_issues(folder, time.time_ns())))
        if dry_run:
            contents = packed.work.contents
            listed = [{"name": content.name, "sha256": content.sha256, "size_bytes": content.size_bytes} for content in contents]
            if print_data(form, {"title": packed.title, "devices": picked.names, "contents": listed}):
                return
            for content in contents:
                click.echo(f"would send {content.name} ({content.size_bytes} bytes, sha256 {content.sha256[:12]})")
            print_would_order(picked.names, packed.title)
            return
        work = msgspec.structs.replace(packed.work, at=at, every_s=every_s)
        new = NewJob(work, packed.title, timeout_s, retries, exclusive=exclusive)
        order(folder, registry, new, picked.targets, waits=waits, form=form)


@click.command()
@click.argument("job", required=False)
@click.option("--device", help="Show the jobs of this device, the newest first.")
@click.option("--follow", "follows", is_flag=True, help="Show the progress of one job until it has ended; exit 1 if a device failed.")
@click.option("--answers", "with_text", is_flag=True, help="Print the text that devices answered: doctor reports, log lines.")
@format_option()
@in_folder
def jobs(job: str | None, folder: FleetFolder, *, device: str | None, follows: bool, with_text: bool, form: Format) -> None:
    """Show the newest jobs, one job with its devices and runs, or one device with its jobs.

    Example: edgemeter fleet jobs --device pi5-01
    """
    with open_registry(folder, read_only=True) as registry:
        if job is None and device is None:
            _list_jobs(registry, form)
            return
        name = None if job is None else kept.find_by_prefix(registry, job).job
        if follows and name is None:
            raise click.UsageError("--follow needs the name of a job")
        if follows and name is not None:
            _follow_to_end(folder, registry, name, form)
        if name is None and devices.find(registry, str(device)) is None:
            raise ConfigError(f"no device is named {device!r}: `edgemeter fleet list` lists them")
        executions = executions_of_device(registry, str(device)) if name is None else executions_of_job(registry, name)
        executions = [execution for execution in executions if device in {None, execution.device}]
        waiting = WaitReasons(folder, registry)
        why = {execution.id: waiting.why(execution, time.time_ns()) for execution in executions}
        if with_text:
            for execution in executions:
                click.echo(f"{execution.device}, {execution.job}, {execution.state}:\n{execution.text or ''}")
        elif name is not None:
            _show_job(registry, name, executions, why, form)
        else:
            documents = [job_document(kept.find_by_prefix(registry, execution.job), [execution], why) for execution in executions]
            if not print_data(form, {"device": device, "jobs": documents}):
                console_for(form).print(executions_table(executions, lambda execution: why.get(execution.id), time.time_ns(), by="job"))


@click.command()
@click.argument("job")
@click.argument("device", required=False)
@in_folder
def cancel(job: str, device: str | None, folder: FleetFolder) -> None:
    """Cancel a job on all its devices or on one; a run in progress stops and publishes nothing.

    Example: edgemeter fleet cancel measure-20261120-124500-3fa21c pi5-01
    """
    with open_registry(folder) as registry:
        name = kept.find_by_prefix(registry, job).job
        if device is not None and find_execution(registry, name, device) is None:
            raise ConfigError(f"job {name!r} does not include device {device!r}: `edgemeter fleet jobs {name}` lists its devices")
        touched = kept.cancel(registry, name, device, time.time_ns())
    for execution in touched:
        click.echo(f"{execution.device}: {'cancelled' if execution.is_final else 'cancelling'}")
    if not touched:
        click.echo("nothing left to cancel")


def print_would_order(names: Sequence[str], title: str) -> None:
    """Print which devices would get an order."""
    for name in names:
        click.echo(f"would order {name}: {title}")


def order(folder: FleetFolder, registry: Registry, new: NewJob, targets: Sequence[tuple[str, str]], *, waits: bool, form: Format) -> None:
    """Add a job and print its name, or follow it to its end and exit 0 when all executions are done, else 1."""
    with registry.transaction() as connection:
        job = kept.add(connection, new, targets, time.time_ns())
    click.echo(f"job {job}: {new.title!r} on {count(len(targets), 'device')}", err=True)
    if not waits:
        if not print_data(form, {"job": job}):
            click.echo(job)
        return
    _follow_to_end(folder, registry, job, form)


def _follow_to_end(folder: FleetFolder, registry: Registry, job: str, form: Format) -> NoReturn:
    """Follow a job, show how it ended, and exit 0 when all executions are done, else 1."""
    ended = follow(folder, registry, job, f"`edgemeter fleet jobs {job}` shows it, `edgemeter fleet cancel {job}` cancels it")
    _show_job(registry, job, ended, {}, form)
    sys.exit(DONE if all(execution.state in {"done", "repeating"} for execution in ended) else FAILED)


def follow(folder: FleetFolder, registry: Registry, job: str, hint: str) -> list[Execution]:
    """Return the executions of a job when all have ended; Ctrl-C leaves it running and prints the hint."""
    try:
        return follow_job(folder, registry, job, Console(stderr=True))
    except KeyboardInterrupt:
        click.echo(f"edgemeter: {job} continues: {hint}", err=True)
        raise


def _show_job(registry: Registry, job: str, executions: Sequence[Execution], why: dict[int, str | None], form: Format) -> None:
    job_entry = kept.find_by_prefix(registry, job)
    if print_data(form, job_document(job_entry, executions, why)):
        return
    console = console_for(form)
    print_text(console, f"{job_entry.job}: {job_entry.title}")
    console.print(executions_table(executions, lambda execution: why.get(execution.id), time.time_ns()))
    print_text(console, summary_of(executions))
    ids = {execution.device: [*map(short_id, execution.runs)] for execution in executions if execution.runs}
    lines = [f"  {device}: {' '.join(of_device)}" for device, of_device in ids.items()]
    if lines:
        saved = f"saved in the ledger of `collector up` (the default, or its --ledger): edgemeter runs show {next(iter(ids.values()))[0]}"
        print_lines(console, [saved, *lines[:MOST_RUN_LINES]])
    if len(lines) > MOST_RUN_LINES:
        print_text(console, f"  and those of {len(lines) - MOST_RUN_LINES} more devices: --format json lists all")


def _list_jobs(registry: Registry, form: Format) -> None:
    counted_jobs = [(job, count_states(registry, job.job)) for job in kept.latest(registry)]
    if print_data(form, {"jobs": [job_outline(job, counts) for job, counts in counted_jobs]}):
        return
    # A job's name contains the time when it was made.
    rows = [(job.job, job.title, str(sum(counts.values())), counts_text(counts)) for job, counts in counted_jobs]
    console_for(form).print(narrow_table(("job", "what", "devices", "states"), rows, folded={"what", "states"}, right={"devices"}))
