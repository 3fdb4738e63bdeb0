"""FNIRSI USB meters FNB48, FNB48S, FNB58 and C1, over USB HID through the kernel's hidraw, without a library.

There are 100 samples a second, in steps of 10 uV and 10 uA.

Protocol: a packet of 64 bytes holds 0xAA, its kind (0x04: measurements), four samples of 15 bytes, one byte, and a CRC-8. A sample is
voltage and current, both little-endian, then data lines and temperature, which are not used. Samples are 10 ms apart by the meter's own
clock, so the time of a sample follows from its place. FNB58 and FNB48S send packets by themselves and stop unless they are asked to go on
every second. FNB48 and C1 answer each request with one packet: they are asked again after each one, so that an answer always waits, and a
reading is the mean of two. A meter whose numbers are unknown is asked for each packet too.

    [sensors.fnirsi]
    # device = "/dev/hidraw0"       # default: the one whose USB numbers are a FNIRSI meter's

In the USB feed of a board it sees all that the board draws, its USB devices included. Others than root need a udev rule:
    KERNEL=="hidraw*", ATTRS{idVendor}=="2e3c", MODE="0660", GROUP="plugdev"
Source: packets, commands and the rate of requests (1 s, or 3 ms at the soonest) as published with the logger fnirsi-usb-power-data-logger
(MIT); the pause between the first commands as in fnirsi-usb-tool, whose author saw meters hang without; the CRC's polynomial 0x39 and start
0x42 were found to give the published commands. The gain is taken as that of the class of such meters, within 2%: set `gain` and
`gain_u_ratio` where that is too little.
Tested with: packets of this form, and a pseudo-terminal that plays both kinds of meter; not yet on a device.
"""

import os
import re
import select
import statistics
import struct
import time
from collections.abc import Callable
from pathlib import Path

from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.power import ROOT, AbsentError, Description, Rail, Reading
from edgemeter.agent.power.sysfs import optional_text

PACKET_BYTES, SAMPLE_BYTES, SAMPLES, SAMPLE_NS = 64, 15, 4, 10_000_000
HEAD, INFORMATION, MEASUREMENTS = 0xAA, 0x03, 0x04
START, NEXT, GO_ON = 0x81, 0x82, 0x83
# Vendor and product numbers of USB.
METERS = {"0483:003A": "FNB48", "0483:003B": "C1", "2E3C:5558": "FNB58", "2E3C:0049": "FNB48S"}
DIGIT = 1e-5
# No meter of this kind carries more: what shows more is garbled.
HIGHEST_V, HIGHEST_A = 60.0, 12.0
SENDING = frozenset({"FNB58", "FNB48S"})
GO_ON_S = 1.0
PAUSE_S = 0.025
# A reading of a meter that is asked: 80 ms of each period of 100 ms.
ASKED_SAMPLES = 2 * SAMPLES
TIMEOUT_S = 1.0
PERIOD_MS = 100.0
# Limits of 2%, rectangular: a standard uncertainty.
GAIN_U_RATIO = 0.0115
USUAL_V = 5.0
CRC_POLYNOMIAL, CRC_START = 0x39, 0x42
HID_ID = re.compile(r"HID_ID=[0-9A-F]{4}:0000([0-9A-F]{4}):0000([0-9A-F]{4})")


