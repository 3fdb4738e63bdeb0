"""INA219, INA226, INA260 and INA228 current monitors on an I2C bus, read without a kernel driver.

Wiring: SDA, SCL, GND and 3.3 V of the header (pins 3, 5, 6, 1 of a Raspberry Pi); the board's 5 V feed through VIN+ and VIN-.
Library: smbus2, `pip install 'edgemeter[i2c]'`, and the group `i2c`. Where a kernel driver has the chip, use the sensor `ina2xx`.
The chip is set to measure without pause, averaging; that is all that is written to it.

    [sensors.ina_i2c]
    bus = "1"                  # /dev/i2c-1
    address = "0x40"
    chip = "ina219"            # the others are identified by their registers
    shunt_ohm = "0.1"          # what is printed on the shunt (R100); the INA260's is inside
    averages = "16"
    scope = "board-input"      # what the shunt feeds
    direction = "forward"      # or "reverse", where current towards the board reads negative

Gain: a class, as with the sensor `ina2xx`. The INA228 counts energy in the chip, without a sign: current must flow forwards.
Tested with: an imitation of each chip, register by register; not yet with a chip.
"""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.power import AbsentError, Description, Rail, Reading, i2c_bus
from edgemeter.agent.power.i2c_bus import I2cBus, I2cRegisters
from edgemeter.agent.power.ina2xx import BOARD_U_RATIO, INTERNAL_U_RATIO
from edgemeter.agent.power.values import as_unavailable, averaging_by, direction_setting, positive_setting, scope_setting, within_range
from edgemeter.agent.power.world import HERE, SensorWorld

TEXAS_INSTRUMENTS = 0x5449
AVERAGES = (1, 4, 16, 64, 128, 256, 512, 1024)


@dataclass(frozen=True, slots=True)
class Measured:
    """One measurement, current towards the load positive; `energy_count` is the INA228's counter."""

    voltage_v: float
    current_a: float
    energy_count: int | None = None


class Ina(ABC):
    """One kind of chip: its registers, and what volts, amperes and joules they hold; `shunt_ohm` is ignored if the shunt is inside."""

    name = ""
    has_shunt = False
    # The registers of maker and die, the die's number, and how many of the lowest bits there are a revision; None: it carries no identity.
    identity: tuple[int, int, int, int] | None = None
    voltage_step_v = 0.0
    # How many of the lowest bits beside the bus voltage are flags.
    voltage_flags = 0
    shunt_step_v = 0.0
    full_scale = 0

    def is_here(self, registers: I2cRegisters) -> bool:
        """Return whether the chip identifies itself as one; False for a kind without an identity register."""
        if self.identity is None:
            return False
        maker, die, number, revision_bits = self.identity
        return registers.unsigned(maker) == TEXAS_INSTRUMENTS and registers.unsigned(die) >> revision_bits == number

    @abstractmethod
    def configure(self, registers: I2cRegisters, averages: int) -> float:
        """Set it to measure without pause; return how long one measurement takes, ms."""

    def measure(self, registers: I2cRegisters, shunt_ohm: float) -> Measured:
        """Return the newest measurement; raises TransientError if the current is beyond what the chip can measure."""
        current_a = self.within(registers.signed(0x01)) * self.current_step_a(shunt_ohm)
        return Measured((registers.unsigned(0x02) >> self.voltage_flags) * self.voltage_step_v, current_a)

    def current_step_a(self, shunt_ohm: float) -> float:
        """Return the step of its current."""
        return self.shunt_step_v / shunt_ohm

    def energy_step_mj(self, shunt_ohm: float) -> float | None:  # noqa: ARG002
        """Return the step of its energy counter, None if it has none."""
        return None

    def code(self, averages: int, choices: Sequence[int]) -> int:
        """Return the register's code for a number of averages; raises ConfigError if it cannot average that many."""
        if averages in choices:
            return choices.index(averages)
        raise ConfigError(f"averages = {averages} in [sensors.ina_i2c]: the {self.name} averages {', '.join(map(str, choices))}")

    def within(self, number: int) -> float:
        """Return the number of the shunt's register; raises as `measure`."""
        return within_range(number, self.full_scale, self.name)


