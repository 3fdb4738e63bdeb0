"""What the registers of INA219, INA226, INA260 and INA228 mean: how each is set up, and volts, amperes and joules from its numbers.

Current is the shunt's voltage over its resistance: the chips' own current and power registers depend on a calibration and, in power, have
no sign. Only the INA228's energy counter needs its calibration, which is 4096 for every shunt when a step of current is a step of the
shunt's voltage.
Source: data sheets by Texas Instruments, INA219 SBOS448 section 8.6, INA226 SBOS547 7.6, INA260 SBOS656 8.6, INA228 SLYS021 7.6 and 8.1.2
(numbers of registers and bits checked against Linux ina2xx.c and ina238.c; the INA228's DIAG_ALRT bits from memory).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from edgemeter.agent.errors import ConfigError, TransientError
from edgemeter.agent.power.i2c_bus import Registers

TEXAS_INSTRUMENTS = 0x5449
AVERAGES = (1, 4, 16, 64, 128, 256, 512, 1024)


@dataclass(frozen=True, slots=True)
class Measured:
    """One measurement, current towards the load positive; `energy_count` is the INA228's counter."""

    voltage_v: float
    current_a: float
    energy_count: int | None = None


class Ina(Protocol):
    """One kind of chip; `shunt_ohm` is not looked at where it is inside."""

    name: str
    has_shunt: bool
    voltage_step_v: float

    def is_here(self, registers: Registers) -> bool | None:
        """Say whether the chip says that it is one; None where this kind cannot tell."""
        ...

    def configure(self, registers: Registers, averages: int) -> float:
        """Set it to measure without pause; return how long one measurement takes, ms."""
        ...

    def measure(self, registers: Registers, shunt_ohm: float) -> Measured:
        """Return the newest measurement.

        Raises:
            TransientError: the current is beyond what the chip can measure.
        """
        ...

    def current_step_a(self, shunt_ohm: float) -> float:
        """Return the step of its current."""
        ...

    def energy_step_mj(self, shunt_ohm: float) -> float | None:
        """Return the step of its energy counter, None where it has none."""
        ...


class Ina219:
    """12 bits, 26 V; it carries no identity."""

    name = "ina219"
    has_shunt = False
    voltage_step_v = 0.004
    SHUNT_STEP_V = 10e-6
    # 320 mV, the widest range, which `configure` sets.
    FULL_SCALE = 32_000
    CONVERSION_MS = 0.532

    def is_here(self, registers: Registers) -> bool | None:  # noqa: ARG002 - there is nothing to ask
        """Return None: it has no identity."""
        return None

    def configure(self, registers: Registers, averages: int) -> float:
        """32 V, 320 mV, 12 bits, both without pause; a power of two up to 128 is averaged."""
        choices = tuple(1 << power for power in range(8))
        code = 0b0011 if averages == 1 else 0b1000 | _code(self.name, averages, choices)
        registers.write(0x00, 0x3807 | code << 7 | code << 3)
        return 2 * averages * self.CONVERSION_MS

    def measure(self, registers: Registers, shunt_ohm: float) -> Measured:
        """Bus voltage stands in the upper 13 bits; the lower ones are flags."""
        shunt = _within(registers.signed(0x01), self.FULL_SCALE, self.name)
        return Measured((registers.unsigned(0x02) >> 3) * self.voltage_step_v, shunt * self.SHUNT_STEP_V / shunt_ohm)

    def current_step_a(self, shunt_ohm: float) -> float:
        """10 uV."""
        return self.SHUNT_STEP_V / shunt_ohm

    def energy_step_mj(self, shunt_ohm: float) -> float | None:  # noqa: ARG002
        """It counts none."""
        return None


