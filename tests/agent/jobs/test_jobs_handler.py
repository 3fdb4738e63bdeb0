"""Facts about orders: journalled first, done once, in their turn, ended in time, refused with a reason."""

import random
import subprocess
import sys
from types import SimpleNamespace

import msgspec
import pytest

from edgemeter.agent.base import config
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.file_lock import RunLock
from edgemeter.agent.contract import orders
from edgemeter.agent.contract.orders import Cancel, Content, Doctor, Logs, Measure, ReportReceipt, Restart, Schedule, Update
from edgemeter.agent.jobs import jobs_handler, journal
from edgemeter.agent.jobs.journal import Journal
from tests.agent.jobs.driver import Driver, records_in, suite

# A device takes no order that is not signed.
pytestmark = [pytest.mark.services, pytest.mark.needs("openssl")]

ABSENT = Content(sha256="e" * 64, size_bytes=10, name="suite.toml")


def kept_runs(home):
    """Return the ids of the runs in the outbox."""
    return [record["id"] for record in records_in(home)]


def test_a_suite_is_fetched_and_measured_and_its_runs_are_named(device):
    """The report names the records that are in the outbox, and nothing is left of the work."""
    device.order(device.measure(suite(repeats=2)))
    final = device.final()
    assert final.state == "done", final
    assert len(final.runs) == 2
    assert list(final.runs) == kept_runs(device.home)
    assert {record["job"] for record in records_in(device.home)} == {final.job}
    assert device.states() in (["accepted", "running", "done"], ["accepted", "done"])
    assert not list((device.home / "job-work").iterdir())


def test_what_an_order_measures_is_reported_run_by_run_and_its_end(device):
    """Each run as it begins, with suite and job; then that nothing is measured. At a start, and with a connection, too."""
    assert device.activities == [None]
    device.order(device.measure(suite(repeats=2)), job="nightly-7")
    device.final("nightly-7")
    # Its process ends after its result.
    assert device.until(lambda: device.activities[-1] is None)
    runs = [(activity.suite, activity.run, activity.runs, activity.failed, activity.job) for activity in device.activities[1:-1]]
    assert runs == [("nightly", 1, 2, 0, "nightly-7"), ("nightly", 2, 2, 0, "nightly-7")]
    assert "m.replay.json" in device.activities[1].case


def test_an_order_that_is_cancelled_measures_nothing_any_more(device):
    """Its process is ended, and that is reported."""
    device.order(device.measure(suite(seconds=60)))
    assert device.until(lambda: device.activities[-1] is not None)
    device.order(Cancel())
    assert device.final().state == "cancelled"
    assert device.until(lambda: device.activities[-1] is None)


def test_a_connection_while_an_order_is_measured_brings_nothing_about_it(device):
    """It may come while queries are timed; nor is a run that somebody started by hand called over."""
    device.order(device.measure(suite(seconds=60)))
    assert device.until(lambda: device.activities[-1] is not None)
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
    """Before, after its end, and after a restart of the agent."""
    work = device.measure()
    for _ in range(3):
        device.order(work)
    runs = device.final().runs
    device.reports.clear()
    device.order(work, version=9)
    report = device.final()
    assert (report.state, report.runs, report.expected_version) == ("done", runs, 9)
    device.stop()
    device.start()
    device.reports.clear()
    device.order(work, version=11)
    assert (device.final().runs, device.reports[-1].expected_version) == (runs, 11)
    assert kept_runs(device.home) == list(runs)


def test_orders_are_done_one_at_a_time_in_the_order_of_arrival(device):
    """The second begins when the first has ended."""
    device.order(device.measure(), job="first")
    device.order(Logs(), job="second")
    device.order(device.measure(), job="third")
    assert {device.final(job).state for job in ("first", "second", "third")} == {"done"}
    with_times = {entry.order.job: entry for entry in Journal(device.home / journal.JOURNAL_FILE).latest(3)}
    assert with_times["first"].ended_ns <= with_times["second"].started_ns
    assert with_times["second"].ended_ns <= with_times["third"].started_ns


