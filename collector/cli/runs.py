"""The commands `edgemeter runs`: find, show, note, exclude and delete the runs of a ledger."""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click
import msgspec

from edgemeter.agent.base import config as settings
from edgemeter.agent.base.cli.command_group import DefaultGroup
from edgemeter.agent.base.cli.notes import note
from edgemeter.agent.base.cli.options import format_option
from edgemeter.agent.base.cli.tables import Format, console_for, print_data, print_table
from edgemeter.agent.base.number_text import ABSENT, count, plain_digits, short_id, stamp
from edgemeter.agent.base.suggestions import near
from edgemeter.agent.base.terminal import REDUNDANT, TableColumn, fitted_table, print_text, writable
from edgemeter.agent.cli.bundle import bundle
from edgemeter.agent.contract.energy_provenance import MEASURED, provenance_text
from edgemeter.agent.contract.figures import FigureView, in_view
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.ledger.ledger import default_path
from edgemeter.agent.ledger.run_history import LedgerRuns, ListedRun
from edgemeter.agent.verdict.siblings import case_in_session, judged_together
from edgemeter.collector.cli.stores import (
    chosen_ledger,
    ledger_option,
    only_options,
    opened_runs,
    since_option,
    warn_of_left_out,
)
from edgemeter.collector.ledgers.place import LedgerPlace
from edgemeter.collector.runs.contents import left_out_of

NEWEST = 20
_run_ids = click.argument("run_ids", metavar="ID...", nargs=-1, required=True)
_reason = click.option("--reason", default="", help="Reason, for the history.")


@click.group(cls=DefaultGroup, invoke_without_command=True)
@ledger_option
@only_options("device", "model", "runtime", "precision")
@since_option("measured")
@click.option(
    "-n",
    "--limit",
    metavar="N",
    type=click.IntRange(0),
    default=NEWEST,
    show_default=True,
    help="Number of runs, or 0 for all.",
)
@click.option(
    "--deleted",
    "is_deleted",
    is_flag=True,
    help="List deleted runs: who deleted them, when and why.",
)
@format_option('{"runs": [...]} or {"deleted": [...]}')
@click.pass_context
def runs(
    context: click.Context,
    /,
    ledger: LedgerPlace | None,
    since_ns: int | None,
    limit: int,
    form: Format,
    *,
    is_deleted: bool,
    **options: str | None,
) -> None:
    """List, show, note, exclude and delete runs. The newest is listed first.

    The beginning of an id is enough.

    Example: edgemeter runs --model yolov8n --since 2026-11-01
    """
    if context.invoked_subcommand is not None:
        return
    conditions = {name: value for name, value in options.items() if value is not None}
    with opened_runs(ledger) as history:
        if is_deleted:
            deleted = [event for event in reversed(history.events()) if event.action == "deleted"][
                : limit or None
            ]
            rows = [
                msgspec.to_builtins(event) | {"deleted": stamp(event.at_ns)} for event in deleted
            ]
            print_table(
                form,
                "deleted",
                rows,
                {
                    "id": "id",
                    "device": "device",
                    "model": "model",
                    "deleted": "deleted (UTC)",
                    "author": "by",
                    "text": "reason",
                },
            )
            return
        # One more, to know whether there are more.
        listed = _judged(history, history.runs(conditions, since_ns, limit + 1 if limit else None))
        models, left_out = history.models(), left_out_of(history.ledger)
    if listed or form != "table":
        show_list(listed[: limit or None], form)
    warn_of_left_out(left_out)
    if limit and len(listed) > limit:
        note(f"there are more: -n 0 lists all, -n {2 * limit} twice as many")
    elif not listed and (conditions or since_ns):
        model = conditions.get("model")
        note(
            "no run matches"
            if model is None or model in models
            else f"no run is of a model or file {model!r}: {near(model, models)}"
        )
    elif not listed:
        note("no run is kept yet: measure with `edgemeter run MODEL`")


@runs.command(short_help="Show the case of a run with its notes and history.")
@click.argument("run_id", metavar="ID")
@ledger_option
@click.option("--wide", is_flag=True, help="Also show every run of the case with all its figures.")
@format_option(
    '{"run": {...}, "state": ..., "history": [...], "missed_frames": ...} of the one run; '
    "without raw samples",
    "table",
    "json",
)
def show(run_id: str, ledger: LedgerPlace | None, *, wide: bool, form: Format) -> None:
    """Show the case of a run with its notes and history.

    The figures are over all its runs in that session.

    An excluded run is shown alone. For a run at a steady rate you also see why it missed frames.

    Example: edgemeter runs show 3f2a1b9c
    """
    from edgemeter.collector.runs.missed_frames import missed_frames, show_missed_frames

    with opened_runs(ledger) as history:
        full_id = history.find(run_id)
        sampled = history.entry(full_id, with_samples=True).record
        record = msgspec.structs.replace(sampled, samples=())
        events, is_counted = history.events(full_id), history.is_counted(full_id)
        case_runs = _runs_in_session(history, record) if is_counted else [record]
    missed = missed_frames(sampled)
    document = {"run": record, "state": "counted" if is_counted else "excluded", "history": events}
    if print_data(form, document | ({"missed_frames": missed} if missed else {})):
        return
    from edgemeter.agent.cli.run_output import print_runs

    console = console_for(form)
    remark = (
        f", with {count(len(case_runs) - 1, 'other run')} of its case in its session"
        if len(case_runs) > 1
        else ""
    )
    excluded = "" if is_counted else ", EXCLUDED from statistics"
    print_text(
        console,
        f"run {record.id}, {record.provenance.get('latency') or MEASURED} "
        f"{stamp(record.started_at_ns)} UTC{remark or excluded}",
    )
    print_runs(case_runs, console, wide=wide)
    for event in events:
        print_text(
            console,
            f"{stamp(event.at_ns)} {event.author} {event.action} "
            f"it{f': {event.text}' if event.text else ''}",
        )
    if missed:
        show_missed_frames(record, missed, console)


