"""Facts about `edgemeter.agent.power.stored`: the files of self-tests, and the sensors that use them."""

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.power import Description, PowerSensor, Reading
from edgemeter.agent.power.stored import (
    CheckedSensor,
    MeasuredProperty,
    SelfTest,
    contradictions,
    find_self_test,
    save_self_test,
    self_test_path,
)
from edgemeter.agent.power.values import Averaging


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    """Give each test a home of its own."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path))


UNTOLD = MeasuredProperty(reason="not seen")


def _test(**changes):
    fields = {
        "board": "board",
        "sensor": "meter",
        "made_at": "2026-11-23T05:00:00+00:00",
        "test_s": 60.0,
        "readings": 600,
        "failures": 0,
        "sees_load": True,
        "step": UNTOLD,
        "delay_s": UNTOLD,
        "window_s": MeasuredProperty(value=0.0, low=0.0, high=0.06),
        "lag_s": MeasuredProperty(value=0.5, low=0.45, high=0.55),
        "update_interval_s": MeasuredProperty(value=1.0, low=0.99, high=1.01),
        "seen_ratio": UNTOLD,
        "resolution": MeasuredProperty(value=0.1, low=0.098, high=0.102),
        "reading_interval_s": 0.1,
        "longest_gap_s": 0.2,
    }
    return SelfTest(**fields | changes)


class Meter(PowerSensor):
    """A meter that is described as it is told."""

    def __init__(self, **fields):
        self.description = Description("meter", "board-input", (), "power", 100.0, **fields)

    def describe(self):
        """Return the description."""
        return self.description

    def read(self):
        """Return 5 W."""
        return Reading(0, power_w=5.0)


def test_a_self_test_is_found_again_on_its_board_only():
    """By the sensor's id; what lies there and is of another, or damaged, is an error with what to do."""
    path = save_self_test(_test())
    assert find_self_test("board", "meter") == _test()
    assert find_self_test("other", "meter") is None
    assert find_self_test(None, "meter") is None
    path.rename(self_test_path("other", "meter"))
    with pytest.raises(ConfigError, match="is of sensor 'meter' on board 'board': delete it"):
        find_self_test("other", "meter")
    path.write_text("{")
    with pytest.raises(ConfigError, match="is damaged"):
        find_self_test("board", "meter")


def test_what_the_driver_does_not_state_comes_from_the_self_test_with_its_date():
    """All of it, or only the clock where the rest is described; what nobody knows stays unknown."""
    described = CheckedSensor(Meter(), _test()).describe()
    assert described.averaging == Averaging(
        window_s=0.0, lag_s=0.5, update_interval_s=1.0, sources=dict.fromkeys(("window_s", "lag_s", "update_interval_s"), "self-test")
    )
    assert (described.resolution_w, described.warnings) == (0.1, ())
    described_by_driver = Averaging(window_s=0.02, lag_s=0.5, sources={"window_s": "published", "lag_s": "driver"})
    completed = CheckedSensor(Meter(averaging=described_by_driver, resolution_w=0.1), _test()).describe()
    assert (completed.averaging.window_s, completed.averaging.update_interval_s) == (0.02, 1.0)
    assert completed.averaging.sources == {**described_by_driver.sources, "update_interval_s": "self-test"}
    assert CheckedSensor(Meter(), _test()).read().power_w == 5.0


def test_a_description_that_the_self_test_contradicts_stays_and_is_doubted():
    """A lag described as 0 s; the warning names both, and a finding of the test stands beside it."""
    meter = Meter(averaging=Averaging(lag_s=0.0), resolution_w=0.1)
    described = CheckedSensor(meter, _test(findings=("readings are missing",))).describe()
    assert described.averaging.lag_s == 0.0
    contradicted = "lag_s is described as 0, and the self-test of 2026-11-23 shows 0.5 (0.45 to 0.55)"
    assert described.warnings == ("readings are missing", contradicted)
    assert contradictions(_test(), meter.description) == (contradicted,)
