"""Facts about orders carried out by an agent that stays, over a real broker, killed and started again."""

import random
import signal
import socket
import time

import pytest

from edgemeter.agent.base import file_lock
from edgemeter.agent.contract.orders import Measure
from tests.agent.jobs.driver import REPLAY, records_in, suite
from tests.agent.jobs.fleet_server import LONG_S
from tests.fixtures.mqtt_peer import wait_until

KILLS = 6

pytestmark = pytest.mark.mosquitto


def measure(server, seconds=0, repeats=1):
    """Return the work of measuring a suite whose files the server holds."""
    return Measure(suite=server.hold(suite(seconds, repeats), "suite.toml"), models=(server.hold(REPLAY, "m.replay.json"),))


def test_a_suite_is_fetched_measured_and_reported(server, agent):
    """By the broker: one message as each run begins, before the first query of its timed part, and one after the last run."""
    agent.start()
    assert wait_until(lambda: server.activities, LONG_S)
    server.activities.clear()
    server.order(measure(server, seconds=1, repeats=2))
    final = server.final()
    assert final.state == "done", final
    assert wait_until(lambda: len(server.activities) == 3, LONG_S)
    (first_ns, first), (second_ns, second), (end_ns, end) = server.activities
    assert [
        activity.measuring and (activity.measuring.run, activity.measuring.runs, activity.measuring.job)
        for activity in (first, second, end)
    ] == [(1, 2, "job-1"), (2, 2, "job-1"), None]
    records = records_in(agent.home)
    assert [record["id"] for record in records] == list(final.runs)
    windows = [(record["windows"]["timed_start_ns"], record["windows"]["timed_end_ns"]) for record in records]
    (begin_ns, length_ns), (later_ns, later_length_ns) = windows
    assert first_ns < begin_ns < begin_ns + length_ns < second_ns < later_ns < later_ns + later_length_ns < end_ns
    assert any(b"m.replay.json" in line for line in server.progress)
    assert not file_lock.is_run_locked(agent.home)


@pytest.mark.nightly
def test_killed_at_any_moment_each_job_is_done_once(server, agent):
    """SIGKILL again and again, and every order that has not ended comes again: no job is measured twice, and none is forgotten."""
    draw = random.Random(7)  # noqa: S311 - the same every time
    works = {f"job-{number}": measure(server, seconds=draw.choice([0, 1])) for number in range(KILLS + 3)}
    for _ in range(KILLS):
        agent.start()
        for job, work in works.items():
            server.order(work, job=job)
        # The time is what is drawn.
        time.sleep(draw.uniform(0.0, 6.0))
        agent.kill()
    agent.start()
    ended = {job: server.final(job, timeout_s=2 * LONG_S) for job in works}
    assert {final.state for final in ended.values()} <= {"done", "failed"}
    assert all(final.reason == "interrupted by a restart" for final in ended.values() if final.state == "failed")
    ids = [record["id"] for record in records_in(agent.home)]
    reported = [run for final in ended.values() for run in final.runs]
    assert all(len(final.runs) == 1 for final in ended.values() if final.state == "done")
    assert len(set(ids)) == len(ids) <= len(works)
    # A kill between the outbox and the journal leaves a run that no report names, never one that is not there.
    assert set(reported) <= set(ids)
    # One at a time: a kill interrupts one at most.
    assert sum(final.state == "done" for final in ended.values()) >= 3


@pytest.mark.nightly
def test_the_watchdog_is_fed_by_the_loop_itself(agent, tmp_path):
    """READY when it begins, WATCHDOG with every turn, nothing while the process stands still, STOPPING at its end."""
    where = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(where)
        manager.settimeout(LONG_S)
        agent.start(NOTIFY_SOCKET=where)
        assert b"READY=1" in manager.recv(100)
        assert manager.recv(100) == b"WATCHDOG=1"
        assert manager.recv(100) == b"WATCHDOG=1"
        agent.process.send_signal(signal.SIGTERM)
        assert agent.process.wait(LONG_S) == 0
        notices = set()
        manager.setblocking(False)
        try:
            while True:
                notices.add(manager.recv(100))
        except BlockingIOError:
            assert b"STOPPING=1" in notices