class Ina219(Ina):
    """12 bits, 26 V; it carries no identity. Full scale is 320 mV, the widest range, which `configure` sets."""

    name = "ina219"
    voltage_step_v = 0.004
    voltage_flags = 3
    shunt_step_v = 10e-6
    full_scale = 32_000
    CONVERSION_MS = 0.532

    def configure(self, registers: I2cRegisters, averages: int) -> float:
        """32 V, 320 mV, 12 bits, both without pause; a power of two up to 128 is averaged."""
        code = 0b0011 if averages == 1 else 0b1000 | self.code(averages, tuple(1 << power for power in range(8)))
        registers.write(0x00, 0x3807 | code << 7 | code << 3)
        return 2 * averages * self.CONVERSION_MS


class Ina226(Ina):
    """16 bits, 36 V."""

    name = "ina226"
    voltage_step_v = 0.00125
    shunt_step_v = 2.5e-6
    full_scale = 0x7FFF
    identity = (0xFE, 0xFF, 0x2260, 0)
    # The bit that reads as one, and 1.1 ms for both conversions.
    CONFIGURATION = 0x4000
    CONVERSION_MS = 1.1

    def configure(self, registers: I2cRegisters, averages: int) -> float:
        """1.1 ms each for bus and shunt, without pause."""
        registers.write(0x00, self.CONFIGURATION | self.code(averages, AVERAGES) << 9 | 0b100 << 6 | 0b100 << 3 | 0b111)
        return 2 * averages * self.CONVERSION_MS


class Ina260(Ina226):
    """As the INA226, with a shunt of 2 mOhm inside: its first register is the current."""

    name = "ina260"
    has_shunt = True
    identity = (0xFE, 0xFF, 0x2270, 0)
    CONFIGURATION = 0x6000

    def current_step_a(self, shunt_ohm: float) -> float:  # noqa: ARG002 - it is inside
        """1.25 mA."""
        return 0.00125


class Ina228(Ina):
    """20 bits, 85 V; counts energy in 40 bits, without sign."""

    name = "ina228"
    voltage_step_v = 195.3125e-6
    shunt_step_v = 312.5e-9
    full_scale = 0x7FFFF
    identity = (0x3E, 0x3F, 0x228, 4)
    CALIBRATION = 4096
    MATH_OVERFLOW = 1 << 9
    CONVERSION_MS = 1.052

    def configure(self, registers: I2cRegisters, averages: int) -> float:
        """163.84 mV, 1.052 ms each for bus, shunt and temperature, without pause."""
        code = self.code(averages, AVERAGES)
        registers.write(0x00, 0x0000)
        registers.write(0x02, self.CALIBRATION)
        registers.write(0x01, 0xF << 12 | 0b101 << 9 | 0b101 << 6 | 0b101 << 3 | code)
        return 3 * averages * self.CONVERSION_MS

    def measure(self, registers: I2cRegisters, shunt_ohm: float) -> Measured:
        """The lowest four of 24 bits are nothing."""
        if registers.unsigned(0x0B) & self.MATH_OVERFLOW:
            raise TransientError("the INA228's arithmetic overflowed: the current is beyond its range")
        shunt = self.within(registers.signed(0x04, 3) >> 4)
        voltage_v = (registers.unsigned(0x05, 3) >> 4) * self.voltage_step_v
        return Measured(voltage_v, shunt * self.current_step_a(shunt_ohm), registers.unsigned(0x09, 5))

    def energy_step_mj(self, shunt_ohm: float) -> float | None:
        """A count is 16 x 3.2 steps of current, in joules."""
        return 16 * 3.2 * self.current_step_a(shunt_ohm) * 1000


