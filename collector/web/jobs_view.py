"""The fleet's jobs as reported by its service, and the runs of each in the ledger."""

from operator import attrgetter

from edgemeter.agent.base import number_text
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.figures import LATENCY, figure
from edgemeter.agent.contract.messages import ExecutionProgress
from edgemeter.agent.contract.run_figures import RunFigures
from edgemeter.collector.web.activity import COUNTS, JobActivity
from edgemeter.collector.web.queries import CaseFilter, ViewContext
from edgemeter.collector.web.view import View, ViewColumn, ViewGrid, ViewRequest

RUNS_SHOWN = 500


def jobs_view(
    context: ViewContext,
    request: ViewRequest,
    case_filter: CaseFilter,  # noqa: ARG001 - every view has the same signature
) -> View:
    """Return the jobs, newest report first, or one with its runs.

    It raises ConfigError if that one is unknown.
    """
    reported = sorted(context.activities.jobs, key=lambda activity: -activity.received_ns)
    if name := request.get("job"):
        return _job_view(
            context,
            name,
            next((activity for activity in reported if activity.progress.job == name), None),
        )
    table = ViewGrid("jobs", _JOB_COLUMNS, [reported]).plain
    open_count = sum(activity.progress.state == "running" for activity in reported)
    title = (
        f"{number_text.count(len(reported), 'job')}, {open_count} running"
        if reported
        else "No jobs"
    )
    return View(title, context.render("jobs.html", reported=reported), "", (table,))


def _job_view(context: ViewContext, name: str, activity: JobActivity | None) -> View:
    job_runs = sorted(
        context.store.select("job = ?", name), key=attrgetter("started_at_ns", "row"), reverse=True
    )[:RUNS_SHOWN]
    if activity is None and not job_runs:
        raise ConfigError(
            f"there is no job {name!r}, or it ended more than a day ago and left no run"
        )
    executions = activity.progress.executions if activity else ()
    runs, devices = (
        ViewGrid("runs", _RUN_COLUMNS, [job_runs]),
        ViewGrid("devices", _EXECUTION_COLUMNS, [executions]),
    )
    body = context.render(
        "job.html",
        activity=activity,
        devices=devices if executions else None,
        runs=runs,
        count=len(job_runs),
        most=RUNS_SHOWN,
    )
    return View(name, body, "", (runs.plain, *([devices.plain] if executions else [])))


_JOB_COLUMNS: list[ViewColumn[JobActivity]] = [
    ViewColumn("job", "Job", attrgetter("progress.job")),
    ViewColumn("title", "What", attrgetter("progress.title")),
    *(
        ViewColumn(name, name.capitalize(), attrgetter(f"progress.{name}"))
        for name in ("state", *COUNTS)
    ),
    ViewColumn("received_ns", "Reported (UTC)", attrgetter("received_ns")),
]


_EXECUTION_COLUMNS: list[ViewColumn[ExecutionProgress]] = [
    ViewColumn(
        "device",
        "Device",
        attrgetter("device"),
        leads_to=("device", {name: attrgetter(name) for name in ("fleet", "device")}),
        is_text=True,
    ),
    ViewColumn("state", "State", lambda execution: execution.state.replace("_", " "), is_text=True),
    ViewColumn(
        "done_ratio",
        "Progress",
        attrgetter("done_ratio"),
        lambda execution: "" if execution.done_ratio is None else f"{execution.done_ratio:.0%}",
    ),
    ViewColumn(
        "note", "Note", attrgetter("note"), lambda execution: execution.note or "", is_text=True
    ),
]
_OF_DEVICE = {name: attrgetter(f"subject.key.{name}") for name in ("fleet", "device")}
_RUN_COLUMNS: list[ViewColumn[RunFigures]] = [
    ViewColumn(
        "started_at_ns",
        "Started (UTC)",
        attrgetter("started_at_ns"),
        lambda run: number_text.stamp(run.started_at_ns),
        leads_to=("run", {"id": attrgetter("id")}),
    ),
    ViewColumn("id", "", attrgetter("id")),
    ViewColumn(
        "device",
        "Device",
        attrgetter("subject.key.device"),
        leads_to=("device", _OF_DEVICE),
        is_text=True,
    ),
    *(
        ViewColumn(name, name.capitalize(), attrgetter(f"subject.key.{name}"), is_text=True)
        for name in ("model", "precision", "runtime")
    ),
    ViewColumn(LATENCY, figure(LATENCY).heading, lambda run: run.value(LATENCY)),
    ViewColumn("verdict", "Verdict", attrgetter("verdict.state"), is_text=True),
]
