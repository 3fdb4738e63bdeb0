"""The fleet's orders: campaigns and jobs as its service reports them, and the runs that the ledger has of each."""

import time
from operator import attrgetter
from typing import NamedTuple

import msgspec

from edgemeter.agent.base import figures
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.messages import ExecutionProgress
from edgemeter.collector.web.activity import COUNTS, CampaignActivity, described_campaign, read_activities
from edgemeter.collector.web.context import ViewContext
from edgemeter.collector.web.markup import Markup, join
from edgemeter.collector.web.queries import CaseFilter
from edgemeter.collector.web.view import Links, View, ViewColumn, ViewRequest, grid, link, note, plain_table, section, verdict_cell

RUNS_SHOWN = 500


class RunOfJob(NamedTuple):
    """One run of a job."""

    id: str
    fleet: str
    device: str
    model: str
    precision: str
    runtime: str
    started_at_ns: int
    latency_p50_ms: float | None
    verdict: str


def jobs_view(context: ViewContext, request: ViewRequest, case_filter: CaseFilter) -> View:  # noqa: ARG001 - every view has the same signature
    """Return the campaigns and jobs, the newest report first, or one with its runs; raises ConfigError if nothing is known of that one."""
    reported = sorted(read_activities(context.source, time.time_ns()).campaigns, key=lambda activity: -activity.received_ns)
    if name := request.get("job"):
        return _job_view(context, name, next((activity for activity in reported if activity.progress.campaign == name), None))
    table = plain_table("jobs", _JOB_COLUMNS, reported)
    if not reported:
        return View("No jobs", note("None was reported in the last day. Order one: edgemeter fleet run SUITE --on DEVICES."), "", (table,))
    open_count = sum(activity.progress.state == "running" for activity in reported)
    lines = join(described_campaign(activity, context.links) for activity in reported)
    remark = note("What has ended is listed for a day; `edgemeter fleet jobs` has all.")
    return View(f"{figures.count(len(reported), 'job')}, {open_count} running", join([lines, remark]), "", (table,))


def _job_view(context: ViewContext, name: str, activity: CampaignActivity | None) -> View:
    query = """SELECT runs.id, cases.fleet, cases.device, cases.model, cases.precision, cases.runtime,
        runs.started_at_ns, runs.latency_p50_ms, runs.verdict
    FROM json_each(?) AS picked JOIN runs ON runs.job = picked.value JOIN cases USING (case_number)
    ORDER BY runs.started_at_ns DESC, runs.row DESC LIMIT ?"""
    jobs = msgspec.json.encode(activity.progress.jobs if activity else (name,)).decode()
    runs = [RunOfJob(*row) for row in context.connection.execute(query, (jobs, RUNS_SHOWN))]
    if activity is None and not runs:
        raise ConfigError(f"there is no job {name!r}, or it ended more than a day ago and left no run")
    parts: list[Markup] = []
    tables = []
    if activity is not None:
        parts.append(described_campaign(activity, context.links))
        if activity.progress.executions:
            markup, table = grid("devices", _execution_columns(context.links), activity.progress.executions)
            parts.append(section("devices", "Devices that work on it or failed", markup))
            tables.append(table)
    markup, table = grid("runs", _run_columns(context.links), runs)
    remark = [note(f"The newest {RUNS_SHOWN} runs.")] if len(runs) == RUNS_SHOWN else []
    parts.append(section("runs", "Runs", markup if runs else note("None has arrived yet."), *remark))
    return View(name, join(parts), "", (table, *tables))


_JOB_COLUMNS: list[ViewColumn[CampaignActivity]] = [
    ViewColumn("job", "Job", attrgetter("progress.campaign")),
    ViewColumn("title", "What", attrgetter("progress.title")),
    *(ViewColumn(name, name.capitalize(), attrgetter(f"progress.{name}")) for name in ("state", *COUNTS)),
    ViewColumn("received_ns", "Reported (UTC)", attrgetter("received_ns")),
]


def _device_link(links: Links, fleet: str, device: str) -> Markup:
    return link(links.to("device", fleet=fleet, device=device), device)


def _execution_columns(links: Links) -> list[ViewColumn[ExecutionProgress]]:
    def progress(execution: ExecutionProgress) -> str:
        return "" if execution.done_ratio is None else f"{execution.done_ratio:.0%}"

    return [
        ViewColumn("device", "Device", attrgetter("device"), lambda report: _device_link(links, report.fleet, report.device), is_text=True),
        ViewColumn("state", "State", lambda execution: execution.state.replace("_", " "), is_text=True),
        ViewColumn("done_ratio", "Progress", attrgetter("done_ratio"), progress),
        ViewColumn("note", "Note", lambda execution: execution.note, lambda execution: execution.note or "", is_text=True),
    ]


def _run_columns(links: Links) -> list[ViewColumn[RunOfJob]]:
    def started(run: RunOfJob) -> Markup:
        return link(links.to("run", id=run.id), figures.stamp(run.started_at_ns))

    return [
        ViewColumn("started_at_ns", "Started (UTC)", attrgetter("started_at_ns"), started),
        ViewColumn("id", "", lambda run: run.id, is_shown=False),
        ViewColumn("device", "Device", lambda run: run.device, lambda run: _device_link(links, run.fleet, run.device), is_text=True),
        *(ViewColumn(name, name.capitalize(), attrgetter(name), is_text=True) for name in ("model", "precision", "runtime")),
        ViewColumn("latency_p50_ms", "p50 ms", lambda run: run.latency_p50_ms),
        ViewColumn("verdict", "Verdict", lambda run: run.verdict, lambda run: verdict_cell(run.verdict), is_text=True),
    ]
