"""The commands `edgemeter fleet run`, `update` and `jobs`.

The functions that all commands share which give orders are here too.
"""

import re
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import click
import msgspec

from edgemeter.agent.base.cli.notes import passing_note
from edgemeter.agent.base.cli.options import FiniteRange, added, format_option
from edgemeter.agent.base.cli.tables import Format, console_for, print_data
from edgemeter.agent.base.console import Console, Table, Text
from edgemeter.agent.base.errors import DONE, FAILED, ConfigError
from edgemeter.agent.base.number_text import count, on_one_line, short_id
from edgemeter.agent.base.terminal import print_text
from edgemeter.agent.contract import suite as suites
from edgemeter.agent.contract.orders import IntervalSeconds
from edgemeter.provisioning.cli.options import (
    in_folder,
    print_notes,
    rehearsed_options,
    selection_option,
)
from edgemeter.provisioning.health.server_status import server_issues
from edgemeter.provisioning.inventory.fleet_file import open_registry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.inventory.selection import select_accepted
from edgemeter.provisioning.jobs import job_view
from edgemeter.provisioning.jobs.waves import JobChange, by_state, change_job, in_waves
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry import jobs as kept
from edgemeter.provisioning.registry.jobs import (
    Execution,
    Job,
    NewJob,
    Target,
    executions_of_job,
    select_executions,
    select_jobs,
)
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve.content_store import ContentStore
from edgemeter.provisioning.update.choice import Allowed, UpdateChoice, plan_update, update_job

RUN_TIMEOUT_S = 3600.0
# It may wait for a long measurement, and for the connection.
UPDATE_TIMEOUT_S = 4 * 3600.0
MOST_RUN_LINES, MOST_JOBS, MOST_OF_DEVICE = 20, 30, 50
MAX_FAILED_RATIO = 0.2
_WAVE_END = re.compile(r"[1-9][0-9]{0,6}|(100|[0-9]{1,2}(\.[0-9]+)?)%")


