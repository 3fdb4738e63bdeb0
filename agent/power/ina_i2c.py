"""INA219, INA226, INA260 and INA228 current monitors on an I2C bus, read without a kernel driver.

Wiring: SDA, SCL, GND and 3.3 V of the header (pins 3, 5, 6, 1 of a Raspberry Pi); the board's 5 V feed through VIN+ and VIN-.
Library: smbus2, `pip install 'edgemeter[i2c]'`, and the group `i2c`. Where a kernel driver has the chip, use the sensor `ina2xx`.
Registers: `ina_registers.py`. The chip is set to measure without pause, averaging; that is all that is written to it.

    [sensors.ina_i2c]
    bus = "1"                  # /dev/i2c-1
    address = "0x40"
    chip = "ina219"            # the others say themselves what they are
    shunt_ohm = "0.1"          # what is printed on the shunt (R100); the INA260's is inside
    averages = "16"
    scope = "board-input"      # what the shunt feeds
    direction = "forward"      # or "reverse", where current towards the board reads negative

Gain: a class, as with the sensor `ina2xx`. The INA228 counts energy in the chip, without a sign: current must flow forwards.
Tested with: an imitation of each chip, register by register; not yet with a chip.
"""

import math
import time
from collections.abc import Callable

from edgemeter.agent.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.power import AbsentError, Description, Rail, Reading, i2c_bus, settings
from edgemeter.agent.power.i2c_bus import Bus, Registers
from edgemeter.agent.power.ina2xx import BOARD_U_RATIO, INTERNAL_U_RATIO
from edgemeter.agent.power.ina_registers import CHIPS, Ina, Measured
from edgemeter.agent.power.world import HERE, World

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
        world: World = HERE,
        clock: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], None] = time.sleep,
        open_bus: Callable[[str], Bus] = i2c_bus.open_bus,
    ) -> None:
        self._bus = bus
        self._address = _whole("address", address, 0)
        self._chip_said = chip
        self._shunt_ohm = settings.positive("ina_i2c", "shunt_ohm", shunt_ohm) if shunt_ohm else None
        self._averages = _whole("averages", averages, 10)
        self._scope = settings.scope("ina_i2c", scope) if scope else None
        self._sign = settings.direction("ina_i2c", direction)
        self._world = world
        self._clock = clock
        self._sleep = sleep
        self._open = open_bus
        self._registers: Registers | None = None
        self._chip: Ina | None = None
        self._period_ms = SHORTEST_PERIOD_MS
        self._last: tuple[int, int] | None = None
        self._counted = 0
        if self._address not in ADDRESSES:
            message = f"[sensors.ina_i2c] address = {address!r}: an INA is between 0x40 and 0x4f"
            raise ConfigError(message)

    def describe(self) -> Description:
        """Set the chip up and return what it is.

        Raises:
            AbsentError: nobody said on which bus it is.
            UnavailableError: it does not answer, is another chip, or a kernel driver has it.
            ConfigError: its kind or its shunt is not known.
        """
        try:
            chip, registers = self._opened()
            measured = chip.measure(registers, self._shunt())
            reading = self.read()
        except TransientError as error:
            raise UnavailableError(str(error)) from error
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
            warnings=()
            if self._scope
            else ("taken for the board's input: set scope in [sensors.ina_i2c] where the shunt feeds something else",),
        )

    def read(self) -> Reading:
        """Return voltage times current, or the energy since the first reading.

        Raises:
            TransientError: the chip did not answer, or the current is beyond its range.
            UnavailableError: it was reset, or its counter counts what flows backwards.
        """
        chip, registers = self._opened()
        begin = self._clock()
        measured = chip.measure(registers, self._shunt())
        taken_ns = (begin + self._clock()) // 2
        power_w = self._sign * measured.voltage_v * measured.current_a
        rails = (Rail(chip.name, power_w),)
        step_mj = chip.energy_step_mj(self._shunt())
        if step_mj is None or measured.energy_count is None or self._sign < 0:
            return Reading(taken_ns=taken_ns, power_w=power_w, rails=rails)
        self._check_direction(measured, chip)
        return Reading(taken_ns=taken_ns, energy_mj=self._count(measured.energy_count, taken_ns, step_mj) * step_mj, rails=rails)

    def close(self) -> None:
        """Give the bus back."""
        if self._registers is not None:
            self._registers.close()
        self._registers = None
        self._chip = None
        self._last = None
        self._counted = 0

    @staticmethod
    def recognises(content: bytes) -> bool:
        """Say whether it is what `i2cdump ... w` or `i2cget ... w` printed."""
        return i2c_bus.is_dump(content)

    def _opened(self) -> tuple[Ina, Registers]:
        if self._chip is not None and self._registers is not None:
            return self._chip, self._registers
        if self._world.content is not None:
            registers = Registers(i2c_bus.Dump(self._world.content), self._address)
        elif not self._bus:
            message = 'nobody said on which I2C bus an INA is: set bus = "1" and shunt_ohm = "0.1" in [sensors.ina_i2c]'
            raise AbsentError(message)
        else:
            registers = Registers(self._open(str(self._world.root / f"dev/i2c-{self._bus}")), self._address)
        self._registers = registers
        chip = self._identified(registers)
        if not chip.has_shunt and self._shunt_ohm is None:
            message = f"the {chip.name}'s shunt is not known: set shunt_ohm in [sensors.ina_i2c] to what is printed on it (R100 is 0.1 Ohm)"
            raise ConfigError(message)
        if self._world.content is None:
            self._period_ms = chip.configure(registers, self._averages)
            self._sleep(self._period_ms / 1000)
        self._chip = chip
        return chip, registers

    def _identified(self, registers: Registers) -> Ina:
        if self._chip_said and self._chip_said not in CHIPS:
            message = f"[sensors.ina_i2c] chip = {self._chip_said!r}: choose one of {', '.join(CHIPS)}"
            raise ConfigError(message)
        # Asked first, so that a chip which is not there is not taken for one without an identity.
        registers.unsigned(0x00)
        says = next((chip for chip in CHIPS.values() if _says(chip, registers)), None)
        if says is not None and self._chip_said in {"", says.name}:
            return says
        if says is None and self._chip_said == WITHOUT_IDENTITY:
            return CHIPS[WITHOUT_IDENTITY]
        if says is None and not self._chip_said:
            message = 'the chip does not say what it is: set chip = "ina219" in [sensors.ina_i2c] if that is what is printed on it'
            raise ConfigError(message)
        message = (
            f"the chip at {self._address:#04x} is {says.name if says else 'no INA that says what it is'}, not {self._chip_said}: "
            "correct chip in [sensors.ina_i2c]"
        )
        raise UnavailableError(message)

    def _shunt(self) -> float:
        return self._shunt_ohm or 1.0

    def _check_direction(self, measured: Measured, chip: Ina) -> None:
        if measured.current_a < -OFFSET_STEPS * chip.current_step_a(self._shunt()):
            message = (
                f"the {chip.name}'s energy counter has no sign, and current flows backwards through it: turn IN+ and IN- around, "
                'or set direction = "reverse" in [sensors.ina_i2c] to read power instead'
            )
            raise UnavailableError(message)

    def _count(self, now: int, now_ns: int, step_mj: float) -> int:
        if self._last is not None:
            before, before_ns = self._last
            moved = (now - before) % COUNTER_RANGE
            if moved * step_mj / 1000 > HIGHEST_W * max(now_ns - before_ns, 1) / 1e9 + step_mj:
                message = f"the INA's energy counter went from {before} to {now}: the chip was reset, measure again"
                raise UnavailableError(message)
            self._counted += moved
        self._last = (now, now_ns)
        return self._counted


def _says(chip: Ina, registers: Registers) -> bool:
    try:
        return bool(chip.is_here(registers))
    except (TransientError, UnavailableError):
        return False


def _whole(key: str, said: str, base: int) -> int:
    try:
        return int(said, base)
    except ValueError as error:
        message = f"[sensors.ina_i2c] {key} = {said!r}: give a whole number"
        raise ConfigError(message) from error
