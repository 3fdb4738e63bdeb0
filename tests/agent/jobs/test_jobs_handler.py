"""Orders are journalled first, done once and in turn, ended in time, or refused with a reason."""

import contextlib
import random
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.file_lock import RunLock
from edgemeter.agent.contract import orders
from edgemeter.agent.contract.orders import (
    Cancel,
    Content,
    Logs,
    Measure,
    ReportReceipt,
    Restart,
    Update,
)
from edgemeter.agent.jobs import jobs_handler, journal, repeating
from edgemeter.agent.jobs.jobs_handler import FIRST_REPORT_PAUSE_S, LOCK_POLL_S
from edgemeter.agent.jobs.journal import Journal

ABSENT = Content(sha256="e" * 64, size_bytes=10, name="suite.toml")


def wait(_execution):
    """Play a process that measures on."""


@pytest.fixture
def book(device):
    with Journal(device.home / journal.JOURNAL_FILE) as opened:
        yield opened


def test_an_order_is_carried_out_once_its_content_is_here_and_its_end_is_reported(device):
    """The process gets the order and its contents' paths; the report names the stored runs."""

    def plays(execution):
        execution.measure(1, 2)
        execution.measure(2, 2)
        execution.finish()

    device.plays = plays
    work = device.measure()
    device.order(work, job="nightly-7")
    final = device.final("nightly-7")
    assert (final.state, final.runs) == ("done", ("run-1", "run-2"))
    device.turn()
    (execution,) = device.executions
    assert execution.task.order.work == work
    assert {Path(path).read_bytes() for path in execution.task.contents.values()} == set(
        device.contents.values()
    )
    runs = [
        (activity.suite, activity.run, activity.runs, activity.failed, activity.job)
        for activity in device.activities[1:-1]
    ]
    assert runs == [("nightly", 1, 2, 0, "nightly-7"), ("nightly", 2, 2, 0, "nightly-7")]
    assert (device.activities[0], device.activities[-1]) == (None, None)


def test_a_process_that_leaves_no_end_has_failed(device):
    """The report says how the process ended, for example that it was killed for lack of memory."""
    device.plays = lambda execution: execution.leave(9)
    device.order(device.measure())
    final = device.final()
    assert final.state == "failed"
    assert "status 9" in final.reason


def test_how_far_a_job_is_is_reported_as_it_goes(device):
    """The present step and the share that is done are not sent as acknowledged reports."""
    device.plays = wait
    device.order(device.measure())
    execution = device.running()
    report_count = len(device.reports)
    for run in (1, 2, 3):
        execution.measure(run, 4)
        device.go_on(2)
    assert device.doings[-3:] == ["run 1", "run 2", "run 3"]
    assert device.ratios[-3:] == [0.25, 0.5, 0.75]
    assert len(device.reports) == report_count


def test_a_connection_while_an_order_is_measured_brings_nothing_about_it(device):
    """A new connection does not change the activity that is shown for a run in progress.

    It may come while queries are timed. Nor does it declare a run over that somebody started by
    hand.
    """
    device.plays = wait
    device.order(device.measure())
    device.running().measure(1)
    before = list(device.activities)
    device.handler.connected()
    assert device.activities == before
    device.order(Cancel())
    device.final()
    count = len(device.activities)
    lock = RunLock(device.home)
    assert lock.take("edgemeter run")
    device.handler.connected()
    assert len(device.activities) == count
    lock.release()
    device.handler.connected()
    assert device.activities[count:] == [None]


def test_an_order_that_comes_again_is_acknowledged_and_not_done_again(device):
    """The order may come again before or after its end, and after a restart of the agent."""
    work = device.measure()
    for _ in range(3):
        device.order(work)
    device.final()
    device.reports.clear()
    device.order(work, version=9)
    assert (device.final().state, device.final().expected_version) == ("done", 9)
    device.stop()
    device.start()
    device.reports.clear()
    device.order(work, version=11)
    assert device.final().expected_version == 11
    assert len(device.executions) == 1


def test_a_report_goes_again_until_it_is_acknowledged_and_with_a_connection(device):
    """The report is sent at growing intervals, because it or its acknowledgement may be lost."""
    device.acknowledges = False
    device.order(Logs())
    device.go_on()
    assert len(device.reports) == 1
    for seconds, count in (
        (FIRST_REPORT_PAUSE_S - 0.1, 1),
        (0.1, 2),
        (2 * FIRST_REPORT_PAUSE_S - 0.1, 2),
        (0.1, 3),
    ):
        device.now_s += seconds
        device.go_on(2)
        assert len(device.reports) == count
    device.handler.connected()
    device.acknowledges = True
    device.go_on(3)
    assert len(set(device.reports[:4])) == 1
    assert device.states() == ["done"]


