"""Hailo: compiled models (.hef) on a Hailo-8, 8L or 10H.

- Library: `pip install 'edgemeter[vision]'`, and HailoRT 4.18 or newer, which is on no package
  index. On Raspberry Pi OS run `sudo apt install hailo-all` (10H: `hailo-h10-all`) and use a venv
  with `--system-site-packages`.
- Backend: `hailo` (any device, the default), or an id that `hailortcli scan` prints.
- Timed: `ConfiguredInferModel.run`, with transfers and HailoRT's post-processing.

Tested with: no hardware. It has to be seen there whether a call is as fast as a pipeline of one
frame, and whether `VDevice.release` frees the device. Inputs and outputs have the formats of the
file, mostly uint8 with scale and zero point; shapes are 1, H, W, C. Boxes after HailoRT's own
suppression (by class only) are float32 [1, classes, 5, boxes]: y_min, x_min, y_max, x_max, score.
"""

import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgemeter.agent.base.errors import ConfigError, MeasurementError, UnavailableError, one_line
from edgemeter.agent.contract import model_file
from edgemeter.agent.runtimes import Array, Loaded, Options, Runtime, TensorInfo
from edgemeter.agent.runtimes.adapter import (
    LibraryCandidate,
    check_inputs,
    check_options,
    load_library,
)

_NOTE = (
    "; HailoRT is on no index: sudo apt install hailo-all (Raspberry Pi OS; venv "
    "--system-site-packages), or Hailo's wheel"
)
_CANDIDATES = (LibraryCandidate("hailo_platform", ("hailort",), _NOTE),)
# Source: hailo-ai/hailort, hef_internal.hpp; big-endian: magic, version, bytes.
_HEADER, _MAGIC = struct.Struct(">III"), 0x01484546
_ANY, _TIMEOUT_MS, _BOX = "hailo", 10_000, 5
_DTYPES = {"UINT8": "uint8", "UINT16": "uint16", "FLOAT32": "float32"}
# Errors of HailoRT about the file; others are about the device.
_ABOUT_THE_FILE = (
    "HailoRTInvalidHEFException",
    "HailoRTHEFNotCompatibleWithDevice",
    "HailoRTInvalidArgumentException",
)


