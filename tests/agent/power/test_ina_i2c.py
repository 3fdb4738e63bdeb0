"""Facts about `edgemeter.agent.power.ina_i2c`, on imitated chips that answer at register level, high byte first."""

import errno
import os
import sys
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.power import AbsentError
from edgemeter.agent.power.i2c_bus import open_bus
from edgemeter.agent.power.ina_i2c import InaI2c
from edgemeter.agent.power.world import SensorWorld
from tests.fixtures.recordings import read_recording
from tests.fixtures.rows import table_row

TI = 0x5449
IDENTITIES = {"ina219": {}, "ina226": {0xFE: TI, 0xFF: 0x2260}, "ina260": {0xFE: TI, 0xFF: 0x2270}, "ina228": {0x3E: TI, 0x3F: 0x2281}}
RESETS = {"ina219": {0x00: 0x399F}, "ina226": {0x00: 0x4127}, "ina260": {0x00: 0x6127}, "ina228": {0x00: 0, 0x01: 0xFB68, 0x02: 0x1000}}


class _Bus:
    """An SMBus with one chip at 0x40; a word comes low byte first, as SMBus has it, a block as the chip sends it."""

    def __init__(self, name, **registers):
        self.registers = {0x0B: 0} | RESETS[name] | IDENTITIES[name] | {int(key[1:], 16): value for key, value in registers.items()}
        self.long = {0x04: 3, 0x05: 3, 0x07: 3, 0x08: 3, 0x09: 5, 0x0A: 5} if name == "ina228" else {}
        self.written = []
        self.fails = None
        self.is_closed = False

    def read_word_data(self, i2c_addr, register):
        self._answer(i2c_addr)
        return int.from_bytes(self._bytes(register)[:2], "little")

    def read_i2c_block_data(self, i2c_addr, register, length):
        self._answer(i2c_addr)
        content = self._bytes(register)
        return list(content[:length].ljust(length, b"\xff"))

    def write_word_data(self, i2c_addr, register, value):
        self._answer(i2c_addr)
        number = int.from_bytes(value.to_bytes(2, "little"), "big")
        self.written.append((register, number))
        self.registers[register] = number

    def close(self):
        self.is_closed = True

    def _answer(self, i2c_addr):
        if self.fails:
            raise OSError(self.fails, os.strerror(self.fails))
        if i2c_addr != 0x40:
            raise OSError(errno.EREMOTEIO, os.strerror(errno.EREMOTEIO))

    def _bytes(self, register):
        size = self.long.get(register, 2)
        return (self.registers.get(register, 0) % (1 << 8 * size)).to_bytes(size, "big")


class _Clock:
    def __init__(self):
        self.now_ns = 0

    def __call__(self):
        return self.now_ns


def _sensor(bus, **settings):
    return InaI2c(bus="1", open_bus=lambda _: bus, sleep=lambda _: None, **{"clock": _Clock(), **settings})


def test_an_ina226_is_volts_times_shunt_volts_over_ohms():
    """5.12 V; 62.5 mV over 0.1 Ohm is 0.625 A."""
    bus = _Bus("ina226", x01=25000, x02=4096)
    sensor = _sensor(bus, shunt_ohm="0.1")
    description = sensor.describe()
    assert (description.id, description.scope, description.kind) == ("ina_i2c:ina226@1-0040", "board-input", "power")
    assert sensor.read().power_w == pytest.approx(5.12 * 0.625)
    # A step of current, 2.5 uV / 0.1 Ohm, at 5.12 V is less than one of voltage, 1.25 mV, at 0.625 A.
    assert description.resolution_w == pytest.approx(0.625 * 0.00125)


def test_an_ina219_keeps_flags_out_of_its_volts():
    """Bus voltage stands above three bits of which two are flags: 1250 x 4 mV; 40 mV over 0.1 Ohm."""
    bus = _Bus("ina219", x01=4000, x02=1250 << 3 | 0b11)
    sensor = _sensor(bus, chip="ina219", shunt_ohm="0.1")
    sensor.describe()
    assert sensor.read().power_w == pytest.approx(5.0 * 0.4)


