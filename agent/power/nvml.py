"""NVIDIA GPUs in servers, by NVML: the energy counter where the GPU has one, else the instant power.

Volta and later count mJ since the driver was loaded, in updates of about 100 ms. Older ones only show power; on Ampere and later that
figure is a mean of a second, so the field of the instant power is read where it exists. Some GPUs measure their power for a quarter of
the time only (A100, H100: 25 of each 100 ms): windows of many updates and random phases average that out, short ones do not.

A Jetson has NVML and no power in it: that is not a sensor. The GPU's board is seen, not processor, memory of the host or power supply.

    [sensors.nvml]
    # gpu = "0"                     # default: 0; its number, or its UUID

Needs: `pip install 'edgemeter[nvidia]'` (nvidia-ml-py, BSD).
Source: NVML API reference; Yang, Adamek, Armour, arXiv 2312.02741 (error within 5%, proportional).
Tested with: the library's interface played in tests; on a GPU by a test that skips without one.
"""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.base.plugins import import_extra
from edgemeter.agent.power import ROOT, AbsentError, Description, PowerSensor, Rail, Reading
from edgemeter.agent.power.values import Averaging, averaging_by

PERIOD_MS = 100.0
AVERAGED_MS = 1000.0
# A limit of 5%, rectangular: a standard uncertainty.
GAIN_U_RATIO = 0.029
W_PER_MW = 1e-3
EXCLUDES = ("processor", "host memory", "mainboard", "disks", "fans", "power-supply loss")

Source = Literal["counter", "instant", "averaged"]
# Updates in s and the share of the time that is seen: of Volta, of Turing and GeForce 30, of A100 and H100. Source: Yang et al.
SEEN = (
    (re.compile(r"\bV100"), 0.02, 0.5),
    (re.compile(r"\bRTX (20|30)\d\d|\bT4\b"), 0.1, 1.0),
    (re.compile(r"\b(A100|H100)"), 0.1, 0.25),
)


def _averaging(source: Source | None, name: str) -> Averaging | None:
    """Return the published averaging of this GPU's power readings; None for an energy counter or an unknown GPU."""
    if source == "averaged":
        return averaging_by("published", window_s=AVERAGED_MS / 1000)
    update_s, seen_ratio = next(((update_s, ratio) for pattern, update_s, ratio in SEEN if pattern.search(name)), (0.0, 0.0))
    return None if source == "counter" else averaging_by("published", update_interval_s=update_s, seen_ratio=seen_ratio)


class Nvml(PowerSensor):
    """Reads one GPU."""

    def __init__(self, gpu: str = "0", root: Path = ROOT, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._gpu = gpu
        self._root = root
        self._clock = clock
        self._library: Any = None
        self._handle: Any = None
        self._source: Source | None = None

    def describe(self) -> Description:
        """Return the description: the GPU, and the source of its power."""
        self._open()
        try:
            name = self._text(self._library.nvmlDeviceGetName)
            uuid = self._text(self._library.nvmlDeviceGetUUID)
            count = self._library.nvmlDeviceGetCount()
        except self._library.NVMLError as error:
            raise UnavailableError(f"GPU {self._gpu} does not identify itself ({error}): see the kernel log") from error
        warnings = []
        if self._source == "averaged":
            warnings.append("this GPU shows a mean of a second: time long windows")
        if count > 1:
            warnings.append(f"{count} GPUs are here and GPU {self._gpu} is read: set gpu in [sensors.nvml]")
        return Description(
            id=f"nvml:{name}:{uuid}",
            scope="gpu-board",
            excludes=EXCLUDES,
            kind="energy" if self._source == "counter" else "power",
            period_ms=AVERAGED_MS if self._source == "averaged" else PERIOD_MS,
            resolution_w=None if self._source == "counter" else W_PER_MW,
            gain_u_ratio=GAIN_U_RATIO,
            resolution_mj=1.0 if self._source == "counter" else None,
            # The error that was found is proportional.
            offset_u_w=0.0,
            warnings=tuple(warnings),
            averaging=_averaging(self._source, name),
        )

    def read(self) -> Reading:
        """Return the counter, or the power."""
        self._open()
        begin = self._clock()
        try:
            value = self._value(self._source or "averaged")
        except self._library.NVMLError as error:
            gone = isinstance(error, (self._library.NVMLError_GpuIsLost, self._library.NVMLError_NotSupported))
            raise (UnavailableError if gone else TransientError)(
                f"GPU {self._gpu} gave no power ({error})" + (": it fell off the bus, see the kernel log" if gone else "")
            ) from error
        taken_ns = (begin + self._clock()) // 2
        if self._source == "counter":
            return Reading(taken_ns=taken_ns, energy_mj=float(value), rails=(Rail(f"GPU {self._gpu}", None),))
        return Reading(taken_ns=taken_ns, power_w=value * W_PER_MW, rails=(Rail(f"GPU {self._gpu}", value * W_PER_MW),))

    def close(self) -> None:
        """Shut the library down."""
        if self._library is not None:
            self._library.nvmlShutdown()
            self._library, self._handle = None, None

    def _open(self) -> None:
        if self._handle is not None:
            return
        if self._root != ROOT:
            raise AbsentError("NVML reads this machine only")
        library = import_extra("pynvml", "nvidia", "an NVIDIA GPU is read by nvidia-ml-py", AbsentError)
        try:
            library.nvmlInit()
        except library.NVMLError as error:
            raise AbsentError(f"no NVIDIA driver answers ({error})") from error
        self._library = library
        try:
            by_uuid = not self._gpu.isdecimal()
            self._handle = library.nvmlDeviceGetHandleByUUID(self._gpu) if by_uuid else library.nvmlDeviceGetHandleByIndex(int(self._gpu))
            self._source = self._first_that_works()
        except library.NVMLError as error:
            self.close()
            none = isinstance(error, (library.NVMLError_NotFound, library.NVMLError_InvalidArgument))
            raise (ConfigError if none else UnavailableError)(
                f"[sensors.nvml] gpu = {self._gpu!r}: {error}: `nvidia-smi -L` lists the GPUs"
            ) from error
        except UnavailableError:
            self.close()
            raise

    def _first_that_works(self) -> Source:
        for source in get_args(Source):
            try:
                self._value(source)
            except self._library.NVMLError_NotSupported:
                continue
            return source  # type: ignore[no-any-return]
        raise AbsentError(f"GPU {self._gpu} has no power reading in NVML, as on every Jetson: other sensors read its rails")

    def _value(self, source: Source) -> int:
        """Return mJ of the counter, mW of the others."""
        if source == "counter":
            return int(self._library.nvmlDeviceGetTotalEnergyConsumption(self._handle))
        if source == "averaged":
            return int(self._library.nvmlDeviceGetPowerUsage(self._handle))
        (field,) = self._library.nvmlDeviceGetFieldValues(self._handle, [self._library.NVML_FI_DEV_POWER_INSTANT])
        if field.nvmlReturn:
            raise self._library.NVMLError_NotSupported
        return int(field.value.uiVal)

    def _text(self, call: Callable[[Any], Any]) -> str:
        value = call(self._handle)
        return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
