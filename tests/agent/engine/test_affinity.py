"""Facts about `edgemeter.agent.engine.affinity`."""

import os

import pytest

from edgemeter.agent.engine import affinity
from edgemeter.agent.errors import ConfigError


def test_cores_of_ours_may_be_chosen():
    """Those that this process may use, and none at all."""
    affinity.check(os.sched_getaffinity(0))
    affinity.check(())


def test_a_core_that_is_not_there_is_named_with_those_that_are():
    """The message says which, and what to choose from."""
    one = min(os.sched_getaffinity(0))
    with pytest.raises(ConfigError, match=rf"cpus {one}, 4000: 4000 cannot be used here; choose among .*{one}"):
        affinity.check([4000, one])
