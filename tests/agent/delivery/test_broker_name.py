"""Facts about the name of a process at the broker.

In whatever order things happen, it gets its own name back, and it never fights for it.
"""

import random

import pytest

from edgemeter.agent.base.file_lock import DeviceLock
from edgemeter.agent.base.mqtt_session import SHORT_LIFE_S, SHORT_LIVES, TAKEN_OVER
from edgemeter.agent.contract.messages import DeviceState
from edgemeter.agent.delivery.broker_name import (
    FIRST_DISPLACED_S,
    FORGET_S,
    LONGEST_DISPLACED_S,
    BrokerName,
)
from tests.fixtures.rows import table_row

OURS, THEIRS = DeviceState(state="online", session=7), DeviceState(state="online", session=8)
GONE = DeviceState(state="lost", session=8)
CUT = "cut"


class World:
    """A board's process in a world where namesakes, broken lines and processes come and go.

    The test sets the time.
    """

    def __init__(self, folder, seed=0, *, is_resident=True):
        self.random = random.Random(seed)  # noqa: S311 - the same walk every time
        self.now_s = 1000.0
        self.others = DeviceLock(folder / "outbox", "pi-1")
        self.lock = DeviceLock(folder / "outbox", "pi-1")
        self.name = BrokerName(self.lock, OURS.session, is_resident=is_resident, spread=lambda: 1.0)
        self.has_other = False
        self.is_up = False
        self.is_open = False
        self.lost_at_s = []
        self.taken_at_s = []

    def wait(self, seconds):
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s = min(end_s, self.now_s + 10.0)
            self.look()

    def look(self):
        """Do the publisher's step: open a session if none is open or another name is due."""
        if not self.is_open or self.name.is_due(self.now_s):
            before = self.name.state
            state = self.name.choose(self.now_s)
            if state == "own" and before != "own":
                self.taken_at_s.append(self.now_s)
            self.is_open = self.is_up = True
            self.name.connected(self.now_s)

    def lose(self, reason):
        """End the connection; it is back by itself unless somebody took the name."""
        if self.is_up:
            if reason == TAKEN_OVER and self.name.state != "own":
                return
            self.lost_at_s.append(self.now_s)
            self.name.disconnected(reason, self.now_s)
            self.is_up = reason != TAKEN_OVER
            if self.is_up:
                self.name.connected(self.now_s)

    def other_process(self):
        if self.has_other:
            self.others.release()
            self.has_other = False
        else:
            self.has_other = self.others.take()

    def step(self):
        action = self.random.randrange(6)
        if action == 0:
            self.wait(self.random.choice([1.0, 30.0, 600.0, 7000.0]))
        elif action == 1:
            self.lose(TAKEN_OVER)
        elif action == 2:
            self.lose(CUT)
        elif action == 3:
            self.name.state_seen(self.random.choice([OURS, THEIRS, GONE]), self.now_s)
        elif action == 4:
            self.other_process()
        else:
            self.look()


def test_a_random_walk_always_ends_at_home(tmp_path):
    """After a quiet hour every process has its own name again.

    It is held only with the lock, and nobody is displaced for longer than an hour.
    """
    for seed in range(20):
        with table_row(seed):
            world = World(tmp_path, seed)
            for _ in range(100):
                world.step()
                if world.name.state == "own":
                    assert world.lock.descriptor() is not None
                if world.name.state == "displaced" and not world.name.is_due(world.now_s):
                    assert world.name.choose(world.now_s) == "displaced"
                    assert world.name.is_due(world.now_s + LONGEST_DISPLACED_S)
            world.others.release()
            world.wait(LONGEST_DISPLACED_S + 20)
            assert world.name.state == "own"
            assert not world.name.is_due(world.now_s)
            world.lock.release()


def test_a_namesake_that_stays_is_fought_ever_more_seldom(tmp_path):
    """Each day we take the name back a few dozen times and not thousands of times.

    The namesake takes it back within seconds each time.
    """
    for seed in range(4):
        with table_row(seed):
            world = World(tmp_path, seed)
            world.look()
            end_s = world.now_s + 86_400
            while world.now_s < end_s:
                world.wait(world.random.uniform(1, 20))
                world.lose(TAKEN_OVER)
            assert 86_400 / LONGEST_DISPLACED_S - 2 <= len(world.taken_at_s) < 40
            world.lock.release()


def test_a_broker_that_gives_no_reason_is_understood_by_short_lives_beside_a_namesake(tmp_path):
    """A broker of MQTT 3.1.1 gives no reason when it ends a session.

    A bad line alone displaces nobody, and neither does a namesake of an hour ago.
    """
    world = World(tmp_path)
    world.look()
    for _ in range(3 * SHORT_LIVES):
        world.now_s += SHORT_LIFE_S / 2
        world.lose(CUT)
    assert not world.name.is_due(world.now_s)
    world.name.state_seen(THEIRS, world.now_s)
    world.lose(CUT)
    assert not world.name.is_due(world.now_s)
    world.name.state_seen(OURS, world.now_s)
    world.name.state_seen(THEIRS, world.now_s)
    world.now_s += FORGET_S + 1
    for _ in range(SHORT_LIVES):
        world.lose(CUT)
    assert not world.name.is_due(world.now_s)
    world.name.state_seen(THEIRS, world.now_s)
    for _ in range(SHORT_LIVES):
        world.lose(CUT)
    assert world.name.is_due(world.now_s)
    assert world.name.choose(world.now_s) == "displaced"
    assert world.name.choose(world.now_s + FIRST_DISPLACED_S) == "own"


def test_the_name_is_back_when_the_namesake_has_gone(tmp_path):
    """The broker's report that this process's own session ended does not count."""
    world = World(tmp_path)
    world.look()
    world.lose(TAKEN_OVER)
    world.name.choose(world.now_s)
    for state in (DeviceState(state="lost", session=OURS.session), THEIRS):
        world.name.state_seen(state, world.now_s)
        assert not world.name.is_due(world.now_s)
    world.name.state_seen(GONE, world.now_s)
    assert world.name.is_due(world.now_s)
    assert world.name.choose(world.now_s) == "own"


@pytest.mark.parametrize("is_resident", [True, False])
def test_only_the_daemon_takes_over_from_a_process_that_ended(tmp_path, is_resident):
    """A run that began beside another process keeps its name until it ends."""
    world = World(tmp_path, is_resident=is_resident)
    world.other_process()
    world.look()
    assert world.name.state == "beside"
    world.other_process()
    assert world.name.is_due(world.now_s) == is_resident
