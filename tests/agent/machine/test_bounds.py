"""Facts about the kept bounds: they hold for the machine as it was when they were measured."""

import msgspec

from edgemeter.agent.contract.record_conditions import MachineBounds
from edgemeter.agent.machine.bounds import BOUNDS_FILE, find_bounds, keep_bounds
from tests.fixtures.record_factory import make_environment

BOUNDS = MachineBounds(memory_gbyte_per_s=30.0, measured_at_ns=1, took_s=2.0)


def test_bounds_hold_until_kernel_processor_or_power_mode_change(tmp_path):
    """A new version of edgemeter or of a library changes nothing."""
    environment = make_environment()
    assert find_bounds(environment, tmp_path) is None
    keep_bounds(BOUNDS, environment, tmp_path)
    assert find_bounds(environment, tmp_path) == BOUNDS
    assert find_bounds(make_environment(agent="9.9", swap_used_mb=5.0), tmp_path) == BOUNDS
    for changed in ({"kernel": "7.0"}, {"cpu": "other"}, {"cores": 64}, {"power_mode": "15W"}, {"governor": "powersave"}):
        assert find_bounds(make_environment(**changed), tmp_path) is None, f"{changed}"


def test_a_damaged_file_counts_as_none(tmp_path, caplog):
    """A run goes on without a bound, and the log says what to delete."""
    (tmp_path / BOUNDS_FILE).write_bytes(b"{")
    assert find_bounds(make_environment(), tmp_path) is None
    assert "delete it" in caplog.text


def test_bounds_are_part_of_the_environment_of_a_record():
    """So that a verdict can be recomputed elsewhere."""
    environment = make_environment(bounds=BOUNDS)
    assert msgspec.json.decode(msgspec.json.encode(environment), type=type(environment)) == environment
