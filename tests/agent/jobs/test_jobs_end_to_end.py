"""Orders are carried out over a real broker by an agent that is killed and restarted."""

import random
import time

import pytest

from edgemeter.agent.contract.orders import Measure
from tests.agent.jobs.driver import REPLAY, records_in, suite
from tests.agent.jobs.fleet_server import LONG_S

KILLS = 6

pytestmark = pytest.mark.mosquitto


def measure(server, seconds=0, repeats=1):
    """Return the work of measuring a suite whose files the server holds."""
    return Measure(
        suite=server.hold(suite(seconds, repeats), "suite.toml"),
        models=(server.hold(REPLAY, "m.replay.json"),),
    )


@pytest.mark.nightly
def test_killed_at_any_moment_each_job_is_done_once(server, agent):
    """No job is measured twice or forgotten when the agent is killed again and again.

    Every order that has not ended is delivered again.
    """
    draw = random.Random(7)  # noqa: S311 - the same every time
    works = {
        f"job-{number}": measure(server, seconds=draw.choice([0, 1])) for number in range(KILLS + 3)
    }
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
    assert all(
        final.reason == "interrupted by a restart"
        for final in ended.values()
        if final.state == "failed"
    )
    ids = [record["id"] for record in records_in(agent.home)]
    reported = [run for final in ended.values() for run in final.runs]
    assert all(len(final.runs) == 1 for final in ended.values() if final.state == "done")
    assert len(set(ids)) == len(ids) <= len(works)
    # A kill between the outbox and the journal leaves a run that no report names, never one that is
    # not there.
    assert set(reported) <= set(ids)
    # One at a time: a kill interrupts one at most.
    assert sum(final.state == "done" for final in ended.values()) >= 3
