"""Facts about copies: the samples of a bundle that come again, as they were or disguised, are found; honest runs never are."""

from functools import partial

import msgspec
import numpy as np
import pytest

from edgemeter.agent.contract import samples
from edgemeter.collector.board.copies import originals
from tests.fixtures import cheats
from tests.fixtures.bundle_factory import make_sound_record


def record_with(**series):
    """Return a record with these series alone, in ns, W or mJ."""
    units = {"latency": "ns", "power": "W", "energy": "mJ", "power_at": "ns"}
    packed = [samples.pack(name.replace("__", "."), units[name.partition("__")[0]], values) for name, values in series.items()]
    return msgspec.structs.replace(make_sound_record(), samples=tuple(packed))


def latencies(seed, count=2000):
    """Return latencies of about 6 ms, int64 [count] in ns."""
    return np.random.default_rng(seed).gamma(40, 150_000, count).astype(np.int64)


def with_outliers(values):
    """Return latencies of which one in a hundred took up to 300 times as long."""
    draw = np.random.default_rng(11)
    return np.where(draw.random(values.size) < 0.01, values * draw.uniform(2, 300, values.size), values).astype(np.int64)


def how_copied(original, other):
    """Return how `other` copies `original`, None if it does not."""
    copied = originals([("original", original), ("other", other)])
    assert set(copied) <= {"other"}
    return copied["other"][1] if copied else None


@pytest.mark.parametrize("cheat", cheats.DISGUISES, ids=lambda cheat: cheat.__name__)
def test_a_copy_of_latencies_is_found_however_it_is_disguised(cheat):
    """Each way by which a cheat gives a measurement out for another one; also with queries that took 300 times as long."""
    for values in (latencies(1), with_outliers(latencies(1))):
        assert "latency samples" in how_copied(record_with(latency=values), record_with(latency=cheat(values)))


@pytest.mark.parametrize("cheat", cheats.HIDDEN, ids=lambda cheat: cheat.__name__)
def test_what_cannot_be_found_is_known(cheat):
    """Every digit is another: the boundary of the method, stated in docs/tasks/board.md."""
    values = latencies(1)
    assert how_copied(record_with(latency=values), record_with(latency=cheat(values))) is None


@pytest.mark.parametrize("tick_ns", [1, 1000, 41_667], ids=["1 ns", "1 us", "24 kHz"])
@pytest.mark.parametrize("count", [3, 30, 64, 1024, 60_000])
def test_honest_runs_of_one_device_are_no_copies(count, tick_ns):
    """Eight runs of one board, with clocks of three resolutions and as few queries as many: none has the samples of another."""
    runs = [(str(seed), record_with(latency=latencies(seed, count) // tick_ns * tick_ns)) for seed in range(8)]
    assert originals(runs) == {}


def test_runs_whose_latency_follows_the_input_are_no_copies():
    """The same photographs in the same order: the ranks of the queries agree in both runs, their digits do not."""
    costs = np.random.default_rng(9).uniform(1e6, 9e6, 2000)
    runs = [record_with(latency=(costs * np.random.default_rng(seed).normal(1, 0.0005, 2000)).astype(np.int64)) for seed in (1, 2)]
    assert how_copied(*runs) is None


def test_a_runtime_that_takes_the_same_time_always_is_no_copy_of_another():
    """A simulated device, a frozen sensor: a series without chance proves nothing."""
    steady = np.full(500, 6_000_000)
    assert how_copied(record_with(latency=steady), record_with(latency=steady)) is None
    toggling = np.tile([5.0, 5.01], 500)
    assert how_copied(record_with(power__ina219=toggling), record_with(power__ina219=toggling + 0.5)) is None


def test_copied_readings_of_a_sensor_are_found_under_another_name_and_scaled():
    """The power under new latencies: whatever the sensor is called, and with the beginning cut off."""
    power_w = np.random.default_rng(3).normal(5.0, 0.1, 3000)
    original = record_with(latency=latencies(1), power__ina219=power_w)
    for other_w in (power_w, 0.9 * power_w, power_w[500:]):
        assert "power.other samples" in how_copied(original, record_with(latency=latencies(2), power__other=other_w))
    assert how_copied(original, record_with(latency=latencies(2), power__other=np.random.default_rng(4).normal(5.0, 0.1, 3000))) is None


def test_a_counter_of_energy_is_compared_by_what_it_rose():
    """The sum goes on from run to run; another beginning hides nothing."""
    rises_mj = np.random.default_rng(3).normal(5.0, 0.1, 3000)
    counter = partial(np.cumsum, rises_mj)
    original = record_with(latency=latencies(1), energy__rapl=counter())
    assert "energy.rapl samples" in how_copied(original, record_with(latency=latencies(2), energy__rapl=counter() + 12_345.0))


def test_readings_of_the_idle_time_between_two_runs_may_be_in_both():
    """Only what was read while queries ran is of one run alone."""
    idle_w, *busy_w = (np.random.default_rng(seed).normal(5.0, 0.1, 500) for seed in (1, 2, 3))
    at_ns = np.arange(-500, 500) * 1_000_000
    runs = [record_with(latency=latencies(seed), power__ina219=np.append(idle_w, busy_w[seed]), power_at__ina219=at_ns) for seed in (0, 1)]
    assert how_copied(*runs) is None