def test_what_runs_at_a_restart_is_interrupted_and_publishes_nothing_more(device):
    """And is not begun again, although the order comes again."""
    device.order(device.measure(suite(seconds=30)))
    assert device.until(lambda: "running" in device.states())
    device.stop()
    device.start()
    final = device.final()
    assert (final.state, final.reason) == ("failed", "interrupted by a restart")
    device.order(device.measure(suite(seconds=30)), version=7)
    assert device.until(lambda: len([report for report in device.reports if report.state == "failed"]) > 1)
    assert device.states() == ["accepted", "running", "failed"]
    assert kept_runs(device.home) == []


def test_what_waits_at_a_restart_is_done_after_it(device):
    """It was accepted, and not begun."""
    device.contents.clear()
    work = device.measure()
    contents, device.contents = device.contents, {}
    device.change = lambda _payload: None
    device.order(work)
    assert device.until(lambda: device.states() == ["accepted"])
    device.stop()
    device.contents, device.change = contents, lambda payload: payload
    device.start()
    assert device.final().state == "done"


def test_cancel_ends_the_process_and_publishes_nothing(device):
    """While it runs; the group of processes is gone and the next order begins."""
    device.order(device.measure(suite(seconds=60)))
    assert device.until(lambda: "running" in device.states())
    device.order(Cancel(), version=5)
    assert device.final().state == "cancelled"
    device.order(device.measure(), job="next")
    assert device.final("next").state == "done"
    assert kept_runs(device.home) == list(device.final("next").runs)


def test_cancel_of_what_waits_has_ended_or_never_came(device):
    """What waits is not begun; what is done stays done; what comes later is not done."""
    device.order(device.measure(suite(seconds=3)), job="first")
    device.order(device.measure(), job="waits")
    device.order(Cancel(), job="waits", version=2)
    device.order(Cancel(), job="never", version=1)
    device.order(device.measure(), job="never", version=1)
    assert device.final("first").state == "done"
    assert device.final("waits").state == "cancelled"
    assert device.final("never").state == "cancelled"
    device.order(Cancel(), job="first", version=8)
    assert device.until(lambda: device.reports[-1].expected_version == 8)
    assert device.reports[-1].state == "done"
    assert len(kept_runs(device.home)) == 1


def test_a_job_that_takes_too_long_is_ended(device):
    """By the device's own clock; its processes are gone."""
    device.order(device.measure(suite(seconds=60)), timeout_s=4.0)
    final = device.final()
    assert final.state == "timed_out"
    assert "4 s" in final.reason
    device.order(Logs(), job="next")
    assert device.final("next").state == "done"


def test_a_later_attempt_takes_the_place_of_an_earlier_one(device):
    """And an earlier one that comes after it is not done."""
    device.order(device.measure(suite(seconds=60)))
    assert device.until(lambda: "running" in device.states())
    device.order(device.measure(), attempt=3, version=4)
    assert device.final(attempt=1).state == "cancelled"
    assert device.final(attempt=3).state == "done"
    device.order(device.measure(), attempt=2, version=2)
    late = device.final(attempt=2)
    assert late.state == "rejected"
    assert "attempt 3" in late.reason


def test_a_job_waits_while_somebody_measures_by_hand(device):
    """And names who that is."""
    by_hand = RunLock(device.home)
    assert by_hand.take("edgemeter run")
    device.order(device.measure())
    assert device.until(
        lambda: any(report.reason and report.reason.startswith("busy: waiting for edgemeter run") for report in device.reports)
    )
    assert device.states() == ["accepted"]
    by_hand.release()
    assert device.final().state == "done"


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (Schedule(name="x", cron="61 * * * *", work=Measure(suite=ABSENT)), "is not a schedule"),
        (Restart(what="board"), "no supervisor"),
        (Update(version="1.0", bundle=ABSENT), "release"),
        (Measure(suite=ABSENT), "the server has no content eeeeeeeeeeee"),
    ],
)
def test_what_cannot_be_done_here_is_rejected_with_a_reason(device, work, reason):
    """Nothing of it is begun."""
    device.order(work)
    final = device.final()
    assert final.state == "rejected"
    assert reason in final.reason
    assert "running" not in device.states()


