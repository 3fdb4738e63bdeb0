"""RKNN: compiled models (.rknn) on Rockchip's NPUs (RK3588, RK3576, RK3568, ...), by RKNN Toolkit Lite2. Not run on hardware.

Library: `pip install 'edgemeter[rknn]'` (Rockchip's own licence; 64-bit ARM, Python up to 3.12); the system brings librknnrt.so and driver.
Backend: `auto` (the default: the driver chooses), `core0`, `core1`, `core2`, or `core0_1`, `core0_1_2` for a query on several. A core
that the chip of the file lacks is refused.
Settings: `data_format` of pictures, `nhwc` (the default) or `nchw`; `dtype` of inputs, `uint8` (the default), `int8`, `int16`, `float16` or
`float32`. The library converts inputs with the mean and scale that the model was compiled with: integer pixels go in as they are, and for
float inputs the card needs mean 0, sd 1. Outputs are float32.
What is timed is `RKNNLite.inference`, with both conversions. To be seen on hardware: the outputs' shapes. Seen under
emulation: import of 2.5.0.
"""

import json
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgemeter.agent.base.errors import ConfigError, MeasurementError, UnavailableError, one_line
from edgemeter.agent.base.figures import count
from edgemeter.agent.contract import model_file
from edgemeter.agent.runtimes import Array, Loaded, Options, TensorInfo, adapter

_NOTE = "; rknn-toolkit-lite2 has wheels for 64-bit ARM and Python up to 3.12 only"
_CANDIDATES = (adapter.LibraryCandidate("rknnlite.api", ("rknn-toolkit-lite2",), _NOTE),)
_CORES = {name: f"NPU_{name.upper().replace('CORE', 'CORE_')}" for name in ("core0", "core1", "core2", "core0_1", "core0_1_2")}
_CORES["auto"] = "NPU_CORE_AUTO"
_FORMATS, _DTYPES = ("nhwc", "nchw"), ("uint8", "int8", "int16", "float16", "float32")
# Magic, version, bytes of the model; behind it the bytes of a JSON text, and that. Source: public readers; tests/arm64.
_HEADER, _LENGTH = struct.Struct("<8sQQ"), struct.Struct("<Q")
_HEADER_BYTES, _PADDED_HEADER_BYTES = {1: 24}, 64
# NPU cores of the chips that have several, by their data sheets; every other has one.
_CHIP_CORES = {"rk3588": 3, "rk3576": 2}
_CORES_NEEDED = {"auto": 1, "core0": 1, "core1": 2, "core2": 3, "core0_1": 2, "core0_1_2": 3}


