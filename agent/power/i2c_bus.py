"""One chip's registers on an I2C bus, or in what `i2cdump -y 1 0x40 w` and `i2cget -y 1 0x40 0x02 w` printed of one.

Library: smbus2 (MIT), `pip install 'edgemeter[i2c]'`. An SMBus word has its low byte first and the INA chips send the high one first,
so words are turned around here; in the dumps too.
"""

import errno
import re
from typing import Protocol

from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.base.plugins import import_extra

WORD_BYTES = 2
SILENT = frozenset({errno.ENXIO, errno.EREMOTEIO, errno.EIO, errno.ETIMEDOUT})
DUMP_ROW = re.compile(r"^(?P<row>[0-9a-f]{2}):(?P<words>(?:\s+(?:[0-9a-f]{4}|XXXX)){1,8})\s*$", re.MULTILINE)
DUMP_WORD = re.compile(r"[0-9a-f]{4}|XXXX")
GET = re.compile(r"i2cget\s[^\n]*?0x[0-9a-fA-F]{2}\s+(?P<register>0x[0-9a-fA-F]{1,2})\s+w\s*\n\s*(?P<word>0x[0-9a-fA-F]{4})\b")


class I2cBus(Protocol):
    """The part of smbus2.SMBus that is used."""

    def read_word_data(self, i2c_addr: int, register: int) -> int:
        """Return two bytes, the first of them low."""

    def read_i2c_block_data(self, i2c_addr: int, register: int, length: int) -> list[int]:
        """Return bytes in the order they came."""

    def write_word_data(self, i2c_addr: int, register: int, value: int) -> None:
        """Write two bytes, the low one first."""

    def close(self) -> None:
        """Close the bus."""


def open_bus(path: str) -> I2cBus:
    """Return the bus at /dev/i2c-N; raises UnavailableError if smbus2 is not installed, there is no such bus, or it may not be used."""
    library = import_extra("smbus2", "i2c", "reading a chip on an I2C bus needs smbus2")
    try:
        bus: I2cBus = library.SMBus(path)
    except FileNotFoundError as error:
        raise UnavailableError(
            f"there is no {path!r}: switch I2C on (`sudo raspi-config nonint do_i2c 0`, or `sudo modprobe i2c-dev`), or correct bus"
        ) from error
    except PermissionError as error:
        raise UnavailableError(f"no permission to use {path!r}: `sudo usermod -aG i2c $USER`, then log in again") from error
    except OSError as error:
        raise UnavailableError(f"cannot use {path!r}: {error.strerror}: check that it is an I2C bus") from error
    return bus


class I2cRegisters:
    """The registers of the chip at one address, big-endian."""

    def __init__(self, bus: I2cBus, address: int) -> None:
        self._bus = bus
        self._address = address

    def unsigned(self, register: int, size_bytes: int = WORD_BYTES) -> int:
        """Return a register's number.

        Raises:
            UnavailableError: a kernel driver has the chip.
            TransientError: the chip did not answer.
        """
        try:
            if size_bytes == WORD_BYTES:
                return _turned(self._bus.read_word_data(self._address, register))
            content = self._bus.read_i2c_block_data(self._address, register, size_bytes)
        except OSError as error:
            raise self._mapped(error) from error
        return int.from_bytes(bytes(content), "big")

    def signed(self, register: int, size_bytes: int = WORD_BYTES) -> int:
        """Return a register's number, two's complement; raises as `unsigned`."""
        number, range_ = self.unsigned(register, size_bytes), 1 << 8 * size_bytes
        return number - range_ if number >= range_ // 2 else number

    def write(self, register: int, value: int) -> None:
        """Set a register of two bytes; raises as `unsigned`."""
        try:
            self._bus.write_word_data(self._address, register, _turned(value))
        except OSError as error:
            raise self._mapped(error) from error

    def close(self) -> None:
        """Close the bus."""
        self._bus.close()

    def _mapped(self, error: OSError) -> UnavailableError | TransientError:
        where = f"the chip at address {self._address:#04x}"
        if error.errno == errno.EBUSY:
            return UnavailableError(
                f"a kernel driver has {where}: read it with the sensor `ina2xx`, or unload the driver (`sudo rmmod ina2xx`)"
            )
        if error.errno in SILENT:
            return TransientError(f"{where} does not answer ({error.strerror}): see `i2cdetect -y 1`, check wiring and address")
        return UnavailableError(f"cannot ask {where}: {error.strerror}: see `i2cdetect -y 1`")


class I2cDump:
    """A bus replayed from the output of i2cdump or i2cget; writing to it does nothing."""

    def __init__(self, content: bytes) -> None:
        text = content.decode(errors="replace")
        self._words: dict[int, int] = {}
        for row in DUMP_ROW.finditer(text):
            for index, word in enumerate(DUMP_WORD.findall(row["words"])):
                if word != "XXXX":
                    self._words[int(row["row"], 16) + index] = int(word, 16)
        for got in GET.finditer(text):
            self._words[int(got["register"], 16)] = int(got["word"], 16)

    def read_word_data(self, i2c_addr: int, register: int) -> int:  # noqa: ARG002 - a dump is of one chip
        """Return the word of the register."""
        if register not in self._words:
            raise UnavailableError(f"the dump does not show register {register:#04x}: record `i2cdump -y 1 0x40 w` whole")
        return self._words[register]

    def read_i2c_block_data(self, i2c_addr: int, register: int, length: int) -> list[int]:  # noqa: ARG002
        """Refuse: a dump has two bytes of each register."""
        raise UnavailableError(f"a dump shows 2 of the {length} bytes of register {register:#04x}: this chip cannot be read from one")

    def write_word_data(self, i2c_addr: int, register: int, value: int) -> None:
        """Change nothing."""

    def close(self) -> None:
        """Nothing is held."""


def is_dump(content: bytes) -> bool:
    """Return whether it holds words that i2cdump or i2cget printed."""
    text = content.decode(errors="replace")
    return bool(re.search(r"^\s*0,8\s+1,9\s+2,a\s", text, re.MULTILINE) or GET.search(text))


def _turned(word: int) -> int:
    return (word & 0xFF) << 8 | word >> 8
