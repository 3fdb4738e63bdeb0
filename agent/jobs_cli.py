"""The command `edgemeter agent jobs`: what this device was ordered, and what it measures by itself."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from edgemeter.agent.jobs.journal import Execution
    from edgemeter.agent.jobs.schedules import Scheduled


@click.command(short_help="Show what this device was ordered and what came of it.")
@click.option("--last", type=click.IntRange(1, 2000), default=20, show_default=True, help="How many orders, the latest first.")
@click.option("--json", "as_json", is_flag=True, help='Print {"jobs": [...], "schedules": [...]}.')
def jobs(last: int, *, as_json: bool) -> None:
    """Show what this device was ordered and what came of it, and its schedules.

    Example: edgemeter agent jobs --last 5
    """
    from edgemeter.agent import config
    from edgemeter.agent.jobs import journal
    from edgemeter.agent.jobs.schedules import Schedules

    path = config.home() / journal.NAME
    if not path.exists():
        click.echo('{"jobs": [], "schedules": []}' if as_json else "this device was ordered nothing yet")
        return
    book = journal.Journal(path, "read")
    try:
        found, schedules = book.latest(last), Schedules(book).read()
    finally:
        book.close()
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode({"jobs": list(map(_row, found)), "schedules": list(map(_schedule_row, schedules))}))
    else:
        _show(found, schedules)


def _row(one: "Execution") -> dict[str, object]:
    return {
        "job": one.order.job,
        "attempt": one.order.attempt,
        "kind": kind(one),
        "schedule": one.schedule,
        "state": one.state,
        "reason": one.reason,
        "done_ratio": one.done_ratio,
        "runs": one.runs,
        "figures": one.figures,
        "arrived_ns": one.arrived_ns,
        "started_ns": one.started_ns,
        "ended_ns": one.ended_ns,
    }


def _schedule_row(one: "Scheduled") -> dict[str, object]:
    schedule = one.schedule
    return {"schedule": schedule.name, "cron": schedule.cron, "next_ns": one.next_ns, "last_ns": one.last_ns, "remark": one.remark}


def kind(one: "Execution") -> str:
    """Return what sort of work it is, as an order names it."""
    return type(one.order.work).__name__.lower()


def _name(one: "Execution") -> str:
    """Return the job's name, with what it does not say itself."""
    more = [] if one.order.job.startswith(kind(one)) else [kind(one)]
    more += [f"attempt {one.order.attempt}"] if one.order.attempt > 1 else []
    return f"{one.order.job} ({', '.join(more)})" if more else one.order.job


def _one_line(text: str) -> str:
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def _show(found: "list[Execution]", schedules: "list[Scheduled]") -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from edgemeter.agent.jobs.schedules import local

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("job", "state", "arrived", "took s", "runs"):
        table.add_column(heading, justify="right" if heading in ("took s", "runs") else "left", overflow="fold")
    for one in found:
        took = "" if one.started_ns is None or one.ended_ns is None else f"{(one.ended_ns - one.started_ns) / 1e9:.0f}"
        table.add_row(*map(Text, (_name(one), one.state.replace("_", " "), local(one.arrived_ns)[:16], took, str(len(one.runs)))))
    console = Console()
    console.print(table)
    # A reason is a sentence: beside the others it would be cut to pieces on a terminal of 80 columns.
    for one in found:
        if one.reason:
            console.print(f"{_name(one)}: {_one_line(one.reason)}", markup=False, highlight=False, soft_wrap=True)
    for schedule in schedules:
        next_text = "never" if schedule.next_ns is None else local(schedule.next_ns)
        remark = f" ({schedule.remark})" if schedule.remark else ""
        line = f"schedule {schedule.schedule.name}: {schedule.schedule.cron}, next {next_text}{remark}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
