"""Facts about `edgemeter.agent.power.um25c`: a real pseudo-terminal plays the meter."""

from contextlib import closing

import pytest

from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.power import AbsentError, um25c
from edgemeter.agent.power.um25c import Um25c
from tests.fixtures.power.make_usb_meters import um25c_block
from tests.fixtures.rows import table_row
from tests.fixtures.serial_port import PlayedPort


def meter(blocks):
    """Return a port at which a meter gives one of `blocks` for each request."""
    return PlayedPort(um25c.ASK, blocks)


def test_a_block_is_read_by_the_scale_of_its_model():
    """UM25C's scale is ten times finer; a wrong scale would show a hundredth of the power."""
    for model, digit_v, digit_a, name in [
        (0x09C9, 0.001, 0.0001, "UM25C"),
        (0x0963, 0.01, 0.001, "UM24C"),
        (0x0D4C, 0.01, 0.001, "UM34C"),
    ]:
        with (
            table_row(name),
            meter([um25c_block(5.12, 1.234, model, digit_v, digit_a)]) as port,
            closing(Um25c(port.name)) as sensor,
        ):
            assert sensor.describe().id == f"um25c:{name}:{port.name}"
            assert sensor.read().power_w == pytest.approx(5.12 * 1.234, rel=1e-6)


def test_a_block_that_is_garbled_gives_no_number():
    """A block of another model or with inconsistent power is refused.

    So is one of all zeros or ones, with and without its model. Power is consistent if it is voltage
    times current.
    """
    model = um25c_block()[:2]
    empty = [bytes(130), b"\xff" * 130, model + bytes(128), model + b"\xff" * 128]
    for block in [um25c_block(watts=9.9), um25c_block(model=0x1234), *empty]:
        with (
            table_row(block),
            meter([block]) as port,
            closing(Um25c(port.name)) as sensor,
            pytest.raises(TransientError),
        ):
            sensor.read()


def test_a_meter_is_asked_over_its_port():
    """Each reading asks once over a real terminal; a missing block is a failed reading."""
    blocks = [um25c_block(), um25c_block(5.0, 1.0), um25c_block()[:60], um25c_block(5.0, 2.0)]
    with meter(blocks) as port, closing(Um25c(port.name)) as sensor:
        description = sensor.describe()
        assert (description.scope, description.excludes) == ("board-input", ("power-supply loss",))
        assert description.resolution_w == pytest.approx(0.0001 * 5.123)
        assert sensor.read().power_w == pytest.approx(5.0)
        with pytest.raises(TransientError, match="60 of 130 bytes"):
            sensor.read()
        assert sensor.read().power_w == pytest.approx(10.0)


def test_an_absent_port_is_distinguished_from_one_that_may_not_be_opened(tmp_path):
    """A missing port is no fault, and a plain file is no port."""
    with pytest.raises(AbsentError, match="set port"):
        Um25c().describe()
    with pytest.raises(AbsentError, match="bind the meter"):
        Um25c(str(tmp_path / "rfcomm0")).describe()
    (tmp_path / "rfcomm0").write_text("")
    with pytest.raises(UnavailableError, match="dialout") as refusal:
        Um25c(str(tmp_path / "rfcomm0")).describe()
    assert not isinstance(refusal.value, AbsentError)


def test_an_unplugged_meter_is_unavailable():
    """The cable is pulled while the sensor reads."""
    with meter([um25c_block()]) as port, closing(Um25c(port.name)) as sensor:
        assert sensor.read().power_w > 0
        port.unplug()
        with pytest.raises(UnavailableError):
            sensor.read()
