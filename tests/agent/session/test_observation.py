import os
import threading

from edgemeter.agent.engine import job
from edgemeter.agent.machine.machine import recorded
from edgemeter.agent.session.observation import Observation
from tests.fixtures import machine_trees


def test_a_run_that_breaks_off_leaves_no_thread_behind(tmp_path):
    """The watcher ends with the observation if the process dies while queries are timed."""
    threads = threading.active_count()
    observation = Observation({}, recorded(machine_trees.raspberry_pi_5(tmp_path)))
    observation.inspect_before()
    observation.follow(job.Phase(name="load"), os.getpid())
    observation.follow(job.Phase(name="timed"), os.getpid())
    assert threading.active_count() > threads
    observation.end()
    assert threading.active_count() == threads