def test_orders_are_done_one_at_a_time_in_the_order_of_arrival(device):
    """The second order begins when the first has ended."""
    device.plays = wait
    for job in ("first", "second", "third"):
        device.order(device.measure(), job=job)
    for job in ("first", "second", "third"):
        execution = device.running()
        assert execution.task.order.job == job
        execution.finish()
    assert device.final("third").state == "done"
    assert len(device.executions) == 3


def test_what_runs_at_a_restart_is_interrupted_and_publishes_nothing_more(device):
    """The job is not started again, although the order is delivered again."""
    device.plays = wait
    work = device.measure()
    device.order(work)
    execution = device.running()
    device.stop()
    assert execution.is_killed
    device.start()
    final = device.final()
    assert (final.state, final.reason) == ("failed", "interrupted by a restart")
    device.order(work, version=7)
    device.go_on()
    assert [report.state for report in device.reports[-2:]] == ["failed", "failed"]
    assert device.states() == ["accepted", "running", "failed"]
    assert len(device.executions) == 1


@pytest.mark.parametrize(("runs", "state"), [(2, "failed"), (1, "done")])
def test_what_was_measured_to_its_last_run_at_a_restart_is_done(device, runs, state):
    """If a job with all runs but no recorded end were repeated, its results would be doubled."""
    device.plays = wait
    device.order(device.measure())
    device.running().measure(1, runs)
    device.stop()
    device.start()
    final = device.final()
    assert (final.state, final.runs, final.reason) == (
        state,
        ("run-1",),
        "interrupted by a restart",
    )


def test_what_waits_at_a_restart_is_done_after_it(device):
    """The order was accepted before the restart but had not begun."""
    device.change = lambda _data: b""
    device.order(device.measure())
    device.go_on()
    assert device.states() == ["accepted"]
    device.stop()
    device.change = lambda payload: payload
    device.start()
    assert device.final().state == "done"


def test_cancel_ends_the_process_and_the_next_order_begins(device):
    """A job is cancelled while it runs, and the report says that nothing is measured any more."""
    device.plays = wait
    device.order(device.measure())
    device.running().measure(1)
    device.order(Cancel(), version=5)
    assert device.final().state == "cancelled"
    assert device.executions[0].is_killed
    assert device.activities[-1] is None
    device.order(device.measure(), job="next")
    device.running().finish()
    assert device.final("next").state == "done"


def test_cancel_of_what_waits_has_ended_or_never_came(device):
    """A waiting job is not begun, a finished one stays done, and a later order is not done."""
    device.plays = wait
    device.order(device.measure(), job="first")
    device.order(device.measure(), job="waits")
    device.order(Cancel(), job="waits", version=2)
    device.order(Cancel(), job="never", version=1)
    device.order(device.measure(), job="never", version=1)
    device.running().finish()
    assert device.final("first").state == "done"
    assert device.final("waits").state == "cancelled"
    assert device.final("never").state == "cancelled"
    device.order(Cancel(), job="first", version=8)
    device.go_on()
    assert (device.reports[-1].expected_version, device.reports[-1].state) == (8, "done")
    assert len(device.executions) == 1


def test_a_job_that_takes_too_long_is_ended(device):
    """The time limit counts from the order's arrival, by the device's own clock."""
    device.plays = wait
    device.order(device.measure(), timeout_s=4.0)
    execution = device.running()
    device.now_s += 3.9
    device.go_on()
    assert not execution.is_killed
    device.now_s += 0.1
    final = device.final()
    assert final.state == "timed_out"
    assert "4 s" in final.reason
    assert execution.is_killed


def test_a_later_attempt_takes_the_place_of_an_earlier_one(device):
    """An earlier attempt that arrives after it is not done."""
    device.plays = wait
    device.order(device.measure())
    device.running()
    device.order(device.measure(), attempt=3, version=4)
    assert device.final(attempt=1).state == "cancelled"
    device.running().finish()
    assert device.final(attempt=3).state == "done"
    device.order(device.measure(), attempt=2, version=2)
    late = device.final(attempt=2)
    assert late.state == "rejected"
    assert "attempt 3" in late.reason


