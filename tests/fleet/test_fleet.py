"""A hundred replay devices through kills of broker, service and collector; `python -m tests.fleet --boards 1000` is the long one."""

import pytest

from tests.fleet.drill import drill
from tests.fleet.fleet_world import FleetWorld


@pytest.mark.mosquitto
@pytest.mark.nightly
def test_each_job_is_executed_once_and_waves_reach_all_whoever_is_killed():
    """A job, two in waves and an update, seven SIGKILLs: no run twice, none lost, every record in the ledger."""
    with FleetWorld(100, run_s=1.0) as world:
        came = drill(world, limit_s=300)
        assert world.crowd.overlaps == []
    assert came.holds, came