def test_an_ina260_has_its_shunt_inside():
    """400 x 1.25 mA; a shunt that is set changes nothing."""
    bus = _Bus("ina260", x01=400, x02=4000)
    for settings in ({}, {"shunt_ohm": "0.1"}):
        sensor = _sensor(bus, **settings)
        description = sensor.describe()
        assert (description.gain_u_ratio, sensor.read().power_w) == (0.005, pytest.approx(2.5))


def test_current_that_flows_backwards_is_negative():
    """Two's complement in each; `direction` turns it."""
    for name, register, number, current_a in [
        ("ina219", "x01", -400, -0.04),
        ("ina226", "x01", -1600, -0.04),
        ("ina260", "x01", -32, -0.04),
    ]:
        bus = _Bus(name, x02=1250 << 3 if name == "ina219" else 4000, **{register: number})
        settings = {"chip": name, "shunt_ohm": "0.1"}
        assert _sensor(bus, **settings).read().power_w == pytest.approx(5 * current_a), f"{name!r}"
        assert _sensor(bus, **settings, direction="reverse").read().power_w == pytest.approx(-5 * current_a), f"{name!r}"


def test_averaging_is_set_and_the_period_follows():
    """The words of the data sheets' defaults where nothing is averaged, and of the kernel's drivers where 16 are."""
    for name, averages, written, period_ms in [
        ("ina219", "1", [(0x00, 0x399F)], 100),
        ("ina219", "128", [(0x00, 0x3FFF)], 2 * 128 * 0.532),
        ("ina226", "16", [(0x00, 0x4527)], 100),
        ("ina226", "1024", [(0x00, 0x4F27)], 2252.8),
        ("ina260", "16", [(0x00, 0x6527)], 100),
        ("ina228", "1", [(0x00, 0), (0x02, 4096), (0x01, 0xFB68)], 100),
        ("ina228", "64", [(0x00, 0), (0x02, 4096), (0x01, 0xFB6B)], 3 * 64 * 1.052),
    ]:
        bus = _Bus(name)
        description = _sensor(bus, chip=name, shunt_ohm="0.1", averages=averages).describe()
        assert bus.written == written, f"{name!r}, {averages!r}"
        assert description.period_ms == pytest.approx(period_ms), f"{name!r}, {averages!r}"


def test_an_average_that_the_chip_cannot_make_is_refused():
    """An INA219 makes powers of two up to 128, the others other numbers."""
    with pytest.raises(ConfigError, match="averages 1, 2, 4, 8"):
        _sensor(_Bus("ina219"), chip="ina219", shunt_ohm="0.1", averages="256").describe()
    with pytest.raises(ConfigError, match="averages 1, 4, 16"):
        _sensor(_Bus("ina226"), shunt_ohm="0.1", averages="2").describe()


def test_a_current_beyond_the_range_is_no_number():
    """At the end of the scale it may be anything above."""
    for name, register, number in [
        ("ina219", 0x01, 32000),
        ("ina219", 0x01, -32000),
        ("ina226", 0x01, 0x7FFF),
        ("ina226", 0x01, -0x8000),
        ("ina228", 0x04, 0x7FFFF << 4),
    ]:
        bus = _Bus(name)
        sensor = _sensor(bus, chip=name, shunt_ohm="0.1")
        sensor.describe()
        bus.registers[register] = number
        with table_row(name), pytest.raises(TransientError, match="larger than can be measured"):
            sensor.read()


