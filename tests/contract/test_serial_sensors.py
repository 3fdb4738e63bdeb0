"""The contract of `edgemeter.agent.power.PowerSensor` over a live port: every serial sensor reads a device played at a pseudo-terminal."""

import inspect
import math
import threading
import time
from contextlib import closing

import pytest

from edgemeter.agent import power
from edgemeter.agent.base.errors import TransientError, UnavailableError
from tests.fixtures.serial_port import DIALOGUES, PlayedPort, recorded

SERIAL = [name for name in sorted(power.SENSORS) if "port" in inspect.signature(power.sensor_class(name)).parameters]
every_serial_sensor = pytest.mark.parametrize("name", SERIAL)
# Longer than any sensor may wait for a device that stays silent.
PATIENCE_S = 60.0


def played(name, replies, pieces=1):
    """Return the port of a sensor's device, which is to be entered."""
    return PlayedPort(DIALOGUES[name], replies, pieces)


def sensor_at(name, port):
    """Return the sensor that reads this port."""
    return power.create(name, port=port.name, **DIALOGUES[name].settings)


def in_thread(work):
    """Return what `work` returns or raises in a thread of its own, as the sampler calls a sensor; fail if it does not end."""
    results = []

    def run():
        try:
            results.append(work())
        except (TransientError, UnavailableError) as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive(), "the sensor blocks for longer than a silent device may be waited for"
    assert results, "the sensor raised what is none of our errors"
    return results[0]


def is_value(reading):
    """Return whether a reading holds a finite number."""
    value = reading.power_w if reading.power_w is not None else reading.energy_mj
    return value is not None and math.isfinite(value)


def test_every_serial_sensor_has_a_dialogue():
    """Without one nobody can try its port."""
    assert set(DIALOGUES) == set(SERIAL)


@every_serial_sensor
@pytest.mark.parametrize("pieces", [1, 7])
def test_a_serial_sensor_reads_its_device_from_a_thread(name, pieces):
    """Described here, read in a thread; replies that come in pieces are put together."""
    with played(name, [recorded(name)], pieces) as port, closing(sensor_at(name, port)) as sensor:
        assert sensor.describe().period_ms > 0
        readings = in_thread(lambda: [sensor.read() for _ in range(3)])
        assert all(map(is_value, readings))
        assert [reading.taken_ns for reading in readings] == sorted(reading.taken_ns for reading in readings)
        assert port.requests >= (4 if DIALOGUES[name].request else 0)


@every_serial_sensor
@pytest.mark.parametrize("broken", ["cut", "garbled"])
def test_a_garbled_reply_costs_a_reading_and_no_more(name, broken):
    """The reading fails as transient, or waits for the next whole reply; those after it are good."""
    content = recorded(name)
    bad = content[: len(content) // 2] if broken == "cut" else bytes(len(content))
    with played(name, [content, bad, content]) as port, closing(sensor_at(name, port)) as sensor:
        expected = sensor.describe()
        results = [in_thread(sensor.read) for _ in range(4)]
        assert all(isinstance(result, TransientError) or is_value(result) for result in results)
        assert is_value(results[-1])
        assert sensor.describe().id == expected.id


@every_serial_sensor
def test_a_silent_device_is_not_waited_for_without_end(name):
    """It may be switched off: an error of ours, in time."""
    with played(name, []) as port, closing(sensor_at(name, port)) as sensor:
        assert isinstance(in_thread(sensor.describe), UnavailableError)
        assert isinstance(in_thread(sensor.read), TransientError | UnavailableError)


@every_serial_sensor
def test_an_unplugged_device_is_unavailable_and_leaves_no_thread(name):
    """A cable that is pulled while a sensor reads ends in our error; closed, the sensor leaves nothing behind."""
    before = set(threading.enumerate())
    port = played(name, [recorded(name)])
    with port, closing(sensor_at(name, port)) as sensor:
        sensor.describe()
        assert is_value(in_thread(sensor.read))
        port.unplug()
        ends = time.monotonic() + PATIENCE_S
        while not isinstance(result := in_thread(sensor.read), UnavailableError):
            assert time.monotonic() < ends, f"still {result!r} after the device was unplugged"
        assert "\n" not in str(result)
        sensor.close()
        sensor.close()
    assert set(threading.enumerate()) <= before
