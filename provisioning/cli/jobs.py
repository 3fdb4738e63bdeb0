"""The commands that order measurements and show jobs: `edgemeter fleet run`, `jobs`; and what all commands that give orders share."""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click
import msgspec
from rich.console import Console
from rich.text import Text

from edgemeter.agent.base.errors import DONE, FAILED, ConfigError
from edgemeter.agent.base.figures import count, short_id
from edgemeter.agent.base.options import FiniteRange, added, format_option
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.agent.base.terminal import plain_table, print_lines, print_text
from edgemeter.agent.contract import suite as suites
from edgemeter.agent.contract.orders import IntervalSeconds, TimeOfDay
from edgemeter.provisioning.cli.options import in_folder, print_notes, rehearsed_options, selection_option
from edgemeter.provisioning.health.server_status import server_issues
from edgemeter.provisioning.inventory.fleet_file import open_registry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.inventory.formatting import plain
from edgemeter.provisioning.jobs.job_view import counts_text, executions_table, follow_job, job_document, job_outline, one_line, summary_of
from edgemeter.provisioning.jobs.scheduler import WaitReasons
from edgemeter.provisioning.jobs.waves import JobChange, WaveEnd, by_state, change_job, in_waves
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry import jobs as kept
from edgemeter.provisioning.registry.jobs import Execution, Job, NewJob, Target, executions_of_job, select_executions, select_jobs
from edgemeter.provisioning.registry.registry import Registry

_Command = TypeVar("_Command", bound=Callable[..., Any])
RUN_TIMEOUT_S = 3600.0
MOST_RUN_LINES, MOST_JOBS, MOST_OF_DEVICE = 20, 30, 50
MAX_FAILED_RATIO = 0.2
_UNITS_S = {"m": 60, "h": 3600, "d": 86_400}


def _interval_s(_context: click.Context, _parameter: click.Parameter, text: str | None) -> int | None:
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


