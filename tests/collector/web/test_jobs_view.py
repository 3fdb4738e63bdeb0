"""Facts about the page of jobs: an order, its progress and its runs stand together."""

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import messages
from edgemeter.agent.contract.messages import ExecutionProgress, JobProgress
from edgemeter.agent.ledger.presence import RetainedMessage
from edgemeter.collector.web.view import ViewRequest
from tests.fixtures.comparison_factory import make_run
from tests.fixtures.hostile import MARKUP
from tests.fixtures.ledgers import fill, report
from tests.fixtures.served_page import page_of

NOW_NS = 1_800_000_000 * 10**9
RUNNING = JobProgress(
    job="measure-1",
    title="suite nightly",
    state="running",
    wave=1,
    waves=1,
    done=1,
    failed=1,
    running=1,
    waiting=0,
    executions=(
        ExecutionProgress(
            fleet="lab", device="pi-2", state="running", done_ratio=0.4, note="run 3 of 8"
        ),
        ExecutionProgress(fleet="lab", device="pi-3", state="timed_out", note="not done in 60 s"),
    ),
)
STOPPED = JobProgress(
    job="measure-7", title="in waves", state="stopped", reason="wave 1 of 3: 3 of 10 failed",
    wave=1, waves=3, done=7, failed=3, running=0,
    repeating=2, waiting=90,
)  # fmt: skip


@pytest.fixture
def ledger(tmp_path):
    """Return a ledger with runs of three jobs, and one that was started by hand."""
    runs = [
        make_run(id=f"run-{job}", device="pi-1", job=job)
        for job in ("measure-1", "measure-7", "measure-8")
    ]
    return fill(tmp_path / "ledger.sqlite", [*runs, make_run(id="by-hand", device="pi-1")])


@pytest.fixture
def page(ledger, monkeypatch):
    """Return what the ledger's page answers to an address, and how a report gets there."""
    server = page_of(ledger)

    def show(view, form="", **fields):
        return server.answer(ViewRequest(view, fields), form).body.decode()

    def reported(*reports):
        of_reports = [
            (f"edgemeter/job/{it.job}/state", messages.encode_message(it)) for it in reports
        ]
        report(ledger, *(RetainedMessage(topic, payload, NOW_NS) for topic, payload in of_reports))

    monkeypatch.setattr("time.time_ns", lambda: NOW_NS)
    return show, reported


def test_jobs_are_listed_with_their_progress(page):
    """Each job leads to its own page, and JSON has the counts as numbers."""
    show, reported = page
    assert "No jobs" in show("jobs")
    reported(RUNNING, STOPPED)
    listed = show("jobs")
    assert 'href="/jobs?job=measure-1"' in listed
    assert "suite nightly: running; 1 done, 1 failed, 1 running of 3" in listed
    assert (
        "in waves: stopped (wave 1 of 3: 3 of 10 failed), wave 1 of 3; 7 done, 3 failed, 2 "
        "repeating, 90 waiting of 102"
    ) in listed
    assert "measure-1,suite nightly,running,1,1,1,0,0,0," in show("jobs", "csv")


def test_a_job_stands_with_its_devices_and_its_runs(page):
    """The page has only this job's devices and runs.

    A device that works on it has its progress, one that failed the reason.
    """
    show, reported = page
    reported(RUNNING)
    text = show("jobs", job="measure-1")
    for part in (
        'href="/run?id=run-measure-1"',
        "40%",
        "run 3 of 8",
        "timed out",
        "not done in 60 s",
        'href="/device?device=pi-2&amp;fleet=lab"',
    ):
        assert part in text, part
    assert "run-measure-7" not in text
    assert "by-hand" not in text


def test_names_and_notes_are_no_markup(page):
    """The texts come from boards; the page of a job has its runs only."""
    show, reported = page
    reported(
        STOPPED,
        msgspec.structs.replace(
            RUNNING,
            executions=(msgspec.structs.replace(RUNNING.executions[0], note=MARKUP),),
            title=MARKUP,
        ),
    )
    assert MARKUP not in show("jobs") + show("jobs", job="measure-1")
    text = show("jobs", job="measure-7")
    assert "run-measure-7" in text
    assert "run-measure-8" not in text
    assert "run-measure-1" not in text


def test_a_run_leads_to_its_job_also_when_nobody_reports_on_that_any_more(page):
    """The record names the job; a run that was started by hand has none."""
    show, _ = page
    assert 'href="/jobs?job=measure-7"' in show("run", id="run-measure-7")
    assert "run-measure-7" in show("jobs", job="measure-7")
    assert "/jobs?job=" not in show("run", id="by-hand")
    with pytest.raises(ConfigError, match="there is no job 'measure-9'"):
        show("jobs", job="measure-9")


def test_the_overview_shows_what_measures_now(page):
    """It shows a job while it runs, and a stopped one until its last device is done.

    Other jobs are on the page of jobs.
    """
    show, reported = page
    reported(RUNNING, msgspec.structs.replace(STOPPED, running=1))
    for text in ("Job measure-1", "Job measure-7"):
        assert text in show("overview")
    reported(msgspec.structs.replace(RUNNING, state="done", done=2, running=0), STOPPED)
    for text in ("Job measure-1", "Job measure-7", "Measuring now"):
        assert text not in show("overview")
    assert "Job measure-7" in show("jobs")