class Hailo(Runtime):
    """Runs one compiled model; the contract is `edgemeter.agent.runtimes.Runtime`."""

    def __init__(self) -> None:
        self._device: Any = None
        self._model: Any = None
        self._configured: Any = None
        self._bindings: Any = None
        self._inputs: tuple[TensorInfo, ...] = ()
        self._boxes: frozenset[str] = frozenset()
        self._has_run = False

    def load(self, model: Path, options: Options) -> Loaded:
        check_options("hailo", options)
        start = model_file.head(model)
        if len(start) < _HEADER.size or _HEADER.unpack_from(start)[0] != _MAGIC:
            raise ConfigError(
                f"{str(model)!r} is no model of Hailo, it lacks the identifier HEF: give "
                "a .hef file"
            )
        if model.stat().st_size < (size := _HEADER.size + _HEADER.unpack_from(start)[2]):
            raise ConfigError(f"{str(model)!r} is truncated: it needs {size} bytes; fetch it again")
        library = load_library(_CANDIDATES, "vision")
        started_ns, platform = time.monotonic_ns(), library.module
        self._device = _opened(platform, options.backend or _ANY)
        try:
            self._model = self._device.create_infer_model(str(model))
            self._configured = self._model.configure()
            self._inputs = tuple(_info(stream) for stream in self._model.inputs)
            outputs = tuple(self._output(stream) for stream in self._model.outputs)
        except platform.HailoRTException as error:
            if type(error).__name__ in _ABOUT_THE_FILE:
                raise ConfigError(
                    f"HailoRT rejects {str(model)!r}: {one_line(error)}; compile it for this "
                    "device and HailoRT"
                ) from error
            raise UnavailableError(
                f"HailoRT cannot run {str(model)!r} here: {one_line(error)}; see `hailortcli scan`"
            ) from error
        return library.loaded(
            backend=_ANY, inputs=self._inputs, outputs=outputs, metadata={},
            load_ns=time.monotonic_ns() - started_ns, precision="unknown",
            facts={"devices": ", ".join(self._device.get_physical_devices_ids())},
        )  # fmt: skip

    def bind(self, inputs: Sequence[Array]) -> Callable[[], object]:
        """Copy the inputs to buffers of their own; return HailoRT's synchronous call on them."""
        check_inputs(inputs, self._inputs)
        buffers_in = {
            info.name: np.array(array[0], order="C")
            for info, array in zip(self._inputs, inputs, strict=True)
        }
        buffers_out = {
            stream.name: np.empty(stream.shape, _dtype(stream)) for stream in self._model.outputs
        }
        self._bindings = self._configured.create_bindings(
            input_buffers=buffers_in, output_buffers=buffers_out
        )
        self._has_run = False
        run, bindings = self._configured.run, [self._bindings]

        def call() -> None:
            run(bindings, _TIMEOUT_MS)
            self._has_run = True

        return call

    def outputs(self) -> list[Array]:
        """Return copies of the last call's outputs, behind a batch of 1."""
        if not self._has_run:
            raise MeasurementError("HailoRT has no output: run a query first")
        return [
            np.array(self._bindings.output(name).get_buffer(tf_format=name in self._boxes))[None]
            for name in self._model.output_names
        ]

    def close(self) -> None:
        self._bindings = self._configured = self._model = None
        self._inputs, self._has_run = (), False
        if self._device is not None:
            self._device.release()
        self._device = None

    def _output(self, stream: Any) -> TensorInfo:
        if not stream.is_nms:
            return _info(stream)
        if stream.format.order.name != "HAILO_NMS_BY_CLASS":
            raise ConfigError(
                f"output {stream.name!r} is {stream.format.order.name}, which is not decoded "
                "here: compile it by class"
            )
        self._boxes |= {stream.name}
        shape = next(
            info.nms_shape
            for info in self._model.hef.get_output_vstream_infos()
            if info.name == stream.name
        )
        return TensorInfo(
            stream.name, (1, shape.number_of_classes, _BOX, shape.max_bboxes_per_class), "float32"
        )


def _opened(platform: Any, backend: str) -> Any:
    """Return a virtual device of its own."""
    try:
        devices = [str(device) for device in platform.Device.scan()]
        if not devices or backend not in {_ANY, *devices}:
            ids = ", ".join(devices) or "none"
            raise UnavailableError(
                f"HailoRT has no device {backend!r}: it finds {ids}; check the driver with "
                "`hailortcli scan`"
            )
        return platform.VDevice() if backend == _ANY else platform.VDevice(device_ids=[backend])
    except platform.HailoRTException as error:
        raise UnavailableError(
            f"HailoRT cannot open a device: {one_line(error)}; end what uses it (`fuser "
            "/dev/hailo0`)"
        ) from error


def _info(stream: Any) -> TensorInfo:
    quantised = {
        (float(info.qp_scale), round(info.qp_zp))
        for info in stream.quant_infos
        if _dtype(stream) != "float32"
    }
    if len(quantised) > 1:
        raise ConfigError(
            f"stream {stream.name!r} is quantised by channel, which is not decoded here: compile "
            "it with one scale"
        )
    scale, zero = next(iter(quantised), (None, None))
    return TensorInfo(stream.name, (1, *stream.shape), _dtype(stream), scale, zero)


def _dtype(stream: Any) -> str:
    kind = stream.format.type.name
    if kind not in _DTYPES:
        raise ConfigError(
            f"stream {stream.name!r} has the format {kind}, which numpy does not know: compile "
            "it as UINT8 or FLOAT32"
        )
    return _DTYPES[kind]