class Ina226:
    """16 bits, 36 V."""

    name = "ina226"
    has_shunt = False
    voltage_step_v = 0.00125
    SHUNT_STEP_V = 2.5e-6
    FULL_SCALE = 0x7FFF
    DIE = 0x2260
    # The bit that reads as one, and 1.1 ms for both conversions.
    CONFIGURATION = 0x4000
    CONVERSION_MS = 1.1

    def is_here(self, registers: Registers) -> bool | None:
        """Ask for maker and die."""
        return registers.unsigned(0xFE) == TEXAS_INSTRUMENTS and registers.unsigned(0xFF) == self.DIE

    def configure(self, registers: Registers, averages: int) -> float:
        """1.1 ms each for bus and shunt, without pause."""
        registers.write(0x00, self.CONFIGURATION | _code(self.name, averages, AVERAGES) << 9 | 0b100 << 6 | 0b100 << 3 | 0b111)
        return 2 * averages * self.CONVERSION_MS

    def measure(self, registers: Registers, shunt_ohm: float) -> Measured:
        """Shunt voltage in two's complement."""
        first = _within(registers.signed(0x01), self.FULL_SCALE, self.name)
        return Measured(registers.unsigned(0x02) * self.voltage_step_v, first * self.current_step_a(shunt_ohm))

    def current_step_a(self, shunt_ohm: float) -> float:
        """2.5 uV."""
        return self.SHUNT_STEP_V / shunt_ohm

    def energy_step_mj(self, shunt_ohm: float) -> float | None:  # noqa: ARG002
        """It counts none."""
        return None


class Ina260(Ina226):
    """As the INA226, with a shunt of 2 mOhm inside: its first register is the current."""

    name = "ina260"
    has_shunt = True
    DIE = 0x2270
    CONFIGURATION = 0x6000
    CURRENT_STEP_A = 0.00125

    def current_step_a(self, shunt_ohm: float) -> float:  # noqa: ARG002 - it is inside
        """1.25 mA."""
        return self.CURRENT_STEP_A


class Ina228:
    """20 bits, 85 V; counts energy in 40 bits, without sign."""

    name = "ina228"
    has_shunt = False
    voltage_step_v = 195.3125e-6
    SHUNT_STEP_V = 312.5e-9
    FULL_SCALE = 0x7FFFF
    DIE = 0x228
    CALIBRATION = 4096
    MATH_OVERFLOW = 1 << 9
    CONVERSION_MS = 1.052
    # A count is 16 x 3.2 steps of current, in joules.
    ENERGY_FACTOR = 16 * 3.2

    def is_here(self, registers: Registers) -> bool | None:
        """Ask for maker and die; the die's lowest digit is a revision."""
        return registers.unsigned(0x3E) == TEXAS_INSTRUMENTS and registers.unsigned(0x3F) >> 4 == self.DIE

    def configure(self, registers: Registers, averages: int) -> float:
        """163.84 mV, 1.052 ms each for bus, shunt and temperature, without pause."""
        code = _code(self.name, averages, AVERAGES)
        registers.write(0x00, 0x0000)
        registers.write(0x02, self.CALIBRATION)
        registers.write(0x01, 0xF << 12 | 0b101 << 9 | 0b101 << 6 | 0b101 << 3 | code)
        return 3 * averages * self.CONVERSION_MS

    def measure(self, registers: Registers, shunt_ohm: float) -> Measured:
        """The lowest four of 24 bits are nothing."""
        if registers.unsigned(0x0B) & self.MATH_OVERFLOW:
            message = "the INA228's arithmetic overflowed: the current is beyond its range"
            raise TransientError(message)
        shunt = _within(registers.signed(0x04, 3) >> 4, self.FULL_SCALE, self.name)
        voltage_v = (registers.unsigned(0x05, 3) >> 4) * self.voltage_step_v
        return Measured(voltage_v, shunt * self.SHUNT_STEP_V / shunt_ohm, registers.unsigned(0x09, 5))

    def current_step_a(self, shunt_ohm: float) -> float:
        """312.5 nV."""
        return self.SHUNT_STEP_V / shunt_ohm

    def energy_step_mj(self, shunt_ohm: float) -> float | None:
        """51.2 steps of current."""
        return self.ENERGY_FACTOR * self.current_step_a(shunt_ohm) * 1000


CHIPS: dict[str, Ina] = {chip.name: chip for chip in (Ina219(), Ina226(), Ina260(), Ina228())}


def _code(name: str, averages: int, choices: Sequence[int]) -> int:
    if averages in choices:
        return choices.index(averages)
    message = f"averages = {averages} in [sensors.ina_i2c]: the {name} averages {', '.join(map(str, choices))}"
    raise ConfigError(message)


def _within(number: int, full_scale: int, name: str) -> int:
    if abs(number) >= full_scale:
        message = f"the {name}'s shunt is at the end of its range: the current is larger than can be measured, use a smaller shunt"
        raise TransientError(message)
    return number
