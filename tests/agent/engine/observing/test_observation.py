"""Facts about `edgemeter.agent.engine.observing.observation`."""

import os

import pytest

from edgemeter.agent.engine import job
from edgemeter.agent.engine.observing.observation import Observation
from edgemeter.agent.machine.machine import recorded
from tests.fixtures import machine_trees

PHASES = ("load", "prepare", "warm-up", "idle before", "timed", "idle after", "accuracy")


@pytest.mark.parametrize(("observing", "looks"), [("all", ["before", "during", "after"]), ("nothing", ["before", "after"])])
def test_the_machine_is_looked_at_beside_the_timed_part_only_when_asked(tmp_path, observing, looks):
    """Looks before and after cost the run nothing; the one beside it can be left out."""
    observation = Observation({}, observing, recorded(machine_trees.raspberry_pi_5(tmp_path)))
    observation.look_before()
    for name in PHASES:
        observation.follow(job.Phase(name=name), os.getpid())
    observation.end()
    observation.look_after()
    assert [one.when for one in observation.seen] == looks


def test_a_run_that_breaks_off_leaves_no_thread_behind(tmp_path):
    """The process died while queries were timed: the watcher ends with the observation."""
    observation = Observation({}, "all", recorded(machine_trees.raspberry_pi_5(tmp_path)))
    observation.look_before()
    observation.follow(job.Phase(name="load"), os.getpid())
    observation.follow(job.Phase(name="timed"), os.getpid())
    watching = observation._watcher
    assert watching._thread.is_alive()
    observation.end()
    assert watching._thread is None


def test_other_events_change_nothing(tmp_path):
    """Progress comes many times a second."""
    observation = Observation({}, "all", recorded(tmp_path))
    observation.follow(job.Progress(done=1, total=2), os.getpid())
    assert observation.seen == []