def _time_of_day(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> str | None:
    try:
        # It is the local time of the device.
        return None if text is None else f"{datetime.strptime(text, '%H:%M'):%H:%M}"  # noqa: DTZ007
    except ValueError as error:
        raise click.BadParameter(
            f"{text!r}: write a time of day as HH:MM, such as 02:30"
        ) from error


def _interval_s(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> int | None:
    if text is None:
        return None
    try:
        return msgspec.convert(
            int(text[:-1]) * {"m": 60, "h": 3600, "d": 86_400}[text[-1:]], IntervalSeconds
        )
    except (KeyError, ValueError, msgspec.ValidationError) as error:
        raise click.BadParameter(
            f"{text!r}: write minutes, hours or days such as 30m, 6h or 1d, at most 31d"
        ) from error


def _wave_ends(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[str, ...]:
    ends = tuple(filter(None, map(str.strip, text.split(","))))
    if not all(map(_WAVE_END.fullmatch, ends)):
        raise click.BadParameter(
            f"{text!r}: write numbers of devices or shares of them, such as 2,10%,50%"
        )
    return ends


waves_options = added(
    click.option(
        "--waves",
        "wave_ends",
        metavar="ENDS",
        default="",
        callback=_wave_ends,
        help="Devices at the end of each wave, as numbers or shares (2,10%,50%); the last wave "
        "has all others. Default: one wave.",
    ),
    click.option(
        "--max-failed",
        "max_failed_ratio",
        metavar="RATIO",
        type=FiniteRange(0, 1),
        help=f"Stop when more than this share of a wave failed. Default: {MAX_FAILED_RATIO}; for "
        "measurements without --waves: never.",
    ),
    click.option(
        "--wait/--detach",
        "waits",
        default=True,
        help="Wait until all have ended (exit 1 when one failed), or return at "
        "once. Default: wait.",
    ),
)


timeout_option = partial(
    click.option,
    "--timeout",
    "timeout_s",
    type=FiniteRange(1, 604_800),
    show_default=True,
    help="Time limit in seconds, counted from when a device has the order.",
)


@click.command()
@click.argument("suite", type=click.Path(path_type=Path, dir_okay=False))
@selection_option("measure on")
@click.option(
    "--at",
    callback=_time_of_day,
    metavar="HH:MM",
    help="Repeat the suite each day at this local time of the device.",
)
@click.option(
    "--every",
    "every_s",
    callback=_interval_s,
    metavar="INTERVAL",
    help="Repeat the suite at this interval: 30m, 6h, 1d.",
)
@waves_options
@timeout_option(default=RUN_TIMEOUT_S)
@click.option(
    "--retries",
    type=click.IntRange(0, 10),
    default=1,
    show_default=True,
    help="Retries after a time-out; after interruptions three times as many.",
)
@click.option(
    "--exclusive",
    metavar="TAG",
    help="Let one device with this tag measure at a time, such as at a shared power meter.",
)
@rehearsed_options
def run(
    suite: Path,
    selection: str,
    folder: FleetFolder,
    *,
    at: str | None,
    every_s: int | None,
    wave_ends: tuple[str, ...],
    max_failed_ratio: float | None,
    timeout_s: float,
    retries: int,
    exclusive: str | None,
    waits: bool,
    dry_run: bool,
    form: Format,
) -> None:
    """Measure a suite on devices. Its models and images are sent along.

    With --at or --every, each device repeats the suite by itself, even offline, until you cancel
    the job.

    Example: edgemeter fleet run suite.toml --on 'board=pi5 & coral'
    """
    from edgemeter.provisioning.jobs import packing

    if at is not None and every_s is not None:
        raise click.UsageError("--at and --every exclude each other: leave one out")
    # A mistake in the suite is reported first, before devices are looked up and large files are
    # packed.
    written = suites.read_file(suite)
    with open_registry(folder, read_only=dry_run) as registry:
        accepted, notes = select_accepted(folder, registry, selection)
        if exclusive is not None and not any(exclusive in device.tags for device in accepted):
            raise ConfigError(
                f"none of these devices has the tag {exclusive!r}: correct --exclusive, or add "
                "the tag in fleet.toml"
            )
        content_folder = (
            TemporaryDirectory(dir=folder.path) if dry_run else nullcontext(folder.content)
        )
        with passing_note(f"packing {suite.name} ..."), content_folder as path:
            work = packing.pack(written, suite.resolve().parent, ContentStore(Path(path)))
        print_notes((*notes, packing.size_note(work), *server_issues(folder, time.time_ns())))
        waves = in_waves({device.device: device.board for device in accepted}, wave_ends)
        if dry_run:
            planned = [{"device": name, "wave": wave + 1} for name, wave in waves.items()]
            if not print_data(
                form, {"title": written.name, "devices": planned, "contents": work.contents}
            ):
                for content in work.contents:
                    click.echo(
                        f"would send {content.name} ({content.size_bytes} bytes, sha256 "
                        f"{content.sha256[:12]})"
                    )
                for name, wave in waves.items():
                    click.echo(f"would order {name}: {written.name}, wave {wave + 1}")
            return
        if max_failed_ratio is None:
            max_failed_ratio = MAX_FAILED_RATIO if wave_ends else 1.0
        targets = [
            Target(
                device.device,
                device.fleet,
                waves[device.device],
                exclusive=exclusive if exclusive in device.tags else None,
            )
            for device in accepted
        ]
        work = msgspec.structs.replace(work, at=at, every_s=every_s)
        order(
            registry,
            NewJob((work,), written.name, timeout_s, retries, max_failed_ratio),
            targets,
            waits=waits,
            form=form,
        )


@click.command()
@click.argument("version", required=False)
@selection_option("update")
@waves_options
@click.option(
    "--even-if",
    type=click.Choice(["older", "bad"]),
    multiple=True,
    help="older: allow an older version. bad: retry a version that failed. Repeatable.",
)
@timeout_option(default=UPDATE_TIMEOUT_S)
@rehearsed_options
def update(
    version: str | None,
    selection: str,
    folder: FleetFolder,
    *,
    wave_ends: tuple[str, ...],
    max_failed_ratio: float | None,
    even_if: tuple[Allowed, ...],
    timeout_s: float,
    waits: bool,
    dry_run: bool,
    form: Format,
) -> None:
    """Update devices to a release. Default: the newest.

    A release that fails its health check is rolled back.

    It is a job: `edgemeter fleet jobs` shows, pauses, resumes and cancels it.

    Example: edgemeter fleet update 1.2.0 --on 'board=pi5' --waves 2,10%,50%
    """
    with open_registry(folder, read_only=dry_run) as registry:
        choices = plan_update(folder, registry, selection, version, even_if)
        going = [choice for choice in choices if choice.release is not None]
        waves = in_waves({choice.device.device: choice.release for choice in going}, wave_ends)
        planned = [_planned_update(choice, waves) for choice in choices]
        if form != "json":
            table = Table("device", "board", "runs", "goes to", "sha256", "wave", "note")
            for row in planned:
                bad = f"failed there: {', '.join(row['bad'])}" if row["bad"] else ""
                cells = (
                    row["device"],
                    row["board"],
                    row["runs"],
                    row["goes_to"] or "stays",
                    (row["bundle"] or "")[:12],
                    row["wave"],
                )
                table.add_row(
                    *(Text(str(cell or "")) for cell in cells),
                    Text("; ".join(filter(None, (bad, row["note"])))),
                )
            console_for("table").print(table)
        if dry_run:
            print_data(form, planned)
        elif going:
            ratio = MAX_FAILED_RATIO if max_failed_ratio is None else max_failed_ratio
            new, targets = update_job(going, waves, even_if, timeout_s, ratio)
            order(registry, new, targets, waits=waits, form=form)
        elif not print_data(form, {"job": None, "devices": planned}):
            click.echo("no device is to be updated", err=True)


def _planned_update(choice: UpdateChoice, waves: Mapping[str, int]) -> dict[str, Any]:
    return {
        "device": choice.device.device,
        "board": choice.device.board,
        "runs": choice.runs,
        "goes_to": choice.release.version if choice.release else None,
        "wave": waves[choice.device.device] + 1 if choice.release else None,
        "bundle": choice.release.sha256 if choice.release else None,
        "bad": list(choice.health.bad_agents) if choice.health else [],
        "note": choice.note,
    }


@click.command()
@click.argument("name", metavar="[JOB]", required=False)
@click.option("--device", help="Show the jobs of this device; with JOB, this device only.")
@click.option(
    "--follow",
    "follows",
    is_flag=True,
    help="Show the progress of one job until it has ended; exit 1 if a device failed.",
)
@click.option(
    "--answers",
    "with_text",
    is_flag=True,
    help="Print the devices' answers: doctor reports, log lines.",
)
@click.option(
    "--pause",
    "change",
    flag_value="pause",
    help="Start no more executions; those in progress continue.",
)
@click.option(
    "--resume",
    "change",
    flag_value="resume",
    help="Continue a paused or stopped job; failures so far no longer count.",
)
@click.option(
    "--cancel",
    "change",
    flag_value="cancel",
    help="End the job and its repetitions; runs in progress publish nothing.",
)
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
    """Show, pause, resume or cancel jobs. Default: show the newest.

    Example: edgemeter fleet jobs --device pi5-01
    """
    if name is None and (follows or change):
        raise click.UsageError(
            f"{'--follow' if follows else f'--{change}'} needs the name of a job"
        )
    with open_registry(folder, read_only=change is None) as registry:
        if device is not None and devices.find(registry, device) is None:
            raise ConfigError(f"no device is named {device!r}: `edgemeter fleet list` lists them")
        if name is None:
            _show_jobs(registry, device, form, with_text=with_text)
            return
        job = kept.find(registry, name)
        executions = [
            execution
            for execution in executions_of_job(registry, job.job)
            if device in {None, execution.device}
        ]
        if follows:
            _follow_to_end(registry, job.job, form, with_text=with_text)
        elif change is None:
            _show_job(registry, job, executions, form, with_text=with_text)
        elif device is not None and (change != "cancel" or not executions):
            raise ConfigError(
                f"only --cancel takes --device, and a device of job {job.job!r}: `edgemeter "
                f"fleet jobs {job.job}` lists them"
            )
        else:
            outcome = change_job(registry, job.job, change, device, time.time_ns())
            if not print_data(form, {"job": job.job, "done": outcome}):
                click.echo(f"{job.job}: {outcome}")


def order(
    registry: Registry,
    new: NewJob,
    targets: Sequence[Target],
    *,
    waits: bool = True,
    form: Format,
    with_text: bool = False,
) -> None:
    """Add a job and print its name, or follow it to its end.

    At the end it prints the answers, and exits 0 if all executions are done, else 1.
    """
    with registry.transaction() as statements:
        job = kept.add(statements, new, targets, time.time_ns())
    click.echo(f"job {job}: {new.title!r} on {count(len(targets), 'device')}", err=True)
    if waits:
        _follow_to_end(registry, job, form, with_text=with_text)
    if not print_data(form, {"job": job}):
        click.echo(job)


def _follow_to_end(registry: Registry, job: str, form: Format, *, with_text: bool) -> NoReturn:
    """Follow a job until all executions have ended or it was stopped.

    Ctrl-C leaves it running and prints how to continue.
    """
    hint = f"`edgemeter fleet jobs {job}` shows it, --cancel cancels it"
    try:
        executions = job_view.follow_job(registry, job, Console(sys.stderr))
    except KeyboardInterrupt:
        click.echo(f"edgemeter: {job} continues: {hint}", err=True)
        raise
    after = kept.find(registry, job)
    if after.state in {"paused", "stopped"}:
        waiting_count = sum(not execution.is_settled for execution in executions)
        click.echo(
            f"{after.state} ({after.reason}), {waiting_count} devices wait: {hint}, --resume "
            "continues it",
            err=True,
        )
    _show_job(registry, after, executions, form, with_text=with_text)
    sys.exit(
        DONE
        if all(execution.state in {"done", "repeating"} for execution in executions)
        else FAILED
    )


def _show_job(
    registry: Registry, job: Job, executions: Sequence[Execution], form: Format, *, with_text: bool
) -> None:
    now_ns = time.time_ns()
    reasons = job_view.wait_reasons(registry, executions, now_ns)
    if print_data(form, job_view.job_document(job, executions, reasons)):
        return
    if with_text:
        _print_answers(executions)
        return
    console = console_for(form)
    waves = f", wave {job.wave + 1} of {job.waves}" if job.waves > 1 else ""
    print_text(
        console,
        f"{job.job}: {job.title}: {job.state}{waves}{f' ({job.reason})' if job.reason else ''}",
    )
    console.print(job_view.executions_table(executions, reasons, now_ns))
    print_text(console, job_view.counts_text(Counter(execution.state for execution in executions)))
    measured = [execution for execution in executions if execution.runs]
    if measured:
        first_id = short_id(measured[0].runs[0])
        print_text(
            console,
            "saved in the ledger of `collector up` (the default, or its --ledger): edgemeter "
            f"runs show {first_id}",
        )
    for execution in measured[:MOST_RUN_LINES]:
        print_text(console, f"  {execution.device}: {' '.join(map(short_id, execution.runs))}")
    if len(measured) > MOST_RUN_LINES:
        print_text(
            console,
            f"  and those of {len(measured) - MOST_RUN_LINES} more devices: --format "
            "json lists all",
        )


def _show_jobs(registry: Registry, device: str | None, form: Format, *, with_text: bool) -> None:
    if device is not None:
        now_ns = time.time_ns()
        executions = select_executions(
            registry, "WHERE device = ? ORDER BY id DESC LIMIT ?", device, MOST_OF_DEVICE
        )
        reasons = job_view.wait_reasons(registry, executions, now_ns)
        documents = [
            job_view.job_document(kept.find(registry, execution.job), [execution], reasons)
            for execution in executions
        ]
        if print_data(form, {"device": device, "jobs": documents}):
            return
        if with_text:
            _print_answers(executions)
        else:
            console_for(form).print(
                job_view.executions_table(executions, reasons, now_ns, by="job")
            )
        return
    newest = select_jobs(registry, "ORDER BY made_ns DESC, job LIMIT ?", MOST_JOBS)
    outlines = [
        job_view.job_outline(job, by_state(kept.count_states(registry, job.job))) for job in newest
    ]
    if not print_data(form, {"jobs": outlines}):
        # A job's name contains the time of its creation.
        table = Table("job", "what", "state", "devices", "executions", right={"devices"})
        for of in outlines:
            states = of["states"]
            table.add_row(
                of["job"],
                Text(of["title"]),
                of["state"],
                str(sum(states.values())),
                job_view.counts_text(states),
            )
        console_for(form).print(table)


def _print_answers(executions: Sequence[Execution]) -> None:
    """Print the text that each device answered.

    A doctor's report is shown as by `edgemeter doctor`, other text unchanged.
    """
    from edgemeter.agent.doctor import examination

    for execution in executions:
        reason = f": {job_view.one_line(execution.reason)}" if execution.reason else ""
        click.echo(
            f"== {execution.device}, {execution.job}: {execution.state.replace('_', ' ')}{reason}"
        )
        text = execution.text or ""
        try:
            findings = [
                msgspec.structs.replace(
                    finding,
                    name=on_one_line(finding.name),
                    what=on_one_line(finding.what),
                    remedy=on_one_line(finding.remedy or ""),
                )
                for finding in examination.from_json(text)
            ]
            console_for("table").print(examination.render(findings))
        except ConfigError:
            # A terminal interprets nothing in it.
            click.echo(
                "".join(
                    letter if letter.isprintable() or letter in "\n\t" else "?" for letter in text
                ).rstrip()
            )
