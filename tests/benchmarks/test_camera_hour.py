"""Facts about the count of `camera_hour` that a record is held against, and about how it slows a process down."""

import numpy as np

from edgemeter.agent.contract import samples
from edgemeter.agent.contract.record_figures import Sustained
from tests.benchmarks.camera_hour import ControlGroup, Count, recount
from tests.fixtures.record_factory import make_record, make_steady
from tests.fixtures.rows import table_row

MS = 1_000_000


def test_frames_are_counted_again_one_after_the_other():
    """Of ten at 10 a second, 2 and 3 are late, 6 and 7 were never begun; found throttled from 0.45 s on."""
    arrivals_ms, latencies_ms = np.array([0, 100, 200, 300, 400, 500, 800, 900]), np.array([30, 30, 130, 70, 30, 30, 30, 30])
    series = tuple(samples.pack(name, "ns", ms * MS) for name, ms in (("arrival", arrivals_ms), ("latency", latencies_ms)))
    steady, curve = make_steady(rate_per_s=10.0, frames=10), Sustained(interval_s=0.05, points=(), throttled_after_s=0.45)
    counted = recount(make_record(steady=steady, samples=series, sustained=curve), (0.5, 0.75))
    expected = Count(10, 2, 2, 2, 0.2, 0.6 - 0.45, while_throttled=2, at_other_times=2)
    assert counted == expected


def test_a_control_group_of_either_version_gets_the_quota(tmp_path):
    """A share of one core in a period of 10 ms, and none once it is released."""
    for version, files in ((1, {"cpu.cfs_quota_us": ("4000", "-1")}), (2, {"cpu.max": ("4000 10000", "max 10000")})):
        with table_row(version):
            root = tmp_path / str(version)
            (root / "cpu" if version == 1 else root).mkdir(parents=True)
            group = ControlGroup(root)
            (folder,) = root.glob("**/edgemeter-camera-*")
            group.slow_down([4711], 2.5)
            assert (folder / "cgroup.procs").read_text() == "4711"
            assert {name: (folder / name).read_text() for name in files} == {name: slowed for name, (slowed, _) in files.items()}
            group.release()
            assert {name: (folder / name).read_text() for name in files} == {name: free for name, (_, free) in files.items()}
