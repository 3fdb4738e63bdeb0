"""Joulescope JS110 and JS220, read by their maker's library.

It adds up the energy itself, so nothing between two readings is lost. Set `gain_u_ratio` from the
instrument's certificate; otherwise it is unknown.

Install: `pip install 'edgemeter[joulescope]'` (x86_64 and aarch64) and the maker's udev rules.

    [sensors.joulescope]
    # device = "u/js220/000123"     # default: the only one that is connected

Protocol: the instrument samples 1 or 2 million times a second and publishes its sum twice a second.
Topics s/stats/value and s/sstats/value of the library's entry point `statistics`;
accumulators.energy in J, and the mean power of the last half second. The library is
pyjoulescope_driver (Apache-2.0), without a wheel for armv7l.
Tested with: the library without an instrument, and recorded values of this form.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.base.plugins import import_extra
from edgemeter.agent.power import AbsentError, Description, Rail, Reading
from edgemeter.agent.power.values import json_number

PERIOD_MS = 500.0
RATE_HZ = 2
TIMEOUT_S = 5.0
JS220_SAMPLES_PER_S = 1_000_000
INSTRUMENTS = ("js220", "js110")


class Joulescope:
    """Listens to one instrument."""

    def __init__(self, device: str = "", clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._asked = device
        self._clock = clock
        self._driver: Any = None
        self._device = ""
        self._came = threading.Event()
        self._newest: Reading | None = None

    def describe(self) -> Description:
        self._open()
        return Description(
            id=f"joulescope:{self._device}",
            scope="board-input",
            excludes=("power-supply loss",),
            kind="energy",
            period_ms=PERIOD_MS,
            resolution_mj=1e-6,
            # The instrument takes its own zero away; what is left of it is part of its certificate.
            offset_u_w=0.0,
        )

    def read(self) -> Reading:
        """Return the energy since the instrument began, and the power of the last half second."""
        self._open()
        if self._newest is None:
            self._came.wait(TIMEOUT_S)
        if (newest := self._newest) is None:
            raise TransientError(
                f"Joulescope {self._device} published nothing for {TIMEOUT_S:.0f} s: plug "
                "it in again"
            )
        return newest

    def close(self) -> None:
        if self._driver is not None:
            self._driver.finalize()
            self._driver = None
            self._newest = None
            self._came.clear()

    def _open(self) -> None:
        if self._driver is not None:
            return
        driver = import_extra(
            "pyjoulescope_driver",
            "joulescope",
            "a Joulescope is read by its maker's library",
            AbsentError,
        ).Driver()
        try:
            self._device = self._choose(driver.device_paths())
            driver.open(self._device)
            self._begin(driver)
        except (RuntimeError, OSError, TimeoutError) as error:
            driver.finalize()
            raise UnavailableError(
                f"cannot open Joulescope {self._device}: {error}: close other programs that use "
                "it, and install the udev rules"
            ) from error
        except UnavailableError:
            driver.finalize()
            raise
        self._driver = driver

    def _choose(self, connected: Any) -> str:
        paths = [str(path) for path in connected if any(name in str(path) for name in INSTRUMENTS)]
        if self._asked:
            if self._asked in paths:
                return self._asked
            raise AbsentError(
                f"[sensors.joulescope] device = {self._asked!r} is not connected: there is "
                f"{', '.join(paths) or 'none'}"
            )
        if len(paths) == 1:
            return paths[0]
        if not paths:
            raise AbsentError("no Joulescope is connected")
        raise UnavailableError(
            f"several Joulescopes are connected ({', '.join(paths)}): set device in "
            "[sensors.joulescope]"
        )

    def _begin(self, driver: Any) -> None:
        if "js110" in self._device:
            driver.publish(f"{self._device}/s/i/range/select", "auto")
            topic = "s/sstats/value"
        else:
            driver.publish(f"{self._device}/s/i/range/mode", "auto")
            driver.publish(f"{self._device}/s/stats/scnt", JS220_SAMPLES_PER_S // RATE_HZ)
            driver.publish(f"{self._device}/s/stats/ctrl", 1)
            topic = "s/stats/value"
        driver.subscribe(f"{self._device}/{topic}", "pub", self._take)

    def _take(self, _topic: str, value: Mapping[str, Any]) -> None:
        """Keep a published value; called from the library's thread."""
        try:
            self._newest = _reading(value, self._clock())
        except TransientError:
            return
        self._came.set()


def _reading(value: Mapping[str, Any], taken_ns: int) -> Reading:
    try:
        energy, power = value["accumulators"]["energy"], value["signals"]["power"]["avg"]
        joules, watts = json_number(energy["value"]), json_number(power["value"])
        units = energy["units"], power["units"]
    except (KeyError, TypeError, AttributeError) as error:
        raise TransientError(
            f"the Joulescope's value holds no accumulators.energy and signals.power.avg ({error})"
        ) from error
    if joules is None or watts is None or units != ("J", "W"):
        raise TransientError(
            f"the Joulescope's value holds {energy!r} and {power!r}, not joules and watts"
        )
    return Reading(
        taken_ns=taken_ns, energy_mj=joules * 1000, power_w=watts, rails=(Rail("DC", watts),)
    )
