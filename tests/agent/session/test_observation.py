"""Facts about `edgemeter.agent.session.observation`."""

import os
import threading

import pytest

from edgemeter.agent.engine import job
from edgemeter.agent.machine.machine import recorded
from edgemeter.agent.session import observation
from edgemeter.agent.session.observation import Observation
from tests.fixtures import machine_trees

PHASES = ("load", "prepare", "warm-up", "idle before", "timed", "idle after", "accuracy")


def test_the_conditions_before_during_and_after_the_timed_part_are_read(tmp_path):
    """Once each."""
    observation = Observation({}, recorded(machine_trees.raspberry_pi_5(tmp_path)))
    observation.inspect_before()
    for name in PHASES:
        observation.follow(job.Phase(name=name), os.getpid())
    observation.end()
    observation.inspect_after()
    assert [condition.when for condition in observation.seen] == ["before", "during", "after"]


def test_a_run_that_breaks_off_leaves_no_thread_behind(tmp_path):
    """The process died while queries were timed: the watcher ends with the observation."""
    threads = threading.active_count()
    observation = Observation({}, recorded(machine_trees.raspberry_pi_5(tmp_path)))
    observation.inspect_before()
    observation.follow(job.Phase(name="load"), os.getpid())
    observation.follow(job.Phase(name="timed"), os.getpid())
    assert threading.active_count() > threads
    observation.end()
    assert threading.active_count() == threads


class Board:
    """A board whose processor cools by a degree a second while we wait; the clock is the waiting."""

    def __init__(self, folder, start_c):
        self.zone = folder / "sys/class/thermal/thermal_zone0"
        self.zone.mkdir(parents=True)
        (self.zone / "type").write_text("cpu-thermal\n")
        self.machine = recorded(folder)
        self.now_s = 100.0
        self.begun = 0
        self._set(start_c)

    def sleep(self, seconds):
        """Let a board cool."""
        self.now_s += seconds
        self._set(self.temperature_c - seconds)

    def begins(self):
        """Count the waits that are shown."""
        self.begun += 1

    def wait(self, below_c, limit_s):
        """Return the wait for this board."""
        return observation.wait_until_cool(below_c, limit_s, self.begins, self.machine, lambda: self.now_s, self.sleep)

    def _set(self, temperature_c):
        self.temperature_c = temperature_c
        (self.zone / "temp").write_text(f"{round(temperature_c * 1000)}\n")


def test_a_hot_board_is_waited_for(tmp_path):
    """From 60 to below 45 degrees takes 16 looks of a second; the wait is shown, and none where the board is cool."""
    board = Board(tmp_path, 60.0)
    cool_down = board.wait(45.0, 300.0)
    assert (cool_down.waited_s, cool_down.temperature_c, cool_down.is_reached) == (16.0, 44.0, True)
    assert board.begun == 1
    assert board.wait(45.0, 300.0).waited_s == 0.0
    assert board.begun == 1
    # After the limit the run begins as hot as it is.
    cool_down = Board(tmp_path / "hotter", 80.0).wait(70.0, 10.0)
    assert (cool_down.waited_s, cool_down.temperature_c, cool_down.is_reached) == (10.0, 70.0, False)


def test_a_machine_without_a_thermometer_is_not_waited_for(tmp_path):
    """Nothing can be read, and nothing is claimed."""
    cool_down = observation.wait_until_cool(45.0, 300.0, pytest.fail, recorded(tmp_path))
    assert (cool_down.temperature_c, cool_down.is_reached) == (None, None)