class Rknn:
    """Runs one compiled model; the contract is `edgemeter.agent.runtimes.Runtime`."""

    def __init__(self) -> None:
        self._lite: Any = None
        self._inputs: tuple[TensorInfo, ...] = ()
        self._format = _FORMATS[0]
        self._last: list[Array] | None = None

    def load(self, model: Path, options: Options) -> Loaded:
        """Import the library, load the model, and take the NPU; see `Runtime.load`."""
        adapter.check_options("rknn", options, backends=_CORES, extra=("data_format", "dtype"))
        self._format = adapter.chosen_setting("rknn", options, "data_format", _FORMATS) or _FORMATS[0]
        dtype = adapter.chosen_setting("rknn", options, "dtype", _DTYPES) or _DTYPES[0]
        described = _trailer(model)
        inputs, outputs = (_tensors(model, described, side) for side in ("input", "output"))
        library = adapter.load_library(_CANDIDATES, "rknn")
        started_ns = time.monotonic_ns()
        self._lite, backend = library.module.RKNNLite(), options.backend or "auto"
        platforms = [str(platform) for platform in described.get("target_platform") or ()]
        self._open(model, backend, platforms)
        load_ns = time.monotonic_ns() - started_ns
        is_last = self._format == "nhwc"
        self._inputs = tuple(TensorInfo(name, (s[0], *s[2:], s[1]) if is_last and len(s) == 4 else s, dtype) for name, s in inputs)
        facts = {
            "sdk": one_line(self._lite.get_sdk_version() or ""),
            "platforms": " ".join(platforms),
        }
        return library.loaded(
            backend=backend, inputs=self._inputs, outputs=tuple(TensorInfo(name, shape, "float32") for name, shape in outputs),
            metadata={}, load_ns=load_ns, facts={name: text for name, text in facts.items() if text}, precision="unknown",
        )  # fmt: skip

    def _open(self, model: Path, backend: str, platforms: Sequence[str]) -> None:
        cores = max((_CHIP_CORES.get(platform.lower(), 1) for platform in platforms), default=_CORES_NEEDED[backend])
        if _CORES_NEEDED[backend] > cores:
            raise UnavailableError(
                f"{' '.join(platforms)} has {count(cores, 'NPU core')}, not those of {backend!r}: choose auto, or a core that it has"
            )
        with adapter.captured_stderr() as lines:
            is_read = self._lite.load_rknn(str(model)) == 0
            status = self._lite.init_runtime(core_mask=getattr(self._lite, _CORES[backend])) if is_read else None
        reason = one_line(lines[-1]) if lines else "it gives no reason"
        if not is_read:
            raise ConfigError(f"RKNN rejects {str(model)!r}: {reason}; convert it for this chip and its librknnrt, or fetch it again")
        if status != 0:
            raise UnavailableError(
                f"RKNN cannot run {str(model)!r} here: {reason}; it needs a Rockchip board, its driver and /usr/lib/librknnrt.so, and a "
                "file that was converted for this chip and that library"
            )

    def bind(self, inputs: Sequence[Array]) -> Callable[[], object]:
        """Copy the inputs; return the library's synchronous call on them."""
        adapter.check_inputs(inputs, self._inputs)
        buffers = [np.array(array, order="C") for array in inputs]
        # One text for all inputs, as documented; a list of it ends in a KeyError (rockchip-linux/rknn-toolkit2#344).
        data_format, inference = None if self._format == "nhwc" else self._format, self._lite.inference
        self._last = None

        def call() -> None:
            self._last = inference(inputs=buffers, data_format=data_format)
            if self._last is None:
                raise MeasurementError("RKNN failed on a query, and gives None: its log, on standard error, says why")

        return call

    def outputs(self) -> list[Array]:
        """Return copies of the last call's outputs."""
        if self._last is None:
            raise MeasurementError("RKNN has no output: run a query first")
        return [np.array(output) for output in self._last]

    def close(self) -> None:
        """Release the NPU."""
        if self._lite is not None:
            self._lite.release()
        self._lite = self._last = None
        self._inputs = ()


def _trailer(model: Path) -> Mapping[str, Any]:
    """Return the JSON text at the end of a file; raises ConfigError if the file is none of RKNN's, encrypted, truncated or garbled."""
    start = model_file.head(model)
    if not start.startswith(b"RKNN") or len(start) < _HEADER.size:
        raise ConfigError(
            f"{str(model)!r} is no model of RKNN that can be read, it lacks the identifier RKNN: give a .rknn file, not encrypted"
        )
    _, version, size = _HEADER.unpack_from(start)
    try:
        with model.open("rb") as file:
            file.seek(_HEADER_BYTES.get(version, _PADDED_HEADER_BYTES) + size)
            (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
            described = json.loads(text) if len(text := file.read(min(length, 64 << 20))) == length else None
        if not isinstance(described, dict):
            raise TypeError("its end is no whole object")  # noqa: TRY301 - one place for all that is wrong with the file
    except (OSError, OverflowError, struct.error, TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"the model {str(model)!r} is truncated or garbled ({one_line(error)}): fetch it again") from error
    return described


def _tensors(model: Path, described: Mapping[str, Any], side: str) -> list[tuple[str, tuple[int, ...]]]:
    """Return name and shape of the inputs or outputs in their order, the shape as before the conversion (pictures: N, C, H, W)."""
    try:
        tensors = {tensor["tensor_id"]: tensor for tensor in described["norm_tensor"]}
        edges = sorted((edge["left_tensor_id"], edge["right_tensor_id"]) for edge in described["graph"] if edge["left"] == side)
        named_shapes = [(str(tensors[index]["url"]), tuple(int(size) for size in tensors[index]["size"])) for _, index in edges]
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{str(model)!r} does not state its tensors ({one_line(error)}): convert it again with RKNN Toolkit2") from error
    if named_shapes:
        return named_shapes
    raise ConfigError(f"{str(model)!r} states no {side}: convert it again with RKNN Toolkit2")