def test_a_restart_by_nobody_is_rejected(device, monkeypatch):
    """An agent that was started by hand would stay away."""
    for name in ("INVOCATION_ID", "NOTIFY_SOCKET"):
        monkeypatch.delenv(name, raising=False)
    device.order(Restart())
    assert "no service manager" in device.final().reason


@pytest.mark.parametrize(
    ("document", "models", "reason"),
    [
        (b'name = "x"\n[[case]]\nmodel = "other.tflite"\n', (), "unknown model 'other.tflite'"),
        (b'name = "x"\n[[case]]\nmodel = "/etc/passwd"\n', (), "refused"),
        (b'name = "x"\n[[case]]\nmodel = "edgemeter-shapes_int8.tflite"\ndata = "photos"\n', (), "unknown photographs 'photos'"),
        (b'name = "x"\n[[case]]\nmodel = "m.replay.json"\ndata = "../photos"\n', (), "no path"),
        (b'name = "x"\n[[case]]\nmodel = "m.xyz"\nruntime = "nothing"\n', (("m.xyz", b"x"),), "nothing"),
        (b'name = "x"\n[[case]]\nmodel = "m.replay.json"\n', (("m.replay.json", b"\0"),), "'m.replay.json' is not a replay model"),
    ],
)
def test_a_suite_that_is_not_for_this_board_is_rejected(device, document, models, reason):
    """Whole, with a reason, and nothing measured."""
    device.order(device.measure(document, models))
    final = device.final()
    assert final.state == "rejected", final
    assert reason in final.reason
    assert kept_runs(device.home) == []


def test_too_many_orders_are_refused(device):
    """Those that wait stay."""
    device.order(device.measure(suite(seconds=30)), job="first")
    for number in range(jobs_handler.MOST_WAITING):
        device.order(Logs(), job=f"more-{number}")
    assert device.final(f"more-{jobs_handler.MOST_WAITING - 1}").reason.startswith("busy")
    assert device.states("more-0") == ["accepted"]


def test_a_restart_of_the_agent_is_done_when_it_is_back(device, monkeypatch):
    """Once, although the order comes again."""
    monkeypatch.setenv("INVOCATION_ID", "x")
    device.order(Restart())
    assert device.until(lambda: device.restarts == 1)
    assert "done" not in device.states()
    device.stop()
    device.start()
    assert device.final().reason == "the agent was restarted"
    device.order(Restart(), version=6)
    assert device.until(lambda: device.reports[-1].expected_version == 6)
    assert device.restarts == 1


def test_a_restart_of_the_board_is_the_supervisors_and_done_in_the_next_boot(device):
    """A start of the agent alone is not it; nobody measures meanwhile, and the lock is free for the supervisor."""
    (device.home / "update").mkdir()
    device.order(Restart(what="board"))
    assert device.until((device.home / "update" / "reboot").exists)
    lock = RunLock(device.home)
    assert lock.take("supervisor")
    lock.release()
    device.order(device.measure(), job="next")
    device.stop()
    device.start()
    assert not device.until(lambda: "done" in device.states(), 2.0)
    device.stop()
    device.boot_id = "boot-2"
    device.start()
    assert device.final().reason == "the board was restarted"
    assert device.final("next").state == "done"


def test_a_board_that_is_not_started_anew_in_time_is_asked_no_more(device):
    """The request goes with the order."""
    (device.home / "update").mkdir()
    device.order(Restart(what="board"), timeout_s=1.0)
    assert device.final().state == "timed_out"
    assert not (device.home / "update" / "reboot").exists()


def test_the_log_and_the_doctors_findings_come_as_text(device):
    """The text of the report holds the log without its secrets, or the findings of the doctor as JSON."""
    device.order(Logs(lines=5), job="logs")
    logs = device.final("logs")
    assert "agent of 'pi-1'" in logs.text
    assert "hunter2" not in logs.text
    device.order(Doctor(), job="doctor")
    assert msgspec.json.decode(device.final("doctor").text)["findings"]


