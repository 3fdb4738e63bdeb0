"""Facts about `edgemeter.agent.power.joulescope`, with the maker's real library.

No instrument is connected.
"""

import sys
from contextlib import closing
from types import SimpleNamespace

import pytest

from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.power import AbsentError, joulescope
from edgemeter.agent.power.joulescope import Joulescope
from tests.fixtures.rows import table_row


def value(joules, watts, units="J"):
    return {
        "signals": {"power": {"avg": {"value": watts, "units": "W"}}},
        "accumulators": {"energy": {"value": joules, "units": units}},
    }


class Driver:
    """A stand-in for the maker's driver, with devices and the commands that they got."""

    connected = ("u/js220/000123",)
    newest: "Driver"

    def __init__(self):
        self.told, self.closed, self.listener = [], 0, None
        Driver.newest = self

    def device_paths(self):
        return list(self.connected)

    def open(self, device):
        self.told.append(device)

    def publish(self, topic, value):
        self.told.append((topic, value))

    def subscribe(self, topic, _flags, listener):
        self.told.append(topic)
        self.listener = listener

    def finalize(self):
        self.closed += 1


@pytest.fixture
def played(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyjoulescope_driver", SimpleNamespace(Driver=Driver))
    return Driver


def test_the_real_library_reports_that_nothing_is_connected():
    """The library is imported, starts its driver, searches for devices and is closed again."""
    pytest.importorskip("pyjoulescope_driver")
    with (
        closing(Joulescope()) as sensor,
        pytest.raises(AbsentError, match="no Joulescope is connected"),
    ):
        sensor.describe()
    with (
        closing(Joulescope("u/js220/000999")) as sensor,
        pytest.raises(AbsentError, match=r"'u/js220/000999' is not connected"),
    ):
        sensor.describe()


def test_without_the_library_it_is_absent_and_names_the_extra(monkeypatch):
    """Most boards do not have the library."""
    monkeypatch.setitem(sys.modules, "pyjoulescope_driver", None)
    with pytest.raises(AbsentError, match=r"pip install 'edgemeter\[joulescope\]'"):
        Joulescope().describe()


def test_the_energy_is_the_instruments_own_sum(played, monkeypatch):
    """Two values half a second apart give joules as mJ and the mean power.

    Each is stamped when it came.
    """
    clock = iter([1_000, 500_001_000])
    sensor = Joulescope(clock=lambda: next(clock))
    description = sensor.describe()
    assert (description.kind, description.scope, description.gain_u_ratio) == (
        "energy",
        "board-input",
        None,
    )
    driver = played.newest
    assert ("u/js220/000123/s/i/range/mode", "auto") in driver.told
    assert ("u/js220/000123/s/stats/scnt", 500_000) in driver.told
    driver.listener("t", value(10.0, 4.0))
    first = sensor.read()
    driver.listener("t", value(12.5, 5.0))
    second = sensor.read()
    assert (first.energy_mj, second.energy_mj, second.power_w) == (10_000.0, 12_500.0, 5.0)
    assert (first.taken_ns, second.taken_ns) == (1_000, 500_001_000)
    sensor.close()
    sensor.close()
    assert driver.closed == 1
    monkeypatch.setattr(joulescope, "TIMEOUT_S", 0.05)
    with closing(Joulescope()) as silent, pytest.raises(TransientError, match="published nothing"):
        silent.read()


def test_the_first_generation_publishes_elsewhere(played, monkeypatch):
    """A JS110 publishes its own statistics under a topic of its own."""
    monkeypatch.setattr(played, "connected", ("u/js110/002557",))
    with closing(Joulescope()) as sensor:
        assert sensor.describe().gain_u_ratio is None
    assert "u/js110/002557/s/sstats/value" in played.newest.told


def test_of_several_instruments_one_must_be_named(played, monkeypatch):
    """Nobody can guess which instrument feeds the board."""
    monkeypatch.setattr(played, "connected", ("u/js220/1", "u/js220/2"))
    with pytest.raises(UnavailableError, match="set device"):
        Joulescope().describe()
    with closing(Joulescope("u/js220/2")) as sensor:
        assert sensor.describe().id == "joulescope:u/js220/2"


def test_an_instrument_that_cannot_be_opened_names_the_remedy(played, monkeypatch):
    """The maker's own program may be using the instrument."""

    def refuse(*_):
        message = "jsdrv_open failed 12"
        raise RuntimeError(message)

    monkeypatch.setattr(played, "open", refuse)
    with pytest.raises(UnavailableError, match="close other programs"):
        Joulescope().describe()
    assert played.newest.closed == 1


def test_a_value_that_is_garbled_gives_no_number(played, monkeypatch):
    """A garbled value or one in another unit gives no reading, as if none had come."""
    monkeypatch.setattr(joulescope, "TIMEOUT_S", 0.01)
    with closing(Joulescope()) as sensor:
        sensor.describe()
        for published in [
            value(None, 1.0),
            value(1.0, "x"),
            value(1.0, 1.0, "mWh"),
            {"accumulators": {}},
            {"accumulators": []},
        ]:
            played.newest.listener("t", published)
            with table_row(published), pytest.raises(TransientError, match="published nothing"):
                sensor.read()