def _wave_ends(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[WaveEnd, ...]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    try:
        return msgspec.convert([int(part) if part.isdecimal() else part for part in parts], tuple[WaveEnd, ...])
    except msgspec.ValidationError as error:
        raise click.BadParameter(f"{text!r}: write numbers of devices or shares of them, such as 2,10%,50%") from error


waves_options = added(
    click.option(
        "--waves",
        "wave_ends",
        metavar="ENDS",
        default="",
        callback=_wave_ends,
        help="How many devices have begun with each wave, as numbers or shares (2,10%,50%); the last has all others. Default: one wave.",
    ),
    click.option(
        "--max-failed",
        "max_failed_ratio",
        metavar="RATIO",
        type=FiniteRange(0, 1),
        help=f"Stop when more than this share of a wave failed. Default: {MAX_FAILED_RATIO}; for measurements without --waves: never.",
    ),
    click.option(
        "--wait/--detach",
        "waits",
        default=True,
        help="Wait until all have ended (exit 1 when one failed), or return at once. Default: wait.",
    ),
)


def timeout_option(default_s: float) -> Callable[[_Command], _Command]:
    """Return what adds `--timeout`."""
    text = "Time limit in seconds, counted from when a device has the order."
    return click.option("--timeout", "timeout_s", type=FiniteRange(1, 604_800), default=default_s, show_default=True, help=text)


@click.command()
@click.argument("suite", type=click.Path(path_type=Path, dir_okay=False))
@selection_option("measure on")
@click.option("--at", callback=_time_of_day, metavar="HH:MM", help="Repeat it each day at this local time of the device.")
@click.option("--every", "every_s", callback=_interval_s, metavar="INTERVAL", help="Repeat it at this interval: 30m, 6h, 1d.")
@waves_options
@timeout_option(RUN_TIMEOUT_S)
@click.option(
    "--retries",
    type=click.IntRange(0, 10),
    default=1,
    show_default=True,
    help="Retries after a time-out; three times as many after interruptions.",
)
@click.option("--exclusive", metavar="TAG", help="Let one device with this tag measure at a time, as where they share a power meter.")
@rehearsed_options
def run(
    suite: Path,
    selection: str,
    folder: FleetFolder,
    *,
    at: str | None,
    every_s: int | None,
    wave_ends: tuple[WaveEnd, ...],
    max_failed_ratio: float | None,
    timeout_s: float,
    retries: int,
    exclusive: str | None,
    waits: bool,
    dry_run: bool,
    form: Format,
) -> None:
    """Measure a suite on the selected devices; its models and images are sent along.

    With --at or --every each device repeats it by itself, also while it is offline, until the job is cancelled.

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
        print_notes((*picked.notes, packed.size_note, *server_issues(folder, time.time_ns())))
        waves = in_waves({device.device: device.board for device in picked.devices}, wave_ends)
        if dry_run:
            contents = [msgspec.structs.asdict(content) for content in packed.work.contents]
            planned = [{"device": name, "wave": wave + 1} for name, wave in waves.items()]
            if not print_data(form, {"title": packed.title, "devices": planned, "contents": contents}):
                for content in packed.work.contents:
                    click.echo(f"would send {content.name} ({content.size_bytes} bytes, sha256 {content.sha256[:12]})")
                for name, wave in waves.items():
                    click.echo(f"would order {name}: {packed.title}, wave {wave + 1}")
            return
        if max_failed_ratio is None:
            max_failed_ratio = MAX_FAILED_RATIO if wave_ends else 1.0
        targets = [
            Target(device.device, device.fleet, waves[device.device], exclusive=exclusive if exclusive in device.tags else None)
            for device in picked.devices
        ]
        if exclusive is not None and not any(target.exclusive for target in targets):
            raise ConfigError(f"none of these devices has the tag {exclusive!r}: correct --exclusive, or add the tag in fleet.toml")
        work = msgspec.structs.replace(packed.work, at=at, every_s=every_s)
        order(registry, NewJob((work,), packed.title, timeout_s, retries, max_failed_ratio), targets, waits=waits, form=form)


@click.command()
@click.argument("name", metavar="[JOB]", required=False)
@click.option("--device", help="Show the jobs of this device, the newest first, or of one job this device only.")
@click.option("--follow", "follows", is_flag=True, help="Show the progress of one job until it has ended; exit 1 if a device failed.")
@click.option("--answers", "with_text", is_flag=True, help="Print the text that devices answered: doctor reports, log lines.")
@click.option("--pause", "change", flag_value="pause", help="Start nothing more of it; executions in flight continue.")
@click.option("--resume", "change", flag_value="resume", help="Continue a paused or stopped job; failures so far no longer count.")
@click.option("--cancel", "change", flag_value="cancel", help="End it, also where it repeats; runs in progress publish nothing.")
@format_option()
@in_folder
def jobs(
    name: str | None,
    folder: FleetFolder,
    *,
    device: str | None,
    follows: bool,
    with_text: bool,
    change: JobChange | None,
    form: Format,
) -> None:
    """Show the newest jobs, one job with its devices and runs, or one device with its jobs; pause, resume or cancel a job.

    Example: edgemeter fleet jobs --device pi5-01
    """
    if name is None and (follows or change):
        raise click.UsageError(f"{'--follow' if follows else f'--{change}'} needs the name of a job")
    with open_registry(folder, read_only=change is None) as registry:
        if device is not None and devices.find(registry, device) is None:
            raise ConfigError(f"no device is named {device!r}: `edgemeter fleet list` lists them")
        if name is None:
            _show_jobs(registry, device, form, with_text=with_text)
            return
        job = kept.find(registry, name)
        if change is not None:
            if device is not None and (change != "cancel" or kept.find_execution(registry, job.job, device) is None):
                raise ConfigError(
                    f"only --cancel takes --device, and a device of job {job.job!r}: `edgemeter fleet jobs {job.job}` lists them"
                )
            outcome = change_job(registry, job.job, change, device, time.time_ns())
            if not print_data(form, {"job": job.job, "done": outcome}):
                click.echo(f"{job.job}: {outcome}")
        elif follows:
            _follow_to_end(registry, job.job, form, with_text=with_text)
        else:
            executions = [execution for execution in executions_of_job(registry, job.job) if device in {None, execution.device}]
            _show_job(registry, job, executions, form, with_text=with_text)


def order(
    registry: Registry,
    new: NewJob,
    targets: Sequence[Target],
    *,
    waits: bool = True,
    form: Format,
    with_text: bool = False,
) -> None:
    """Add a job and print its name, or follow it to its end, print the answers, and exit 0 when all executions are done, else 1."""
    with registry.transaction() as statements:
        job = kept.add(statements, new, targets, time.time_ns())
    click.echo(f"job {job}: {new.title!r} on {count(len(targets), 'device')}", err=True)
    if waits:
        _follow_to_end(registry, job, form, with_text=with_text)
    if not print_data(form, {"job": job}):
        click.echo(job)


def _follow_to_end(registry: Registry, job: str, form: Format, *, with_text: bool) -> NoReturn:
    """Follow a job until all have ended or it was stopped; Ctrl-C leaves it running and prints how to go on."""
    hint = f"`edgemeter fleet jobs {job}` shows it, --cancel cancels it"
    try:
        executions = follow_job(registry, job, Console(stderr=True))
    except KeyboardInterrupt:
        click.echo(f"edgemeter: {job} continues: {hint}", err=True)
        raise
    after = kept.find(registry, job)
    if after.state in {"paused", "stopped"}:
        waiting_count = sum(not execution.is_settled for execution in executions)
        click.echo(f"{after.state} ({after.reason}), {waiting_count} devices wait: {hint}, --resume continues it", err=True)
    _show_job(registry, after, executions, form, with_text=with_text)
    sys.exit(DONE if all(execution.state in {"done", "repeating"} for execution in executions) else FAILED)


def _show_job(registry: Registry, job: Job, executions: Sequence[Execution], form: Format, *, with_text: bool) -> None:
    why = WaitReasons(registry, time.time_ns()).why
    if print_data(form, job_document(job, executions, why)):
        return
    if with_text:
        _print_answers(executions)
        return
    console = console_for(form)
    waves = f", wave {job.wave + 1} of {job.waves}" if job.waves > 1 else ""
    print_text(console, f"{job.job}: {job.title}: {job.state}{waves}{f' ({job.reason})' if job.reason else ''}")
    console.print(executions_table(executions, why, time.time_ns()))
    print_text(console, summary_of(executions))
    ids = {execution.device: [*map(short_id, execution.runs)] for execution in executions if execution.runs}
    lines = [f"  {device}: {' '.join(of_device)}" for device, of_device in ids.items()]
    if lines:
        saved = f"saved in the ledger of `collector up` (the default, or its --ledger): edgemeter runs show {next(iter(ids.values()))[0]}"
        print_lines(console, [saved, *lines[:MOST_RUN_LINES]])
    if len(lines) > MOST_RUN_LINES:
        print_text(console, f"  and those of {len(lines) - MOST_RUN_LINES} more devices: --format json lists all")


def _show_jobs(registry: Registry, device: str | None, form: Format, *, with_text: bool) -> None:
    """Show the newest jobs, of all devices or of one."""
    if device is not None:
        executions = select_executions(registry, "WHERE device = ? ORDER BY id DESC LIMIT ?", device, MOST_OF_DEVICE)
        why = WaitReasons(registry, time.time_ns()).why
        documents = [job_document(kept.find(registry, execution.job), [execution], why) for execution in executions]
        if print_data(form, {"device": device, "jobs": documents}):
            return
        if with_text:
            _print_answers(executions)
        else:
            console_for(form).print(executions_table(executions, why, time.time_ns(), by="job"))
        return
    newest = select_jobs(registry, "ORDER BY made_ns DESC, job LIMIT ?", MOST_JOBS)
    outlines = [job_outline(job, by_state(kept.count_states(registry, job.job))) for job in newest]
    if not print_data(form, {"jobs": outlines}):
        # A job's name contains the time when it was made.
        table = plain_table("job", "what", "state", "devices", "executions", right={"devices"})
        for of in outlines:
            states = of["states"]
            table.add_row(of["job"], Text(of["title"]), of["state"], str(sum(states.values())), counts_text(states))
        console_for(form).print(table)


def _print_answers(executions: Sequence[Execution]) -> None:
    """Print the text that each device answered: a doctor's report as `edgemeter doctor` does, other text as it came."""
    from edgemeter.agent.doctor import examination

    for execution in executions:
        reason = f": {one_line(execution.reason)}" if execution.reason else ""
        click.echo(f"== {execution.device}, {execution.job}: {execution.state.replace('_', ' ')}{reason}")
        text = execution.text or ""
        try:
            findings = [
                msgspec.structs.replace(finding, name=plain(finding.name), what=plain(finding.what), remedy=plain(finding.remedy or ""))
                for finding in examination.from_json(text)
            ]
            console_for("table").print(examination.render(findings))
        except ConfigError:
            # A terminal reads it as nothing but text.
            click.echo("".join(letter if letter.isprintable() or letter in "\n\t" else "?" for letter in text).rstrip())