CHIPS: dict[str, Ina] = {chip.name: chip for chip in (Ina219(), Ina226(), Ina260(), Ina228())}


SHORTEST_PERIOD_MS = 100.0
COUNTER_RANGE = 1 << 40
# More than any INA can measure (85 V, 163.84 mV on 1 mOhm): a counter that seems to was reset.
HIGHEST_W = 14_000.0
# Steps of the shunt's voltage that are no current but the chip's offset.
OFFSET_STEPS = 32
WITHOUT_IDENTITY = "ina219"
ADDRESSES = range(0x40, 0x50)


class InaI2c:
    """Reads one chip on the bus that the settings name."""

    recognises = staticmethod(i2c_bus.is_dump)

    def __init__(  # noqa: PLR0913 - each setting is a keyword
        self,
        *,
        bus: str = "",
        address: str = "0x40",
        chip: str = "",
        shunt_ohm: str = "",
        averages: str = "16",
        scope: str = "",
        direction: str = "forward",
        world: SensorWorld = HERE,
        clock: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], None] = time.sleep,
        open_bus: Callable[[str], I2cBus] = i2c_bus.open_bus,
    ) -> None:
        self._bus = bus
        self._address = _whole("address", address, 0)
        self._chip_name = chip
        self._shunt_ohm = positive_setting("ina_i2c", "shunt_ohm", shunt_ohm) if shunt_ohm else None
        self._averages = _whole("averages", averages, 10)
        self._scope = scope_setting("ina_i2c", scope) if scope else None
        self._sign = direction_setting("ina_i2c", direction)
        self._world = world
        self._clock = clock
        self._sleep = sleep
        self._open = open_bus
        self._registers: I2cRegisters | None = None
        self._chip: Ina | None = None
        self._period_ms = SHORTEST_PERIOD_MS
        self._last: tuple[int, int] | None = None
        self._counted = 0
        if self._address not in ADDRESSES:
            raise ConfigError(f"[sensors.ina_i2c] address = {address!r}: an INA is between 0x40 and 0x4f")

    def describe(self) -> Description:
        """Set the chip up and return its description."""
        with as_unavailable():
            chip, registers = self._opened()
            measured = chip.measure(registers, self._shunt())
            reading = self.read()
        shunt_ohm = self._shunt()
        counts = reading.energy_mj is not None
        steps_w = (abs(measured.voltage_v) * chip.current_step_a(shunt_ohm), abs(measured.current_a) * chip.voltage_step_v)
        return Description(
            id=f"ina_i2c:{chip.name}@{self._bus or 'dump'}-{self._address:04x}",
            scope=self._scope or "board-input",
            excludes=("power-supply loss",),
            kind="energy" if counts else "power",
            period_ms=max(SHORTEST_PERIOD_MS, self._period_ms),
            resolution_w=None if counts else max(steps_w),
            # What the chip counts went through the same converter: its zero is known no better.
            offset_u_w=max(steps_w) / math.sqrt(3) if counts else None,
            gain_u_ratio=INTERNAL_U_RATIO if chip.has_shunt else BOARD_U_RATIO,
            resolution_mj=chip.energy_step_mj(shunt_ohm) if counts else None,
            averaging=averaging_by("driver", window_s=self._period_ms / 1000, update_interval_s=self._period_ms / 1000),
            warnings=()
            if self._scope
            else ("taken for the board's input: set scope in [sensors.ina_i2c] where the shunt feeds something else",),
        )

    def read(self) -> Reading:
        """Return voltage times current, or the energy since the first reading."""
        chip, registers = self._opened()
        begin = self._clock()
        measured = chip.measure(registers, self._shunt())
        taken_ns = (begin + self._clock()) // 2
        power_w = self._sign * measured.voltage_v * measured.current_a
        rails = (Rail(chip.name, power_w),)
        step_mj = chip.energy_step_mj(self._shunt())
        if step_mj is None or measured.energy_count is None or self._sign < 0:
            return Reading(taken_ns=taken_ns, power_w=power_w, rails=rails)
        if measured.current_a < -OFFSET_STEPS * chip.current_step_a(self._shunt()):
            raise UnavailableError(
                f"the {chip.name}'s energy counter has no sign, and current flows backwards through it: turn IN+ and IN- around, "
                'or set direction = "reverse" in [sensors.ina_i2c] to read power instead'
            )
        return Reading(taken_ns=taken_ns, energy_mj=self._count(measured.energy_count, taken_ns, step_mj) * step_mj, rails=rails)

    def close(self) -> None:
        """Close the bus."""
        if self._registers is not None:
            self._registers.close()
        self._registers = None
        self._chip = None
        self._last = None
        self._counted = 0

    def _opened(self) -> tuple[Ina, I2cRegisters]:
        if self._chip is not None and self._registers is not None:
            return self._chip, self._registers
        if self._world.content is not None:
            registers = I2cRegisters(i2c_bus.I2cDump(self._world.content), self._address)
        elif not self._bus:
            raise AbsentError('no I2C bus is configured: set bus = "1" and shunt_ohm = "0.1" in [sensors.ina_i2c]')
        else:
            registers = I2cRegisters(self._open(str(self._world.root / f"dev/i2c-{self._bus}")), self._address)
        self._registers = registers
        chip = self._identified(registers)
        if not chip.has_shunt and self._shunt_ohm is None:
            raise ConfigError(
                f"the {chip.name}'s shunt is not known: set shunt_ohm in [sensors.ina_i2c] to what is printed on it (R100 is 0.1 Ohm)"
            )
        if self._world.content is None:
            self._period_ms = chip.configure(registers, self._averages)
            self._sleep(self._period_ms / 1000)
        self._chip = chip
        return chip, registers

    def _identified(self, registers: I2cRegisters) -> Ina:
        if self._chip_name and self._chip_name not in CHIPS:
            raise ConfigError(f"[sensors.ina_i2c] chip = {self._chip_name!r}: choose one of {', '.join(CHIPS)}")
        # Asked first, so that a chip which is not there is not taken for one without an identity.
        registers.unsigned(0x00)
        identified = None
        for chip in CHIPS.values():
            with suppress(TransientError, UnavailableError):
                if identified is None and chip.is_here(registers):
                    identified = chip
        if identified is not None and self._chip_name in {"", identified.name}:
            return identified
        if identified is None and self._chip_name == WITHOUT_IDENTITY:
            return CHIPS[WITHOUT_IDENTITY]
        if identified is None and not self._chip_name:
            raise ConfigError(
                'the chip has no identity register: set chip = "ina219" in [sensors.ina_i2c] if that is what is printed on it'
            )
        raise UnavailableError(
            f"the chip at {self._address:#04x} is {identified.name if identified else 'no known INA'}, not {self._chip_name}: "
            "correct chip in [sensors.ina_i2c]"
        )

    def _shunt(self) -> float:
        return self._shunt_ohm or 1.0

    def _count(self, now: int, now_ns: int, step_mj: float) -> int:
        if self._last is not None:
            before, before_ns = self._last
            moved = (now - before) % COUNTER_RANGE
            if moved * step_mj / 1000 > HIGHEST_W * max(now_ns - before_ns, 1) / 1e9 + step_mj:
                raise UnavailableError(f"the INA's energy counter went from {before} to {now}: the chip was reset, measure again")
            self._counted += moved
        self._last = (now, now_ns)
        return self._counted


def _whole(key: str, text: str, base: int) -> int:
    try:
        return int(text, base)
    except ValueError as error:
        raise ConfigError(f"[sensors.ina_i2c] {key} = {text!r}: give a whole number") from error