class Fnirsi:
    """Reads one meter; a reading is the mean of what came since the one before."""

    def __init__(self, device: str = "", root: Path = ROOT, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._device = device
        self._root = root
        self._clock = clock
        self._descriptor: int | None = None
        self._model = ""
        self._told_ns = 0
        self._sends = False

    def describe(self) -> Description:
        """Return what the meter is."""
        self._open()
        return Description(
            id=f"fnirsi:{self._model}",
            scope="board-input",
            excludes=("power-supply loss",),
            kind="power",
            period_ms=PERIOD_MS,
            resolution_w=DIGIT * USUAL_V,
            gain_u_ratio=GAIN_U_RATIO,
        )

    def read(self) -> Reading:
        """Return the mean power since the last reading, stamped at its middle."""
        samples = self._samples()
        watts = statistics.fmean(samples)
        taken_ns = self._clock() - len(samples) * SAMPLE_NS // 2
        return Reading(taken_ns=taken_ns, power_w=watts, rails=(Rail("USB", watts),))

    def close(self) -> None:
        """Close the device."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        if self._descriptor is None:
            root = self._root
            path, model = (self._device, _model_of(root, Path(self._device).resolve().name)) if self._device else _find(root)
            self._model, self._sends = "set" if self._device else str(model), model in SENDING
            try:
                self._descriptor = os.open(root / path.lstrip("/"), os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY)
            except FileNotFoundError as error:
                raise AbsentError(f"there is no {path!r}: correct device in [sensors.fnirsi]") from error
            except OSError as error:
                raise UnavailableError(
                    f"cannot open {path!r} ({error.strerror}): run as root, or add the udev rule of the documentation"
                ) from error
            for kind in (START, NEXT, NEXT if self._sends else GO_ON):
                self._tell(kind)
                time.sleep(PAUSE_S)
        return self._descriptor

    def _tell(self, kind: int) -> None:
        body = bytes([kind]) + bytes(PACKET_BYTES - 3)
        try:
            # The kernel takes the number of the report first, 0 where a device has only one.
            os.write(self._descriptor or 0, b"\0" + bytes([HEAD]) + body + bytes([crc8(body)]))
        except OSError as error:
            self.close()
            raise UnavailableError(f"the FNIRSI meter is gone ({error.strerror}): plug it in again") from error
        self._told_ns = self._clock()

    def _samples(self) -> list[float]:
        descriptor = self._open()
        if self._sends and self._clock() - self._told_ns > GO_ON_S * 1e9:
            self._tell(GO_ON)
        ends = time.monotonic() + TIMEOUT_S
        samples: list[float] = []
        while (not samples or _waits(descriptor)) if self._sends else len(samples) < ASKED_SAMPLES:
            samples += _watts(self._packet(descriptor, ends))
        return samples

    def _packet(self, descriptor: int, ends: float) -> bytes:
        """Return the next packet, and ask for the one after it unless the meter sends by itself."""
        came = _waits(descriptor, max(0.0, ends - time.monotonic()))
        try:
            packet = os.read(descriptor, PACKET_BYTES) if came else b""
        except OSError as error:
            self.close()
            raise UnavailableError(f"the FNIRSI meter is gone ({error.strerror}): plug it in again") from error
        # A lost request is made again; what a meter says of itself is no answer to one.
        if not self._sends and packet[1:2] != bytes([INFORMATION]):
            self._tell(GO_ON)
        if not packet:
            raise TransientError(f"the FNIRSI meter sent nothing for {TIMEOUT_S:.0f} s")
        return packet


def _waits(descriptor: int, timeout_s: float = 0.0) -> bool:
    return bool(select.select([descriptor], [], [], timeout_s)[0])


def crc8(content: bytes) -> int:
    """Return the checksum of a packet without its first and last byte."""
    value = CRC_START
    for byte in content:
        value ^= byte
        for _ in range(8):
            value = (value << 1 ^ CRC_POLYNOMIAL) & 0xFF if value & 0x80 else value << 1 & 0xFF
    return value


def _watts(packet: bytes) -> list[float]:
    """Return the power of a packet's samples, W; none of another kind of packet."""
    if len(packet) != PACKET_BYTES or packet[0] != HEAD:
        raise TransientError(f"the FNIRSI meter sent {len(packet)} bytes, not a packet of {PACKET_BYTES}: {packet[:8].hex()}")
    # Old firmware leaves the last byte 0: then only what no meter can carry is seen as garbled.
    if packet[-1] not in (0, crc8(packet[1:-1])):
        raise TransientError(f"a packet of the FNIRSI meter is garbled: checksum 0x{packet[-1]:02x} instead of 0x{crc8(packet[1:-1]):02x}")
    if packet[1] != MEASUREMENTS:
        return []
    values = [struct.unpack_from("<II", packet, 2 + number * SAMPLE_BYTES) for number in range(SAMPLES)]
    return [_power_w(volts * DIGIT, amperes * DIGIT) for volts, amperes in values]


def _power_w(volts: float, amperes: float) -> float:
    if not (0 <= volts <= HIGHEST_V and 0 <= amperes <= HIGHEST_A):
        raise TransientError(
            f"the FNIRSI meter shows {volts:.3g} V and {amperes:.3g} A, more than any such meter carries: the packet is garbled"
        )
    return volts * amperes


def _find(root: Path) -> tuple[str, str]:
    for folder in sorted((root / "sys/class/hidraw").glob("hidraw*")):
        if model := _model_of(root, folder.name):
            return f"dev/{folder.name}", model
    raise AbsentError("no FNIRSI USB meter is plugged in (no hidraw device with its USB numbers)")


def _model_of(root: Path, name: str) -> str | None:
    """Return the model at /dev/NAME by its USB numbers; None of any other device."""
    match = HID_ID.search((optional_text(root / "sys/class/hidraw" / name / "device/uevent") or "").upper())
    return METERS.get(f"{match.group(1)}:{match.group(2)}") if match else None