def _runs_in_session(history: LedgerRuns, record: RunRecord) -> list[RunRecord]:
    """Return the counted runs of a run's case in its session, oldest first."""
    if not record.session_started_at_ns:
        return [record]
    return [
        run.record
        for run in reversed(
            history.runs(
                {"device": record.device, "fleet": record.fleet, "model": record.model.name},
                since_ns=record.session_started_at_ns,
            )
        )
        if run.state == "counted" and case_in_session(run.record) == case_in_session(record)
    ] or [record]


runs.add_command(bundle)


@runs.command("note", short_help="Add a note to a run.")
@click.argument("run_id", metavar="ID")
@click.argument("text")
@ledger_option
def add_note(run_id: str, text: str, ledger: LedgerPlace | None) -> None:
    """Add a note to a run, with your name and the time.

    Example: edgemeter runs note 3f2a1b9c "second fan connected"
    """
    with opened_runs(ledger, is_written=True) as history:
        full_id = history.find(run_id)
        history.note(full_id, text, _author())
    note(f"noted on {short_id(full_id)}")


@runs.command(short_help="Take runs out of every statistic; they stay in the list.")
@_run_ids
@click.option("--reason", required=True, help="Reason, which is listed with the runs.")
@ledger_option
def exclude(run_ids: tuple[str, ...], reason: str, ledger: LedgerPlace | None) -> None:
    """Exclude runs from every statistic, page and export. They stay in the list with the reason.

    Example: edgemeter runs exclude 3f2a1b9c --reason "the fan was off"
    """
    with opened_runs(ledger, is_written=True) as history:
        for full_id in _chosen(history, run_ids):
            if history.is_counted(full_id):
                elsewhere = _elsewhere(
                    ledger,
                    full_id,
                    "exclude",
                    history.withdraw(full_id, "excluded", _author(), reason),
                )
                note(
                    f"excluded {short_id(full_id)}; undo with `edgemeter runs include "
                    f"{short_id(full_id)}`{elsewhere}"
                )
            else:
                note(f"{short_id(full_id)} is excluded already")


@runs.command(short_help="Count excluded runs again.")
@_run_ids
@_reason
@ledger_option
def include(run_ids: tuple[str, ...], reason: str, ledger: LedgerPlace | None) -> None:
    """Count excluded runs again.

    Example: edgemeter runs include 3f2a1b9c
    """
    with opened_runs(ledger, is_written=True) as history:
        for full_id in _chosen(history, run_ids):
            history.include(full_id, _author(), reason)
            note(f"{short_id(full_id)} counts")


@runs.command(short_help="Delete runs for good.")
@_run_ids
@_reason
@click.option("-y", "--yes", "is_confirmed", is_flag=True, help="Do not ask.")
@ledger_option
def delete(
    run_ids: tuple[str, ...], reason: str, ledger: LedgerPlace | None, *, is_confirmed: bool
) -> None:
    """Delete runs for good. Their records are gone, and no device brings them back.

    The history keeps who did it, when and why.

    Example: edgemeter runs delete 3f2a1b9c --reason "wrong model"
    """
    from edgemeter.agent.delivery.outbox_file import OUTBOX, withdraw

    with opened_runs(ledger) as history:
        records = [history.entry(full_id).record for full_id in _chosen(history, run_ids)]
    if not is_confirmed:
        for record in records:
            click.echo(
                f"{short_id(record.id)}  {stamp(record.started_at_ns)}  {record.device}  "
                f"{record.model.name}",
                err=True,
            )
        if not sys.stdin.isatty():
            raise click.UsageError("deleting asks first, and there is no terminal: give --yes")
        click.confirm(f"Delete {count(len(records), 'run')} for good?", abort=True, err=True)
    is_own = chosen_ledger(ledger) == default_path()
    with opened_runs(ledger, is_written=True) as history:
        for record in records:
            numbers = history.withdraw(record.id, "deleted", _author(), reason)
            elsewhere = _elsewhere(ledger, record.id, "delete", numbers)
            is_waiting = is_own and withdraw(settings.home() / OUTBOX, numbers)
            delivery = "; it was not delivered yet, and will not be" if is_waiting else elsewhere
            note(f"deleted {short_id(record.id)}{delivery}")


