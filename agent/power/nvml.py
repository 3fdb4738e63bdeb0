"""NVIDIA GPUs in servers, read by NVML.

It sees the GPU's board, not the rest of the machine. The energy counter is used where there is one
(Volta and later), otherwise the power. A100 and H100 measure their power only a quarter of the
time, so use long runs.

Install: `pip install 'edgemeter[nvidia]'`.

    [sensors.nvml]
    # gpu = "0"                     # number or UUID; default: 0

Protocol: a counter that contradicts the power is replaced by the power, with a warning. An A100 or
H100 measures 25 of each 100 ms. The counter is in mJ since the driver was loaded, updated about
every 100 ms. Opening compares it with the power over a second; it has to contradict three times in
a row, such as 37 W where the power is 182 W. Without a counter, the instant power is read, else the
mean of a second. Long windows and random phases average the gaps out.
Source: NVML API reference; Yang, Adamek, Armour, arXiv 2312.02741 (error within 5%, proportional).
Library: nvidia-ml-py (BSD). Tested with: the library's interface played in tests; on a GPU by a
test that skips without one.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, get_args

from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.base.nanoseconds import NS_PER_MS
from edgemeter.agent.base.plugins import import_extra
from edgemeter.agent.power import ROOT, AbsentError, Description, PowerSensor, Rail, Reading

PERIOD_MS, AVERAGED_MS, W_PER_MW = 100.0, 1000.0, 1e-3
# A limit of 5%, rectangular: a standard uncertainty.
GAIN_U_RATIO = 0.029
EXCLUDES = ("processor", "host memory", "mainboard", "disks", "fans", "power-supply loss")
Source = Literal["counter", "instant", "averaged"]
# The counter is compared with the power this often, over this many readings: it may lag an update,
# and the power misses part of the time.
TRIES, COMPARED, DIFFERS_RATIO = 3, 10, 0.3


class Nvml(PowerSensor):
    """Reads one GPU."""

    def __init__(
        self,
        gpu: str = "0",
        root: Path = ROOT,
        clock: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._gpu, self._root, self._clock, self._sleep = gpu, root, clock, sleep
        self._library: Any = None
        self._handle: Any = None
        self._source: Source = "counter"
        self._description: Description | None = None

    def describe(self) -> Description:
        if self._description is not None:
            return self._description
        if self._root != ROOT:
            raise AbsentError("NVML reads this machine only")
        library = import_extra(
            "pynvml", "nvidia", "an NVIDIA GPU is read by nvidia-ml-py", AbsentError
        )
        try:
            library.nvmlInit()
        except library.NVMLError as error:
            raise AbsentError(f"no NVIDIA driver answers ({error})") from error
        self._library = library
        try:
            self._handle = (
                library.nvmlDeviceGetHandleByIndex(int(self._gpu))
                if self._gpu.isdecimal()
                else library.nvmlDeviceGetHandleByUUID(self._gpu)
            )
            self._description = self._described()
        except library.NVMLError as error:
            is_wrong = isinstance(
                error, (library.NVMLError_NotFound, library.NVMLError_InvalidArgument)
            )
            raise (ConfigError if is_wrong else UnavailableError)(
                f"[sensors.nvml] gpu = {self._gpu!r}: {error}: `nvidia-smi -L` lists the GPUs"
            ) from error
        return self._description

    def _described(self) -> Description:
        """Return the description; the counter is chosen unless the power contradicts it.

        Otherwise the instant power is chosen, or else the mean of a second.
        """
        sources = [source for source in get_args(Source) if self._has(source)]
        if not sources:
            raise AbsentError(
                f"GPU {self._gpu} has no power reading in NVML, as on every Jetson: other "
                "sensors read its rails"
            )
        warnings = (
            self._contradictions(sources[1]) if sources[0] == "counter" and len(sources) > 1 else []
        )
        self._source = sources[1] if warnings else sources[0]
        averaged, counts = self._source == "averaged", self._source == "counter"
        if (gpu_count := self._library.nvmlDeviceGetCount()) > 1:
            warnings.append(
                f"{gpu_count} GPUs are here and GPU {self._gpu} is read: set gpu in [sensors.nvml]"
            )
        name = self._library.nvmlDeviceGetName(self._handle)
        return Description(
            id=f"nvml:{name}:{self._library.nvmlDeviceGetUUID(self._handle)}",
            scope="gpu-board",
            excludes=EXCLUDES,
            kind="energy" if counts else "power",
            period_ms=AVERAGED_MS if averaged else PERIOD_MS,
            resolution_w=None if counts else W_PER_MW,
            gain_u_ratio=GAIN_U_RATIO,
            resolution_mj=1.0 if counts else None,
            offset_u_w=0.0,
            warnings=tuple(warnings),
            delay_ms=AVERAGED_MS if averaged else PERIOD_MS,
        )

    def read(self) -> Reading:
        self.describe()
        begin = self._clock()
        try:
            value = self._value(self._source)
        except self._library.NVMLError as error:
            if isinstance(
                error, (self._library.NVMLError_GpuIsLost, self._library.NVMLError_NotSupported)
            ):
                raise UnavailableError(
                    f"GPU {self._gpu} fell off the bus ({error}): see the kernel log"
                ) from error
            raise TransientError(f"GPU {self._gpu} gave no power ({error})") from error
        power_w, energy_mj = (
            (None, float(value)) if self._source == "counter" else (value * W_PER_MW, None)
        )
        return Reading(
            (begin + self._clock()) // 2, power_w, energy_mj, (Rail(f"GPU {self._gpu}", power_w),)
        )

    def close(self) -> None:
        if self._library is not None:
            self._library.nvmlShutdown()
            self._library, self._description = None, None

    def _contradictions(self, power: Source) -> list[str]:
        """Return how the counter contradicts the power.

        It counts as a contradiction if it occurs each time that they are compared.
        """
        for _ in range(TRIES):
            begin_mj, begin_ns, sum_mw = self._value("counter"), self._clock(), 0
            for _ in range(COMPARED):
                self._sleep(PERIOD_MS / 1000)
                sum_mw += self._value(power)
            counted_w = (self._value("counter") - begin_mj) * NS_PER_MS / (self._clock() - begin_ns)
            shown_w = sum_mw * W_PER_MW / COMPARED
            if abs(counted_w - shown_w) <= DIFFERS_RATIO * max(counted_w, shown_w):
                return []
        return [
            (
                f"its energy counter shows {counted_w:.3g} W and its power {shown_w:.3g} W: the "
                "counter is not believed, the power is read"
            )
        ]

    def _has(self, source: Source) -> bool:
        with suppress(self._library.NVMLError_NotSupported):
            return self._value(source) >= 0
        return False

    def _value(self, source: Source) -> int:
        """Return mJ of the counter, mW of the others."""
        if source == "counter":
            return int(self._library.nvmlDeviceGetTotalEnergyConsumption(self._handle))
        if source == "averaged":
            return int(self._library.nvmlDeviceGetPowerUsage(self._handle))
        (field,) = self._library.nvmlDeviceGetFieldValues(
            self._handle, [self._library.NVML_FI_DEV_POWER_INSTANT]
        )
        if field.nvmlReturn:
            raise self._library.NVMLError_NotSupported
        return int(field.value.uiVal)
