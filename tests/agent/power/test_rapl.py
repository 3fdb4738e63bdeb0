import shutil

import pytest

from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.power.rapl import Rapl
from tests.fixtures.machine_trees import intel_pc, rapl_zone, write

RANGE_UJ = 262_143_328_850


class _Machine:
    """A tree whose counters the test moves, and a clock that the test moves."""

    def __init__(self, root):
        self.root = root
        self.now_ns = 0

    def set(self, **energies_uj):
        for name, energy in energies_uj.items():
            write(
                self.root,
                {
                    (
                        "sys/class/powercap/intel-rapl:"
                        f"{name.lstrip('_').replace('_', ':')}/energy_uj"
                    ): f"{energy}\n"
                },
            )

    def clock(self):
        return self.now_ns

    def sensor(self, during_check=lambda: None):
        return Rapl(self.root, clock=self.clock, sleep=lambda _: during_check())


@pytest.fixture
def pc(tmp_path):
    """Return a PC with package, core and dram, and the package again by mmio."""
    return _Machine(intel_pc(tmp_path))


def test_packages_and_memory_add_up_and_cores_do_not(pc):
    """Core lies inside the package, and the mmio zone is the package a second time."""
    sensor = pc.sensor()
    assert sensor.read().energy_mj == 0
    pc.now_ns = 100_000_000
    pc.set(_0=1_500_000, _0_0=1_300_000, _0_1=230_000)
    assert sensor.read().energy_mj == pytest.approx(530)
    description = sensor.describe()
    assert (description.id, description.scope, description.kind) == (
        "rapl:package-0+dram",
        "cpu-package",
        "energy",
    )
    assert "memory" not in description.excludes
    assert (description.gain_u_ratio, description.resolution_w) == (None, None)


def test_sub_zones_inside_their_zone_are_counted_once(pc):
    """A dram zone may be listed both beside its package and inside it.

    This is so where the class folder's entries are the zones themselves.
    """
    base = pc.root / "sys/class/powercap"
    shutil.copytree(base / "intel-rapl:0:1", base / "intel-rapl:0/intel-rapl:0:1")
    assert pc.sensor().describe().id == "rapl:package-0+dram"


def test_a_counter_that_wraps_goes_on(pc):
    """Each zone wraps at its own range."""
    pc.set(_0=RANGE_UJ - 100_000, _0_1=0)
    sensor = pc.sensor()
    sensor.read()
    pc.now_ns = 100_000_000
    pc.set(_0=150_000, _0_1=10_000)
    assert sensor.read().energy_mj == pytest.approx(260)
    pc.now_ns = 200_000_000
    pc.set(_0=250_000, _0_1=20_000)
    assert sensor.read().energy_mj == pytest.approx(370)


def test_a_counter_that_was_reset_is_not_taken_for_a_wrap(pc):
    """A fall from 100 kJ to nearly nothing within 0.1 s would be 1.6 MW."""
    pc.set(_0=100_000_000_000)
    sensor = pc.sensor()
    sensor.read()
    pc.now_ns = 100_000_000
    pc.set(_0=5)
    with pytest.raises(UnavailableError, match="was reset"):
        sensor.read()


def test_the_platform_counter_is_preferred_while_it_counts(pc):
    """The psys zone sees more than the packages, so it is taken alone."""
    write(pc.root, rapl_zone("intel-rapl:2", "psys", 7_000_000))
    sensor = pc.sensor(lambda: pc.set(_0=1_100_000, _2=7_300_000))
    description = sensor.describe()
    assert (description.id, description.scope) == ("rapl:psys", "board-input")
    start = sensor.read().energy_mj
    pc.now_ns = 100_000_000
    pc.set(_0=9_000_000, _2=8_300_000)
    assert sensor.read().energy_mj - start == pytest.approx(1000)


def test_a_dead_platform_counter_gives_way_to_the_packages(pc):
    """On many machines psys stands still, or counts less than the packages inside it."""
    write(pc.root, rapl_zone("intel-rapl:2", "psys", 7_000_000))
    assert pc.sensor(lambda: pc.set(_0=1_100_000)).describe().id == "rapl:package-0+dram"
    pc.set(_0=1_000_000)
    assert (
        pc.sensor(lambda: pc.set(_0=2_000_000, _2=7_000_100)).describe().id == "rapl:package-0+dram"
    )


def test_a_machine_without_counters_is_reported(tmp_path):
    """A virtual machine has none, and a machine's only zone may be of another kind."""
    with pytest.raises(UnavailableError, match="virtual machine"):
        Rapl(tmp_path).describe()
    write(tmp_path, rapl_zone("intel-rapl-mmio:0", "package-0", 1))
    with pytest.raises(UnavailableError, match="no RAPL counter"):
        Rapl(tmp_path).describe()


def test_a_counter_that_garbles_fails_once_and_one_that_goes_is_gone(pc):
    """Without a number the next read may succeed; without the file the sensor is gone."""
    sensor = pc.sensor()
    sensor.read()
    pc.set(_0="garbage")
    with pytest.raises(TransientError, match="'garbage"):
        sensor.read()
    pc.set(_0="1000100")
    assert sensor.read().energy_mj == pytest.approx(0.1)
    (pc.root / "sys/class/powercap/intel-rapl:0/energy_uj").unlink()
    with pytest.raises(UnavailableError, match="though its zone is here"):
        sensor.read()