def test_an_ina228_counts_energy_and_its_counter_wraps():
    """A count is 51.2 x 312.5 nV / 0.01 Ohm, 1.6 mJ; forty bits; the watts stand beside it."""
    clock = _Clock()
    bus = _Bus("ina228", x04=(1 << 4) * 32000, x05=(1 << 4) * 25600, x09=(1 << 40) - 1000)
    sensor = _sensor(bus, shunt_ohm="0.01", clock=clock)
    description = sensor.describe()
    assert (description.kind, description.resolution_w, description.resolution_mj) == ("energy", None, pytest.approx(1.6))
    start = sensor.read()
    # 25600 x 195.3125 uV is 5 V; 32000 x 312.5 nV is 10 mV, over 0.01 Ohm 1 A.
    assert start.rails[0].power_w == pytest.approx(5.0)
    clock.now_ns += 1_000_000_000
    bus.registers[0x09] = 2125
    assert sensor.read().energy_mj - start.energy_mj == pytest.approx(3125 * 1.6)


def test_a_counter_that_was_reset_is_not_taken_for_a_wrap():
    """From a million counts to none within a second would be a gigawatt."""
    clock = _Clock()
    bus = _Bus("ina228", x04=(1 << 4) * 32000, x05=(1 << 4) * 25600, x09=1_000_000)
    sensor = _sensor(bus, shunt_ohm="0.01", clock=clock)
    sensor.describe()
    clock.now_ns += 1_000_000_000
    bus.registers[0x09] = 0
    with pytest.raises(UnavailableError, match="was reset"):
        sensor.read()


def test_a_counter_without_sign_is_not_used_backwards():
    """-10 mV of shunt: refused, or power where the direction is said; a few steps are only the chip's offset."""
    bus = _Bus("ina228", x04=(1 << 4) * -32000, x05=(1 << 4) * 25600)
    with pytest.raises(UnavailableError, match="backwards"):
        _sensor(bus, shunt_ohm="0.01").describe()
    turned = _sensor(bus, shunt_ohm="0.01", direction="reverse")
    assert turned.describe().kind == "power"
    assert turned.read().power_w == pytest.approx(5.0)
    bus.registers[0x04] = (1 << 4) * -5
    assert _sensor(bus, shunt_ohm="0.01").describe().kind == "energy"


def test_arithmetic_that_overflowed_is_no_number():
    """The bit MATHOF in the register DIAG_ALRT makes the reading fail."""
    bus = _Bus("ina228")
    sensor = _sensor(bus, shunt_ohm="0.01")
    sensor.describe()
    bus.registers[0x0B] = 1 << 9
    with pytest.raises(TransientError, match="overflowed"):
        sensor.read()


def test_another_chip_than_the_configured_one_is_refused():
    """By maker and die; one that carries no identity has to be named, and is not taken for another."""
    with pytest.raises(UnavailableError, match="is ina226, not ina219"):
        _sensor(_Bus("ina226"), chip="ina219", shunt_ohm="0.1").describe()
    with pytest.raises(UnavailableError, match="not ina228"):
        _sensor(_Bus("ina219"), chip="ina228", shunt_ohm="0.1").describe()
    with pytest.raises(ConfigError, match='chip = "ina219"'):
        _sensor(_Bus("ina219"), shunt_ohm="0.1").describe()
    with pytest.raises(ConfigError, match="ina219, ina226"):
        _sensor(_Bus("ina219"), chip="ina3221", shunt_ohm="0.1").describe()


def test_without_a_shunt_there_is_no_number():
    """100 mOhm is usual, and no reason to guess."""
    with pytest.raises(ConfigError, match="shunt_ohm"):
        _sensor(_Bus("ina226")).describe()


def test_a_refused_bus_names_the_remedy():
    """A kernel driver has the chip; no chip replies."""
    for number, error, match in [
        (errno.EBUSY, UnavailableError, "the sensor `ina2xx`"),
        (errno.EREMOTEIO, UnavailableError, "i2cdetect"),
        (errno.ENXIO, UnavailableError, "i2cdetect"),
        (errno.EINVAL, UnavailableError, "i2cdetect"),
    ]:
        bus = _Bus("ina226")
        bus.fails = number
        with table_row(number), pytest.raises(error, match=match):
            _sensor(bus, shunt_ohm="0.1").describe()


