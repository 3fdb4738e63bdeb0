"""Facts about `edgemeter.agent.energy.load_steps`."""

import os
import time

import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.energy import load_steps
from edgemeter.agent.energy.load_steps import levels, load, switched_load


def test_the_levels_go_from_nothing_to_everything_and_come_back():
    """Each once, equally spaced, in an order in which a drift is no gain."""
    assert levels(6) == pytest.approx([0.0, 0.4, 0.8, 1.0, 0.6, 0.2])
    assert sorted(levels(5)) == pytest.approx([0.0, 0.25, 0.5, 0.75, 1.0])


def _busy_s():
    with open("/proc/stat") as file:  # noqa: PTH123
        user, nice = map(int, file.readline().split()[1:3])
    return (user + nice) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
@pytest.mark.alone
def test_a_step_loads_its_share_and_leaves_nothing_behind():
    """Seen from outside, by the kernel's own accounting; other tests may add to it, so only its lower bound is meaningful."""
    with load(0.5, cores=2):
        time.sleep(1.0)
        begun, at = time.monotonic(), _busy_s()
        time.sleep(2.0)
        busy_cores = (_busy_s() - at) / (time.monotonic() - begun)
    assert busy_cores > 0.7
    with load(0.0, cores=2):
        pass


def test_a_load_whose_processes_do_not_start_is_no_load(monkeypatch):
    """A test with less load than it knows of would measure another sensor."""
    monkeypatch.setattr(load_steps, "READY_S", 0.0)
    with pytest.raises(UnavailableError, match="did not start within 0 s: end other work"), switched_load(1):
        pass
