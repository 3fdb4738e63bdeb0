"""FNIRSI USB meters FNB48, FNB48S, FNB58 and C1, read over USB HID without a library.

The gain is assumed to be within 2%. Unless you are root, the meter needs a udev rule:

    KERNEL=="hidraw*", ATTRS{idVendor}=="2e3c", MODE="0660", GROUP="plugdev"

    [sensors.fnirsi]
    # device = "/dev/hidraw0"       # default: recognised by its USB numbers

Protocol: there are 100 samples a second, in steps of 10 uV and 10 uA; a reading is the mean of
those since the last one. A packet of 64 bytes holds 0xAA, its kind (0x04: measurements), four
samples of 15 bytes, one byte, and a CRC-8, which is not checked, because USB has its own. A sample
is voltage and current, little-endian, then data lines and temperature. Samples are 10 ms apart by
the meter's own clock, so the time of a sample follows from its place. FNB58 and FNB48S send packets
by themselves, and stop unless they are asked to go on every second. FNB48, C1 and a meter with
unknown numbers answer each request with one packet. They are asked again after each one, so that an
answer always waits, and a reading is the mean of two.
Source: packets, commands and the rate of requests (1 s, or 3 ms at the soonest) as published with
the logger fnirsi-usb-power-data-logger (MIT); the pause between the first commands as in
fnirsi-usb-tool, whose author saw meters hang without it. Tested with: packets of this form, and a
pseudo-terminal that plays both kinds of meter.
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
HEAD, INFORMATION, MEASUREMENTS, START, NEXT, GO_ON = 0xAA, 0x03, 0x04, 0x81, 0x82, 0x83
CHECKSUMS = {START: 0x8E, NEXT: 0x96, GO_ON: 0x9E}
# Vendor and product numbers of USB.
METERS = {"0483:003A": "FNB48", "0483:003B": "C1", "2E3C:5558": "FNB58", "2E3C:0049": "FNB48S"}
SENDING = frozenset({"FNB58", "FNB48S"})
DIGIT, USUAL_V = 1e-5, 5.0
# No meter of this kind carries more: what shows more is garbled.
HIGHEST_V, HIGHEST_A = 60.0, 12.0
GO_ON_S, PAUSE_S, TIMEOUT_S, PERIOD_MS = 1.0, 0.025, 1.0, 100.0
# Limits of 2%, rectangular: a standard uncertainty.
GAIN_U_RATIO = 0.0115
HID_ID = re.compile(r"HID_ID=[0-9A-F]{4}:0000([0-9A-F]{4}):0000([0-9A-F]{4})")


class Fnirsi:
    """Reads one meter."""

    def __init__(
        self, device: str = "", root: Path = ROOT, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._device, self._root, self._clock = device, root, clock
        self._descriptor: int | None = None
        self._model, self._sends, self._told_ns = "", False, 0

    def describe(self) -> Description:
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
        descriptor = self._open()
        if self._sends and self._clock() - self._told_ns > GO_ON_S * 1e9:
            self._tell(GO_ON)
        ends = time.monotonic() + TIMEOUT_S
        powers_w: list[float] = []
        while (
            (not powers_w or select.select([descriptor], [], [], 0)[0])
            if self._sends
            else len(powers_w) < 2 * SAMPLES
        ):
            powers_w += _watts(self._packet(descriptor, ends))
        power_w = statistics.fmean(powers_w)
        return Reading(
            self._clock() - len(powers_w) * SAMPLE_NS // 2, power_w, rails=(Rail("USB", power_w),)
        )

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        if self._descriptor is None:
            name, self._model = self._found()
            self._sends = self._model in SENDING
            try:
                self._descriptor = os.open(
                    self._root / name.lstrip("/"), os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY
                )
            except OSError as error:
                raise (AbsentError if isinstance(error, FileNotFoundError) else UnavailableError)(
                    f"cannot open {name!r} ({error.strerror}): correct device, or add the "
                    "documented udev rule"
                ) from error
            for kind in (START, NEXT, NEXT if self._sends else GO_ON):
                self._tell(kind)
                time.sleep(PAUSE_S)
        return self._descriptor

    def _found(self) -> tuple[str, str]:
        """Return the device and its model, by its USB numbers.

        It is the user's device, or the first that is a meter.
        """
        folder = self._root / "sys/class/hidraw"
        for name in (
            [Path(self._device).resolve().name]
            if self._device
            else sorted(path.name for path in folder.glob("hidraw*"))
        ):
            numbers = HID_ID.search((optional_text(folder / name / "device/uevent") or "").upper())
            model = METERS.get(":".join(numbers.groups())) if numbers else None
            if model or self._device:
                return self._device or f"/dev/{name}", model or "unknown"
        raise AbsentError(
            "no FNIRSI USB meter is plugged in (no hidraw device with its USB numbers)"
        )

    def _tell(self, kind: int) -> None:
        try:
            # The kernel takes the number of the report first, 0 where a device has only one.
            os.write(
                self._descriptor or 0,
                bytes([0, HEAD, kind, *bytes(PACKET_BYTES - 3), CHECKSUMS[kind]]),
            )
        except OSError as error:
            raise self._gone(error) from error
        self._told_ns = self._clock()

    def _packet(self, descriptor: int, ends: float) -> bytes:
        """Return the next packet, and ask for the one after it unless the meter sends by itself."""
        try:
            waits = select.select([descriptor], [], [], max(0.0, ends - time.monotonic()))[0]
            packet = os.read(descriptor, PACKET_BYTES) if waits else b""
        except OSError as error:
            raise self._gone(error) from error
        # A lost request is made again; what a meter says of itself is no answer to one.
        if not self._sends and packet[1:2] != bytes([INFORMATION]):
            self._tell(GO_ON)
        if not packet:
            raise TransientError(f"the FNIRSI meter sent nothing for {TIMEOUT_S:.0f} s")
        return packet

    def _gone(self, error: OSError) -> UnavailableError:
        self.close()
        return UnavailableError(f"the FNIRSI meter is gone ({error.strerror}): plug it in again")


def _watts(packet: bytes) -> list[float]:
    """Return the power of a packet's samples, W; none of another kind of packet."""
    if len(packet) != PACKET_BYTES or packet[0] != HEAD:
        raise TransientError(
            f"the FNIRSI meter sent {len(packet)} bytes, not a packet of {PACKET_BYTES}: "
            f"{packet[:8].hex()}"
        )
    powers_w = []
    for number in range(SAMPLES) if packet[1] == MEASUREMENTS else ():
        volts, amperes = (
            DIGIT * value for value in struct.unpack_from("<II", packet, 2 + number * SAMPLE_BYTES)
        )
        if volts > HIGHEST_V or amperes > HIGHEST_A:
            raise TransientError(
                f"the FNIRSI meter shows {volts:.3g} V and {amperes:.3g} A, more than it "
                "carries: the packet is garbled"
            )
        powers_w.append(volts * amperes)
    return powers_w