def test_a_job_waits_while_somebody_measures_by_hand(device):
    """The reason names who holds the run lock."""
    by_hand = RunLock(device.home)
    assert by_hand.take("edgemeter run")
    device.order(device.measure())
    device.go_on()
    assert device.states() == ["accepted"]
    assert device.reports[-1].reason.startswith("busy: waiting for edgemeter run")
    assert device.turn() <= LOCK_POLL_S
    by_hand.release()
    assert device.final().state == "done"


def test_what_cannot_be_done_here_is_rejected_with_a_reason(device, monkeypatch):
    """No part of a rejected order is begun."""
    for name in ("INVOCATION_ID", "NOTIFY_SOCKET"):
        monkeypatch.delenv(name, raising=False)
    for work, reason in [
        (Restart(what="board"), "no supervisor"),
        (Restart(), "no service manager"),
        (Update(version="1.0", bundle=ABSENT), "release"),
        (Measure(suite=ABSENT), "404"),
        (
            Measure(suite=Content(sha256="a" * 64, size_bytes=1 << 50, name="suite.toml")),
            "no space",
        ),
    ]:
        job = f"job-{reason.replace(' ', '-')}"
        device.order(work, job=job)
        final = device.final(job)
        assert final.state == "rejected"
        assert reason in final.reason
    assert device.executions == []


def test_too_many_orders_are_refused(device):
    """The orders that already wait are kept."""
    device.plays = wait
    for number in range(jobs_handler.MOST_WAITING + 1):
        device.order(Logs(), job=f"job-{number}")
    device.go_on()
    assert device.states(f"job-{jobs_handler.MOST_WAITING}") == ["rejected"]
    assert device.states(f"job-{jobs_handler.MOST_WAITING - 1}") == ["accepted"]


def test_a_restart_of_the_agent_is_done_when_it_is_back(device, monkeypatch):
    """The agent restarts once, although the order comes again."""
    monkeypatch.setenv("INVOCATION_ID", "x")
    device.order(Restart())
    device.go_on()
    assert device.restarts == 1
    assert "done" not in device.states()
    device.stop()
    device.start()
    assert device.final().reason == "the agent was restarted"
    device.order(Restart(), version=6)
    device.go_on()
    assert device.reports[-1].expected_version == 6
    assert device.restarts == 1


def test_a_restart_of_the_board_is_the_supervisors_and_done_in_the_next_boot(device):
    """A restart of the agent alone does not complete the order.

    Nothing is measured meanwhile, and the run lock is free for the supervisor.
    """
    (device.home / "update").mkdir()
    device.order(Restart(what="board"))
    device.go_on()
    assert (device.home / "update" / "reboot").exists()
    lock = RunLock(device.home)
    assert lock.take("supervisor")
    lock.release()
    device.order(device.measure(), job="next")
    device.stop()
    device.start()
    device.go_on()
    assert "done" not in device.states()
    device.stop()
    device.boot_id = "boot-2"
    device.start()
    assert device.final().reason == "the board was restarted"
    assert device.final("next").state == "done"


def test_a_board_that_is_not_started_anew_in_time_is_asked_no_more(device):
    """The restart request is removed when its order ends."""
    (device.home / "update").mkdir()
    device.order(Restart(what="board"), timeout_s=10.0)
    assert device.final().state == "timed_out"
    assert not (device.home / "update" / "reboot").exists()


def test_a_repeated_order_needs_its_content_once_and_no_connection_after(device, book, monkeypatch):
    """A repetition that is due while the device is offline is measured and ends when cancelled.

    Its runs are not reported as jobs, since the server ordered no such jobs.
    """
    monkeypatch.setattr(repeating.ClockTrust, "is_right", lambda _trust: True)
    device.order(msgspec.structs.replace(device.measure(), at="04:30"))
    device.go_on()
    assert device.states()[-1] == "repeating"
    assert device.reports[-1].reason == "each day at 04:30"
    device.is_connected, device.contents = False, {}
    book.repeat_next(book.repeating()[0].place, 1)
    device.go_on()
    assert [(entry.repeats, entry.state) for entry in book.latest(1)] == [("job-1", "done")]
    device.is_connected = True
    device.handler.connected()
    device.stop()
    device.start()
    device.go_on()
    assert {report.job for report in device.reports} == {"job-1"}
    device.order(Cancel(), version=9)
    assert device.final().state == "cancelled"
    assert book.repeating() == []


