"""CPU affinity: keeping a run to some cores."""

import os
from collections.abc import Collection

from edgemeter.agent.errors import ConfigError


def check(cpus: Collection[int]) -> None:
    """Return when a process of ours may run on all of `cpus`.

    Raises:
        ConfigError: some are not there, or are not ours to use (a container or a parent keeps us off them).
    """
    allowed = os.sched_getaffinity(0)
    absent = sorted(set(cpus) - allowed)
    if absent:
        message = f"cannot keep a run to cpus {_listed(cpus)}: {_listed(absent)} cannot be used here; choose among {_listed(allowed)}"
        raise ConfigError(message)


def _listed(cpus: Collection[int]) -> str:
    return ", ".join(map(str, sorted(cpus)))