def test_a_schedule_needs_its_content_once_and_no_connection_after(device):
    """Set while connected, due while not: measured, and not reported to a server that ordered no such job."""
    device.order(Schedule(name="nightly", cron="* * * * *", work=device.measure()))
    assert device.final().state == "done"
    assert "next" in device.final().reason
    device.is_connected, device.contents = False, {}
    book = Journal(device.home / journal.JOURNAL_FILE)
    with book.transaction() as connection:
        connection.execute("UPDATE schedules SET next_ns = 1")
    device.handler._schedules._is_right = lambda: True
    assert device.until(lambda: any(entry.schedule and entry.state == "done" for entry in book.latest(5)))
    assert len(kept_runs(device.home)) == 1
    device.is_connected = True
    device.handler.connected()
    device.handler.poll()
    assert {report.job for report in device.reports} == {"job-1"}
    device.order(Schedule(name="nightly"), job="end")
    assert "ended" in device.final("end").reason
    assert book.query("SELECT * FROM schedules") == []
    book.close()


def test_a_malformed_order_is_refused_whole_and_reported_where_it_names_its_job(device):
    """A path, an unknown field, a shell text: nothing of it stands in the journal."""
    order = {"job": "job-1", "attempt": 1, "version": 3, "timeout_s": 9, "work": {"type": "logs"}}
    for wrong in ({"shell": "reboot"}, {"work": {"type": "measure", "suite": "/etc/passwd"}}, {"work": {"type": "shell"}}):
        with pytest.raises(ConfigError, match="not an order"):
            device.say(device.signer.sealed(msgspec.json.encode(order | wrong)))
        assert (device.reports[-1].state, device.reports[-1].expected_version) == ("rejected", 3)
    assert Journal(device.home / journal.JOURNAL_FILE).latest(5) == []


def test_garbage_changes_nothing(device):
    """Thousands of random and half-right payloads on both topics, and ten megabytes."""
    draw = random.Random(0)  # noqa: S311 - the same every time
    device.order(device.measure(suite(seconds=1)))
    right = device.signer.sealed(orders.encode_order(ReportReceipt(noted="job-1", attempt=1, version=2)))
    for number in range(2000):
        payload = bytearray(right if number % 2 else draw.randbytes(draw.randrange(200)))
        for _ in range(draw.randrange(1, 4)):
            if payload:
                payload[draw.randrange(len(payload))] = draw.randrange(256)
        for kind in ("command", "content"):
            try:
                device.say(bytes(payload), kind)
            except ConfigError:
                continue
    for payload in (b"[" * 100_000, b"{" * (10 << 20), b"\n" * 1000, b"\xff" * 300_000):
        for kind in ("command", "content"):
            with pytest.raises(ConfigError):
                device.say(payload, kind)
    assert device.final().state == "done"
    assert [entry.order.job for entry in Journal(device.home / journal.JOURNAL_FILE).latest(9)] == ["job-1"]


def test_a_wrong_acknowledgement_is_mended_by_the_next_order(device):
    """The report that it hid is sent when the server asks again."""
    device.acknowledges = False
    work = device.measure()
    device.order(work)
    assert device.until(lambda: "accepted" in device.states())
    for job, version in (("job-1", 2**52), ("other", 5)):
        device.say(device.signer.sealed(orders.encode_order(ReportReceipt(noted=job, attempt=1, version=version))))
    book = Journal(device.home / journal.JOURNAL_FILE)
    assert device.until(lambda: book.latest(1)[0].state == "done")
    book.close()
    device.say(device.signer.sealed(orders.encode_order(ReportReceipt(noted="job-1", attempt=1, version=2**53 - 1))))
    device.acknowledges = True
    device.reports.clear()
    device.order(work, version=1)
    assert device.final().expected_version == 1
    assert device.final().runs


