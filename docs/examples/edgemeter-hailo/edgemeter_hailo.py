"""Hailo: compiled models (.hef) on Hailo-8, 8L, 10H, by HailoRT's Python API. Not run on hardware; an example of a vendor's accelerator.

Library: `hailo_platform`, HailoRT 4.18 or newer (`apt install hailo-all` on Raspberry Pi OS, or Hailo's wheel), with its driver.
Backend: `hailo` (the default: any device), or the id of a device as `hailortcli scan` prints it. Settings: none. Threads: HailoRT's own.
Inputs and outputs are in the formats that the file was compiled for, mostly uint8, with scale and zero point; shapes are H, W, C behind a
batch of 1. Boxes after HailoRT's own non-maximum suppression (by class) are float32 [1, classes, 5, boxes]: y_min, x_min, y_max, x_max,
score; other kinds of it are refused.
What is timed is `ConfiguredInferModel.run` on buffers that lie ready: transfer to the device, inference, transfer back, and what of the
post-processing HailoRT does on the host. A process has one virtual device, which its models share: a second one is refused by HailoRT
(HAILO_OUT_OF_PHYSICAL_DEVICES).
To be seen on hardware: that `run` with one binding is not slower than a pipeline of one frame, that `VDevice.release` frees the device for
the next process, and the dtype of outputs whose format is AUTO.
Source: hailo-ai/hailort, hailort/libhailort/bindings/python/platform/hailo_platform/pyhailort/pyhailort.py (VDevice, InferModel,
ConfiguredInferModel, HailoRT*Exception); hef_internal.hpp for the magic and the header, which is big-endian.
"""

import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from edgemeter.plugin import (
    Array,
    ConfigError,
    Loaded,
    MeasurementError,
    Options,
    TensorInfo,
    UnavailableError,
    check_inputs,
    check_options,
    model_head,
    one_line,
)

_HEADER = struct.Struct(">III")
_MAGIC = 0x01484546
_ANY = "hailo"
_TIMEOUT_MS = 10_000
_BOX = 5
_DTYPES = {"UINT8": "uint8", "UINT16": "uint16", "FLOAT32": "float32"}
# These are about the file; what else HailoRT raises is about the device.
_ABOUT_THE_FILE = ("HailoRTInvalidHEFException", "HailoRTHEFNotCompatibleWithDevice", "HailoRTInvalidArgumentException")


