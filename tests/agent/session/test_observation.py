import os
import threading

from edgemeter.agent.engine import job
from edgemeter.agent.machine.machine import recorded
from edgemeter.agent.session.observation import Observation
from tests.fixtures import machine_trees

PHASES = ("load", "prepare", "warm-up", "idle before", "timed", "idle after", "accuracy")


def test_the_conditions_before_during_and_after_the_timed_part_are_read(tmp_path):
    observation = Observation({}, recorded(machine_trees.raspberry_pi_5(tmp_path)))
    observation.inspect_before()
    for name in PHASES:
        observation.follow(job.Phase(name=name), os.getpid())
    observation.end()
    observation.inspect_after()
    assert [condition.when for condition in observation.seen] == ["before", "during", "after"]


def test_a_run_that_breaks_off_leaves_no_thread_behind(tmp_path):
    threads = threading.active_count()
    observation = Observation({}, recorded(machine_trees.raspberry_pi_5(tmp_path)))
    observation.inspect_before()
    observation.follow(job.Phase(name="load"), os.getpid())
    observation.follow(job.Phase(name="timed"), os.getpid())
    assert threading.active_count() > threads
    observation.end()
    assert threading.active_count() == threads