def test_a_chip_that_does_not_reply_once_may_reply_again():
    """Noise on the bus ends no measurement."""
    bus = _Bus("ina226", x01=25000, x02=4096)
    sensor = _sensor(bus, shunt_ohm="0.1")
    sensor.describe()
    bus.fails = errno.EREMOTEIO
    with pytest.raises(TransientError):
        sensor.read()
    bus.fails = None
    assert sensor.read().power_w == pytest.approx(3.2)
    sensor.close()
    assert bus.is_closed


def test_a_failed_start_leaves_no_bus_open():
    """Whoever closes the sensor closes the bus."""
    bus = _Bus("ina226")
    sensor = _sensor(bus)
    with pytest.raises(ConfigError):
        sensor.describe()
    sensor.close()
    assert bus.is_closed


def test_without_a_bus_there_is_none():
    """Nobody looks for chips on buses unasked: writing to another's chip could do harm."""
    with pytest.raises(AbsentError, match="bus ="):
        InaI2c().describe()


def test_a_wrong_setting_is_refused_with_its_name():
    """Before the bus is opened."""
    for settings in [{"address": "0x20"}, {"address": "forty"}, {"averages": "many"}, {"shunt_ohm": "0"}]:
        with table_row(settings), pytest.raises(ConfigError, match=next(iter(settings))):
            InaI2c(bus="1", **settings)


def test_a_missing_library_names_what_to_install(monkeypatch):
    """smbus2 is an extra."""
    monkeypatch.setitem(sys.modules, "smbus2", None)
    with pytest.raises(UnavailableError, match=r"pip install 'edgemeter\[i2c\]'"):
        open_bus("/dev/i2c-1")


def test_a_missing_bus_names_how_to_switch_it_on(tmp_path):
    """With the real library; and a file that is no bus."""
    pytest.importorskip("smbus2")
    with pytest.raises(UnavailableError, match="raspi-config"):
        InaI2c(bus="1", shunt_ohm="0.1", world=SensorWorld(tmp_path)).describe()
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/i2c-1").write_bytes(b"")
    with pytest.raises(UnavailableError, match="check that it is an I2C bus"):
        InaI2c(bus="1", shunt_ohm="0.1", world=SensorWorld(tmp_path)).describe()


DUMP = Path(__file__).resolve().parents[2] / "fixtures/power/ina_i2c/i2cdump.txt"


def test_a_dump_is_read_as_the_chip(tmp_path):
    """An INA260's: 0x01f4 is 500 x 1.25 mA, 0x0ff8 is 4088 x 1.25 mV, each with its bytes turned; i2cget shows the same."""
    single = "".join(
        f"$ i2cget -y 1 0x40 {register} w\n{word}\n"
        for register, word in (("0x00", "0x2761"), ("0x01", "0xf401"), ("0x02", "0xf80f"), ("0xfe", "0x4954"), ("0xff", "0x7022"))
    )
    (tmp_path / "get.txt").write_text(single)
    for path in (DUMP, tmp_path / "get.txt"):
        recording = read_recording(path)
        assert (recording.name, recording.reading.power_w) == ("ina_i2c", pytest.approx(0.625 * 5.11))


def test_a_dump_without_what_is_needed_is_no_number(tmp_path):
    """A register that did not answer; a chip of which nobody says the shunt."""
    path = tmp_path / "dump.txt"
    path.write_text(DUMP.read_text().replace("f401", "XXXX"))
    with pytest.raises(UnavailableError, match="register 0x01"):
        read_recording(path)
    path.write_text(DUMP.read_text().replace("7022", "6022"))
    with pytest.raises(ConfigError, match="shunt"):
        read_recording(path)