def _chosen(history: LedgerRuns, run_ids: Sequence[str]) -> list[str]:
    """Return the full ids without duplicates; if one is wrong, no run is changed."""
    return list(dict.fromkeys(map(history.find, run_ids)))


def _author() -> str:
    import getpass

    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{os.uname().nodename}"


def _elsewhere(
    ledger: LedgerPlace | None, run_id: str, command: str, numbers: Sequence[tuple[str, int, int]]
) -> str:
    """Return a note that a collector has the run too, with the command to run there.

    It is empty if none confirmed it to this machine.
    """
    from edgemeter.agent.delivery.outbox_file import OUTBOX, is_delivered

    if chosen_ledger(ledger) != default_path() or not is_delivered(
        settings.home() / OUTBOX, numbers
    ):
        return ""
    return (
        f"; the collector's copy stays: on its machine `edgemeter runs {command} "
        f"{short_id(run_id)}`"
    )


def _judged(history: LedgerRuns, listed: Sequence[ListedRun]) -> list[ListedRun]:
    """Return runs, newest first.

    Counted ones are judged with their siblings, of which the list may lack the oldest.
    """
    counted = {run.record.id: run.record for run in listed if run.state == "counted"}
    oldest_ns = min((record.started_at_ns for record in counted.values()), default=0)
    begun_before = {
        case_in_session(record): record
        for record in counted.values()
        if record.session_started_at_ns < oldest_ns
    }
    siblings = {
        sibling.id: sibling
        for record in begun_before.values()
        for sibling in _runs_in_session(history, record)
    }
    judged = {record.id: record for record in judged_together((siblings | counted).values())}
    return [
        run._replace(record=judged[run.record.id]) if run.state == "counted" else run
        for run in listed
    ]


def show_list(listed: Sequence[ListedRun], form: Format) -> None:
    """Print runs in the given order, with the figures that any of them has."""
    if form in ("json", "csv"):
        print_data(form, {"runs": [_entry(run) for run in listed]})
        return
    console = console_for(form)

    def safe(cells: list[str]) -> list[str]:
        return [writable(cell, console) for cell in cells]

    figures = [
        entry
        for entry in in_view(FigureView.RUN)
        if not entry.rank and any(entry.value(run.record) is not None for run in listed)
    ]
    records = [run.record for run in listed]
    states = ["excluded" if run.state == "excluded" else _state(run.record) for run in listed]
    names = {
        "id": [short_id(record.id) for record in records],
        "measured (UTC)": [stamp(record.started_at_ns) for record in records],
        "device": [record.device for record in records],
        "model": [record.model.name for record in records],
        "": [
            f"{record.precision} {record.runtime.name_text}{_load_text(record)}"
            for record in records
        ],
        "threads": [
            ABSENT if record.runtime.threads_reason else str(record.runtime.threads)
            for record in records
        ],
    }
    ranks = {
        name: REDUNDANT if len(set(names[name])) == 1 else rank
        for name, rank in (("device", 3), ("threads", 0))
    }
    # On a narrow terminal, the identity of runs stays; constant columns, and those of `runs show`,
    # go.
    columns = [
        *(
            TableColumn(
                heading,
                safe(cells),
                "left",
                ranks.get(heading, 0),
                narrowed="shortens" if heading in ("model", "") else "",
            )
            for heading, cells in names.items()
        ),
        *(
            TableColumn(
                entry.heading,
                [entry.table_text(entry.value(record)) for record in records],
                rank=min(number, 1),
            )
            for number, entry in enumerate(figures)
        ),
        TableColumn("verdict", states, "left"),
        TableColumn("remark", safe([_remark(run) for run in listed]), "left", rank=2),
    ]
    console.print(fitted_table(columns, console.width, {"excluded": "dim"}))


def _entry(run: ListedRun) -> Mapping[str, Any]:
    record = run.record
    return {
        **{
            name: getattr(record, name)
            for name in (
                "id",
                "started_at_ns",
                "device",
                "fleet",
                "case",
                "suite",
                "precision",
                "scenario",
            )
        },
        "model": record.model.name,
        "runtime": record.runtime.name,
        "verdict": record.verdict.state,
        "state": run.state,
        "provenance": provenance_text(record),
        **{entry.name: entry.value(record) for entry in in_view(FigureView.RUN)},
        "history": [msgspec.to_builtins(event) for event in run.events],
    }


def _load_text(record: RunRecord) -> str:
    """Return rate and deadline of frames, and concurrent models."""
    steady, together = record.steady, record.together
    frames = (
        f" {plain_digits(steady.rate_per_s)}/s in {plain_digits(steady.deadline_ms)} ms"
        if steady
        else ""
    )
    return f"{frames} beside {together.names}" if together else frames


def _state(record: RunRecord) -> str:
    provenance = provenance_text(record)
    return (
        record.verdict.state if provenance == MEASURED else f"{record.verdict.state}, {provenance}"
    )


def _remark(run: ListedRun) -> str:
    reasons = (
        [event.text for event in run.events if event.action == "excluded"][-1:]
        if run.state == "excluded"
        else []
    )
    return "; ".join((*reasons, *(event.text for event in run.events if event.action == "noted")))