class Hailo:
    """Runs one compiled model; the contract is `edgemeter.plugin.Runtime`."""

    _device: ClassVar[Any] = None
    _device_id: ClassVar[str] = _ANY
    _users: ClassVar[set[int]] = set()

    def __init__(self) -> None:
        self._model: Any = None
        self._configured: Any = None
        self._bindings: Any = None
        self._inputs: tuple[TensorInfo, ...] = ()
        self._boxes: frozenset[str] = frozenset()
        self._has_run = False

    def load(self, model: Path, options: Options) -> Loaded:
        """Import HailoRT, open the device, and configure it for the model."""
        check_options("hailo", options)
        _check_header(model)
        started_ns = time.monotonic_ns()
        platform = _imported()
        import_ns = time.monotonic_ns() - started_ns
        started_ns = time.monotonic_ns()
        device = self._shared(platform, options.backend or _ANY)
        try:
            self._model = device.create_infer_model(str(model))
            self._configured = self._model.configure()
            self._inputs = tuple(_info(stream) for stream in self._model.inputs)
            outputs = tuple(self._output(stream) for stream in self._model.outputs)
        except platform.HailoRTException as error:
            reason = one_line(error)
            if type(error).__name__ in _ABOUT_THE_FILE:
                raise ConfigError(
                    f"HailoRT rejects {str(model)!r}: {reason}; compile it for this device and HailoRT, or fetch it again"
                ) from error
            raise UnavailableError(f"HailoRT cannot run {str(model)!r} here: {reason}; see `hailortcli fw-control identify`") from error
        return Loaded(
            package="hailort",
            version=platform.__version__,
            backend=_ANY,
            inputs=self._inputs,
            outputs=outputs,
            metadata={},
            import_ns=import_ns,
            load_ns=time.monotonic_ns() - started_ns,
            facts={"devices": ", ".join(device.get_physical_devices_ids())},
            precision="int8",
        )

    def bind(self, inputs: Sequence[Array]) -> Callable[[], object]:
        """Copy the inputs to buffers of their own; return HailoRT's synchronous call on them."""
        check_inputs(inputs, self._inputs)
        streams = zip(self._inputs, inputs, strict=True)
        buffers_in = {info.name: np.ascontiguousarray(array[0]).copy() for info, array in streams}
        buffers_out = {stream.name: np.empty(stream.shape, _dtype(stream)) for stream in self._model.outputs}
        self._bindings = self._configured.create_bindings(input_buffers=buffers_in, output_buffers=buffers_out)
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
        names = self._model.output_names
        return [np.array(self._bindings.output(name).get_buffer(tf_format=name in self._boxes))[None] for name in names]

    def close(self) -> None:
        """Let the model go; the last one of the process releases the device."""
        self._bindings = self._configured = self._model = None
        self._inputs = ()
        self._has_run = False
        users = Hailo._users
        users.discard(id(self))
        if not users and Hailo._device is not None:
            Hailo._device.release()
            Hailo._device = None

    def _shared(self, platform: Any, backend: str) -> Any:
        """Return the virtual device of this process, opened for its first model."""
        if Hailo._device is None:
            try:
                devices = [str(device) for device in platform.Device.scan()]
                if not devices or backend not in {_ANY, *devices}:
                    devices_text = f"it finds {', '.join(devices)}" if devices else "it finds none"
                    raise UnavailableError(f"HailoRT has no device {backend!r}: {devices_text}; check the driver with `hailortcli scan`")
                Hailo._device = platform.VDevice() if backend == _ANY else platform.VDevice(device_ids=[backend])
            except platform.HailoRTException as error:
                raise UnavailableError(
                    f"HailoRT cannot open a device: {one_line(error)}; end what else uses it (`fuser /dev/hailo0`)"
                ) from error
            Hailo._device_id = backend
        elif backend not in {_ANY, Hailo._device_id}:
            raise UnavailableError(f"this process has opened the device {Hailo._device_id!r} and not {backend!r}: close its models first")
        Hailo._users.add(id(self))
        return Hailo._device

    def _output(self, stream: Any) -> TensorInfo:
        if not stream.is_nms:
            return _info(stream)
        if stream.format.order.name != "HAILO_NMS_BY_CLASS":
            raise ConfigError(
                f"output {stream.name!r} is {stream.format.order.name}, which is not decoded here: compile it without, or by class"
            )
        self._boxes |= {stream.name}
        shape = next(info.nms_shape for info in self._model.hef.get_output_vstream_infos() if info.name == stream.name)
        return TensorInfo(stream.name, (1, shape.number_of_classes, _BOX, shape.max_bboxes_per_class), "float32")


def _imported() -> Any:
    """Return the module `hailo_platform`, imported.

    Raises:
        UnavailableError: it is not installed, or does not fit its library.
    """
    try:
        import hailo_platform  # noqa: PLC0415 - help and doctor construct runtimes without it
    except (ImportError, OSError) as error:
        raise UnavailableError(f"no usable hailo_platform: {one_line(error)}; on Raspberry Pi OS: sudo apt install hailo-all") from error
    return hailo_platform


def _check_header(model: Path) -> None:
    """Return if the file is a HEF as long as its header says.

    Raises:
        ConfigError: it is not.
    """
    start = model_head(model)
    if len(start) < _HEADER.size or _HEADER.unpack_from(start)[0] != _MAGIC:
        raise ConfigError(f"{str(model)!r} is no model of Hailo, it lacks the identifier HEF: give a .hef file")
    _, _, size = _HEADER.unpack_from(start)
    if model.stat().st_size < _HEADER.size + size:
        raise ConfigError(f"{str(model)!r} is truncated: it needs {_HEADER.size + size} bytes; fetch it again")


def _info(stream: Any) -> TensorInfo:
    quantised = stream.quant_infos[0] if stream.quant_infos and _dtype(stream) != "float32" else None
    scale, zero = (float(quantised.qp_scale), round(quantised.qp_zp)) if quantised else (None, None)
    return TensorInfo(stream.name, (1, *stream.shape), _dtype(stream), scale, zero)


def _dtype(stream: Any) -> str:
    kind = stream.format.type.name
    if kind not in _DTYPES:
        raise ConfigError(f"stream {stream.name!r} has the format {kind}, which numpy does not know: compile it as UINT8 or FLOAT32")
    return _DTYPES[kind]