def test_a_cancelled_repetition_ends_the_run_in_progress(device, book, monkeypatch):
    """The run in progress ends at once, and no further run begins."""
    monkeypatch.setattr(repeating.ClockTrust, "is_right", lambda _trust: True)
    device.plays = wait
    device.order(msgspec.structs.replace(device.measure(), every_s=60))
    device.running()
    device.order(Cancel())
    assert device.final().state == "cancelled"
    assert {entry.state for entry in book.latest(9)} == {"cancelled"}
    assert device.executions[0].is_killed


def test_a_malformed_order_is_refused_whole_and_reported_where_it_names_its_job(device, book):
    """Paths, unknown fields and shell text are refused, and none of it enters the journal."""
    order = {"job": "job-1", "attempt": 1, "version": 3, "timeout_s": 9, "work": {"type": "logs"}}
    for wrong in (
        {"shell": "reboot"},
        {"work": {"type": "measure", "suite": "/etc/passwd"}},
        {"work": {"type": "shell"}},
    ):
        with pytest.raises(ConfigError, match="not an order"):
            device.say(device.signer.sealed(msgspec.json.encode(order | wrong)))
        assert (device.reports[-1].state, device.reports[-1].expected_version) == ("rejected", 3)
    assert book.latest(5) == []


def test_garbage_changes_nothing(device, book):
    """Hundreds of random, nearly correct and large payloads are ignored."""
    draw = random.Random(0)  # noqa: S311 - the same every time
    device.order(device.measure())
    right = device.signer.sealed(
        orders.encode_order(ReportReceipt(noted="job-1", attempt=1, version=2))
    )
    for number in range(300):
        payload = bytearray(right if number % 2 else draw.randbytes(draw.randrange(200)))
        for _ in range(draw.randrange(1, 4)):
            if payload:
                payload[draw.randrange(len(payload))] = draw.randrange(256)
        with contextlib.suppress(ConfigError):
            device.say(bytes(payload))
    for payload in (b"[" * 100_000, b"{" * (1 << 20), b"\n" * 1000, b"\xff" * 300_000):
        with pytest.raises(ConfigError):
            device.say(payload)
    assert device.final().state == "done"
    assert [entry.order.job for entry in book.latest(9)] == ["job-1"]


def test_a_wrong_acknowledgement_is_mended_by_the_next_order(device, book):
    """A report that a wrong acknowledgement suppressed is sent when the server asks again."""
    device.acknowledges = False
    work = device.measure()
    device.order(work)
    device.go_on(1)
    for job, version in (("job-1", 2**52), ("other", 5)):
        device.say(
            device.signer.sealed(
                orders.encode_order(ReportReceipt(noted=job, attempt=1, version=version))
            )
        )
    device.go_on()
    assert book.latest(1)[0].state == "done"
    device.say(
        device.signer.sealed(
            orders.encode_order(ReportReceipt(noted="job-1", attempt=1, version=2**53 - 1))
        )
    )
    device.acknowledges = True
    device.reports.clear()
    device.order(work, version=1)
    assert device.final().expected_version == 1


def test_an_update_that_waits_for_its_supervisor_reports_that_until_it_ends(device, monkeypatch):
    """The same update request is repeated when the agent is killed before it is noted.

    The server reads the reason while the update waits, and the end from the release that runs then.
    """
    state = {"outcome": None, "why": "waiting for edgemeter-supervisor.service, which does not run"}
    requests = []

    def request(order, _home):
        requests.append(order)
        if len(requests) == 1:
            raise KeyboardInterrupt

    updates = SimpleNamespace(
        check=lambda _work: None,
        carry_out=request,
        came_of=lambda _order: state["outcome"],
        why_waiting=lambda _order: state["why"],
    )
    monkeypatch.setattr(jobs_handler, "update_order", updates)
    device.order(Update(version="9.9", bundle=device.hold(b"a release", "bundle.tar")))
    with pytest.raises(KeyboardInterrupt):
        device.go_on()
    device.stop()
    for _ in range(2):
        device.start()
        device.go_on()
        assert len(requests) == 2
        assert requests[0] == requests[1]
        device.stop()
    device.start()
    device.go_on()
    assert device.executions == []
    assert (device.reports[-1].state, device.reports[-1].reason) == ("running", state["why"])
    state["why"] = None
    device.go_on()
    assert device.reports[-1].reason is None
    device.order(device.measure(), job="next")
    device.go_on()
    assert device.states("next") == ["accepted"]
    state["outcome"] = ("done", "version 9.9 runs")
    assert (device.final().state, device.final().reason) == state["outcome"]
    assert device.running().task.order.job == "next"
