"""RuiDeng USB meters UM24C, UM25C and UM34C, read over Bluetooth or a serial cable.

The gain is assumed to be within 2%.

Install: `pip install 'edgemeter[serial]'`. Unless you are root, join the group `dialout`. Bind a
Bluetooth meter first, with the address from `bluetoothctl devices`: `sudo rfcomm bind 0
00:15:A6:00:00:00`.

    [sensors.um25c]
    port = "/dev/rfcomm0"

Protocol: a UM25C has steps of 1 mV and 0.1 mA, the others of 10 mV and 1 mA. The byte 0xF0 asks for
a block of 130 bytes, big-endian: model, voltage, current, power, then temperatures, counters and
settings that are not used. Power is voltage times current, which is finer than the block's own
figure; if the two disagree the block is garbled.
Source: the block's layout as published by the sigrok project, "RDTech UM series". Library: pyserial
(BSD). Tested with: blocks of this layout, and a pseudo-terminal that plays the meter.
"""

import struct
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.base.plugins import import_extra
from edgemeter.agent.power import ROOT, AbsentError, Description, Rail, Reading
from edgemeter.agent.power.values import as_unavailable

ASK, BLOCK_BYTES = b"\xf0", 130
BAUD = 9600
TIMEOUT_S = 1.0
PERIOD_MS = 1000.0
# Model number: name, volts and amperes of one digit.
MODELS = {
    0x0963: ("UM24C", 0.01, 0.001),
    0x09C9: ("UM25C", 0.001, 0.0001),
    0x0D4C: ("UM34C", 0.01, 0.001),
}
# The block's own power may differ from the product by the rounding of both.
AGREES_RATIO, AGREES_W = 0.02, 0.03
# Limits of 2%, rectangular: a standard uncertainty.
GAIN_U_RATIO = 0.0115


class Um25c:
    """Asks one meter for its block, again and again."""

    def __init__(
        self, port: str = "", root: Path = ROOT, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._name = port
        self._root = root
        self._clock = clock
        self._port: Any = None

    def describe(self) -> Description:
        with as_unavailable():
            values = _values(self._block())
        return Description(
            id=f"um25c:{values.model}:{self._name}",
            scope="board-input",
            excludes=("power-supply loss",),
            kind="power",
            period_ms=PERIOD_MS,
            resolution_w=values.digit_a * values.volts,
            gain_u_ratio=GAIN_U_RATIO,
        )

    def read(self) -> Reading:
        begin = self._clock()
        values = _values(self._block())
        power_w = values.volts * values.amperes
        return Reading(
            taken_ns=(begin + self._clock()) // 2,
            power_w=power_w,
            rails=(Rail("USB", power_w),),
        )

    def close(self) -> None:
        if self._port is not None:
            self._port.close()
            self._port = None

    def _block(self) -> bytes:
        port = self._opened()
        try:
            port.reset_input_buffer()
            port.write(ASK)
            block: bytes = port.read(BLOCK_BYTES)
        # A port that hung up gives termios' own error where pyserial empties its buffer.
        except (OSError, termios.error) as error:
            self.close()
            raise UnavailableError(
                f"the USB meter at {self._name!r} is gone ({error}): connect it again"
            ) from error
        return block

    def _opened(self) -> Any:
        if self._port is None:
            if not self._name:
                raise AbsentError(
                    'no USB meter is configured: set port = "/dev/rfcomm0" in [sensors.um25c]'
                )
            serial = import_extra("serial", "serial", "the USB meter is read by pyserial")
            try:
                self._port = serial.Serial(
                    self._name, BAUD, timeout=TIMEOUT_S, write_timeout=TIMEOUT_S
                )
            except OSError as error:
                absent = not (self._root / self._name).exists()
                raise (AbsentError if absent else UnavailableError)(
                    f"cannot open {self._name!r} ({error}): bind the meter to it, and add this "
                    "user to the group dialout"
                ) from error
        return self._port


class _BlockValues(NamedTuple):
    """The values of a block: the meter's model, V, A, and the current of one digit (A)."""

    model: str
    volts: float
    amperes: float
    digit_a: float


def _values(block: bytes) -> _BlockValues:
    if len(block) < BLOCK_BYTES:
        raise TransientError(
            f"the USB meter sent {len(block)} of {BLOCK_BYTES} bytes: is another "
            "program reading it?"
        )
    number, volts, amperes, milliwatts = struct.unpack_from(">HHHI", block)
    if number not in MODELS:
        raise TransientError(
            f"the USB meter reports model 0x{number:04x}, not one of "
            f"{', '.join(name for name, *_ in MODELS.values())}"
        )
    if not volts:
        raise TransientError(
            "the USB meter's block shows 0 V, at which no meter runs: it is garbled"
        )
    model, digit_v, digit_a = MODELS[number]
    product_w = volts * digit_v * amperes * digit_a
    if abs(product_w - milliwatts / 1000) > AGREES_W + AGREES_RATIO * product_w:
        raise TransientError(
            f"the USB meter's block shows {milliwatts / 1000:.3f} W and {product_w:.3f} V x A: "
            "it is garbled"
        )
    return _BlockValues(model, volts * digit_v, amperes * digit_a, digit_a)