def test_a_disk_without_space_rejects_the_order(tmp_path):
    """Before anything of it is fetched."""
    driver = Driver(tmp_path, config.Config())
    driver.order(Measure(suite=Content(sha256="a" * 64, size_bytes=1 << 50, name="suite.toml")))
    final = driver.final()
    driver.stop()
    assert final.state == "rejected"
    assert "no space" in final.reason
    assert driver.wants == []


def test_the_processes_of_a_job_end_with_an_agent_that_is_killed(device):
    """SIGKILL of the agent: nothing of the job measures on."""
    device.order(device.measure(suite(seconds=60)))
    assert device.until(lambda: "running" in device.states())
    running = device.handler._running
    group = running._process.pid
    # What SIGKILL of the owner does: its end of the pipe goes.
    running._process.stdin.close()
    running._process.stdin = None
    assert device.until(lambda: not alive(group), 10.0)
    final = device.final()
    assert final.state == "failed"
    assert "SIGKILL" in final.reason


def alive(group):
    """Return whether a process of the group is there, that is more than a zombie."""
    listed = subprocess.run(["ps", "-o", "stat=", "-g", str(group)], capture_output=True, text=True, check=False).stdout
    return any(not state.startswith("Z") for state in listed.split())


def test_the_child_needs_no_agent_to_write_its_end(tmp_path):
    """Nothing but the standard input and the journal: a task that is none ends it with a status."""
    completed = subprocess.run(
        [sys.executable, "-m", "edgemeter.agent.jobs.execute"], input=b"{}\n", capture_output=True, cwd=tmp_path, check=False
    )
    assert completed.returncode != 0


def begun_update(device):
    """Leave an update in the journal that had begun when the power went."""
    device.stop()
    book = Journal(device.home / journal.JOURNAL_FILE)
    content = device.hold(b"a release", "bundle.tar")
    order = orders.Order(job="job-1", attempt=1, version=1, work=Update(version="9.9", bundle=content), timeout_s=60.0)
    book.begins(book.add(order).place, "boot-0")
    book.close()


def test_an_update_that_ended_beyond_a_restart_is_reported_by_who_runs_then(device, monkeypatch):
    """As the supervisor says; what waits behind it begins only then."""
    begun_update(device)
    outcomes = [("done", "version 9.9 runs")]
    updates = SimpleNamespace(came_of=lambda _order, _home: outcomes.pop() if outcomes else None, why_waiting=lambda *_: None)
    monkeypatch.setattr(jobs_handler, "update_orders", lambda: updates)
    device.start()
    final = device.final()
    assert (final.state, final.reason) == ("done", "version 9.9 runs")


def test_an_update_that_waits_for_its_supervisor_reports_that_until_it_runs(device, monkeypatch):
    """The server reads the reason while it lasts, and the end once the supervisor has come back."""
    begun_update(device)
    monkeypatch.setattr(jobs_handler, "RUNNING_POLL_S", 0.05)
    state = {"outcome": None, "why": "waiting for edgemeter-supervisor.service, which does not run"}
    updates = SimpleNamespace(
        came_of=lambda _order, _home: state["outcome"], why_waiting=lambda *_: state["why"], carry_out=lambda *_: None
    )
    monkeypatch.setattr(jobs_handler, "update_orders", lambda: updates)
    monkeypatch.setattr(jobs_handler.JobsHandler, "_start", lambda handler, entry: setattr(handler, "_started_place", entry.place))
    device.start()
    assert device.until(lambda: any(report.reason == state["why"] and report.state == "running" for report in device.reports))
    state["why"] = None
    assert device.until(lambda: device.reports[-1].reason is None)
    state["outcome"] = ("done", "version 9.9 runs")
    assert device.final().state == "done"


def test_an_update_whose_request_may_be_lost_is_requested_again(device):
    """The power went between the journal and the supervisor: here, where there is none, that ends it with a reason."""
    begun_update(device)
    device.start()
    final = device.final()
    assert final.state == "rejected"
    assert "release" in final.reason
