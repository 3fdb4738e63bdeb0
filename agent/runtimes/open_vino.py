"""OpenVINO: its own models (.xml with .bin) and ONNX models, on CPUs, Intel GPUs and NPUs.

- Library: `pip install 'edgemeter[openvino]'`.
- Backend: the device, `cpu` (the default), `gpu`, `gpu.1` or `npu`.
- Settings: `precision` is `f32` (the default on a CPU), `f16`, `bf16` or `auto`. With `auto`
  OpenVINO may compute in half precision, which changes predictions; the record names it:
  `cpu,bf16`. Properties in capitals are passed on: `ENABLE_CPU_PINNING = "NO"`.
- Timed: `InferRequest.infer` in one stream with all threads.

Tested with: openvino 2026.4.1 on the CPU. AUTO, MULTI and HETERO are refused because nobody would
know what ran. Outputs are not copied.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from edgemeter.agent.base.errors import ConfigError, MeasurementError, UnavailableError, one_line
from edgemeter.agent.contract import model_file
from edgemeter.agent.runtimes import Array, Loaded, Options, Runtime, TensorInfo, adapter
from edgemeter.agent.runtimes.onnx_file import OnnxFile, read_onnx

_CANDIDATES = (adapter.LibraryCandidate("openvino", ("openvino", "openvino-nightly")),)
_PRECISIONS = ("f32", "f16", "bf16", "auto")
_DTYPES = {
    "f32": "float32", "f16": "float16", "f64": "float64", "boolean": "bool", "i8": "int8",
    "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16", "u32": "uint32",
    "u64": "uint64",
}  # fmt: skip
# The first byte of an ONNX file is the tag of a field of ModelProto; OpenVINO would try all its
# readers on anything else.
_ONNX_TAGS = b"\x08\x12\x1a\x22\x28\x32\x3a\x42\x72\xa2\xca"


class OpenVino(Runtime):
    """Runs an OpenVINO or ONNX model with OpenVINO."""

    def __init__(self) -> None:
        self._module: Any = None
        self._request: Any = None
        self._inputs: tuple[TensorInfo, ...] = ()
        self._last: Any = None

    def load(self, model: Path, options: Options) -> Loaded:
        properties = {name: value for name, value in options.extra.items() if name.isupper()}
        adapter.check_options("openvino", options, extra=("precision", *properties))
        precision = adapter.chosen_setting("openvino", options, "precision", _PRECISIONS)
        # Otherwise OpenVINO would try every known format, one of which is code.
        start = model_file.head(model)
        is_xml = start.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<")
        if start[4:8] == b"TFL3" or (not is_xml and start[0] not in _ONNX_TAGS):
            raise ConfigError(
                f"{str(model)!r} is neither an OpenVINO model (.xml with .bin beside it) nor an "
                "ONNX one: give one of these"
            )
        library = adapter.load_library(_CANDIDATES, "openvino")
        started_ns = time.monotonic_ns()
        core = library.module.Core()
        device = _device(core, options.backend or "cpu", library)
        try:
            graph = core.read_model(str(model))
            compiled = core.compile_model(
                graph, device, _settings(device, options.threads, precision) | properties
            )
            inputs, outputs = (
                tuple(_info(port, model) for port in ports)
                for ports in (compiled.inputs, compiled.outputs)
            )
            self._request = compiled.create_infer_request()
        except (RuntimeError, ValueError, TypeError) as error:
            raise ConfigError(
                f"{library.package} {library.version} cannot run {str(model)!r} on {device}: "
                f"{_reason(error)}; "
                "fetch the model again, or export it for this version"
            ) from error
        load_ns = time.monotonic_ns() - started_ns
        # OpenVINO's own files have real inputs.
        file = OnnxFile({}) if model.suffix.lower() == ".xml" else read_onnx(model)
        self._module, self._inputs = library.module, file.with_quantisation(inputs)
        computed = _computed(compiled, precision, device)
        return library.loaded(
            backend=",".join(
                filter(None, (device.lower(), computed if computed != "f32" else None))
            ),
            inputs=self._inputs,
            outputs=file.with_quantisation(outputs),
            metadata={**adapter.read_metadata(model.parent, "openvino"), **_metadata(graph)},
            load_ns=load_ns,
            facts={"computed_in": computed} if computed else {},
            precision=file.precision,
        )

    def check(self, model: Path, options: Options) -> None:
        model_file.head(model)
        library = adapter.load_library(_CANDIDATES, "openvino")
        _device(library.module.Core(), options.backend or "cpu", library)

    def bind(self, inputs: Sequence[Array]) -> Callable[[], object]:
        adapter.check_inputs(inputs, self._inputs)
        try:
            for index, array in enumerate(inputs):
                self._request.set_input_tensor(index, self._module.Tensor(array.copy(order="C")))
        except RuntimeError as error:
            raise ConfigError(f"OpenVINO rejects the input: {_reason(error)}") from error
        infer = self._request.infer
        self._last = None

        def call() -> None:
            self._last = infer(share_outputs=True)

        return call

    def outputs(self) -> list[Array]:
        import numpy as np  # noqa: PLC0415 - a session reads this file too, and needs no NumPy

        if self._last is None:
            raise MeasurementError("OpenVINO has no output: run a query first")
        return [np.array(array) for array in self._last.values()]

    def close(self) -> None:
        self._last = self._request = self._module = None
        self._inputs = ()


def _device(core: Any, backend: str, library: adapter.RuntimeLibrary) -> str:
    available = core.available_devices
    requested = backend.upper()
    match = next((name for name in available if name in {requested, f"{requested}.0"}), None)
    if match is None:
        raise UnavailableError(
            f"{library.package} {library.version} has no device {backend!r} here: it has "
            f"{', '.join(available).lower()}; "
            "choose one of these, or install the driver of the other"
        )
    return str(match)


def _settings(device: str, threads: int, precision: str | None) -> dict[str, Any]:
    settings: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1}
    if device == "CPU":
        settings["INFERENCE_NUM_THREADS"] = threads
        precision = precision or "f32"
    if precision not in {None, "auto"}:
        settings["INFERENCE_PRECISION_HINT"] = precision
    return (
        settings
        if device != "NPU"
        else {name: value for name, value in settings.items() if name != "NUM_STREAMS"}
    )


def _computed(compiled: Any, requested: str | None, device: str) -> str | None:
    """Return the precision in which the library computes.

    Raises:
        UnavailableError: it is not the requested one.
    """
    try:
        computed = str(compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name())
    except (RuntimeError, AttributeError):
        computed = None
    if requested not in {None, "auto", computed}:
        raise UnavailableError(
            f"OpenVINO computes in {computed or 'a precision that it does not report'} on "
            f"{device}, not in {requested!r}: choose that, "
            "or auto"
        )
    return computed


def _metadata(graph: Any) -> Mapping[str, str]:
    """Return the model's metadata: the properties of its ONNX file, or those of its exporter."""
    metadata: dict[str, str] = {}
    sections = dict(graph.rt_info.items())
    for entries in (sections.get("framework"), sections.get("model_info")):
        if isinstance(entries, dict):
            metadata |= {
                str(name): str(getattr(value, "value", value)) for name, value in entries.items()
            }
    return metadata


def _info(port: Any, model: Path) -> TensorInfo:
    name = port.get_any_name() if port.get_names() else f"tensor_{port.get_index()}"
    shape = port.partial_shape
    if shape.rank.is_dynamic:
        raise ValueError(
            f"{name!r} has no rank: export {str(model)!r} with a fixed number of dimensions"
        )
    dtype = port.get_element_type().get_type_name()
    return TensorInfo(
        name,
        tuple(size.get_length() if size.is_static else None for size in shape),
        _DTYPES.get(dtype, dtype),
    )


def _reason(error: Exception) -> str:
    """Return the cause in the library's error message, its last part, after source locations."""
    lines = [
        line.strip()
        for line in str(error).splitlines()
        if line.strip() and not line.startswith(("Exception from", "FrontEnd API failed"))
    ]
    words = (
        [line for line in lines if not line.startswith("Check '")]
        or lines
        or [type(error).__name__]
    )
    return one_line(" ".join(words)).rstrip(".")
