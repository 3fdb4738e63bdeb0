"""ONNX Runtime: ONNX models (.onnx, .ort) on the CPU or an execution provider.

- Library: `pip install 'edgemeter[onnx]'`, or a vendor's build such as onnxruntime-gpu. Telemetry
  is off.
- Backend: execution providers in order of preference, by full name or as cpu, cuda, tensorrt,
  xnnpack, acl, openvino, qnn. Default: `cpu`. A provider that is absent or runs no operator is an
  error. The record shows the operators on each provider.
- Settings: `graph_optimisation` is `none`, `basic`, `extended`, `layout` or `all` (the default).
  `session.*` and `ep.*` are passed on: `session.disable_cpu_ep_fallback = "1"` allows no operator
  on the CPU. Options of a provider follow its name: `tensorrt.trt_fp16_enable = "1"`.
- Timed: `InferenceSession.run`, with copies to and from an accelerator.

Tested with: onnxruntime 1.31.1 on the CPU, and with OpenVINO as its provider there.
ORT_DISABLE_TELEMETRY overrides telemetry. Operators are recorded since 1.24, and a precision other
than fp32 as `tensorrt,tf32` or `qnn,auto`. `session.intra_op.allow_spinning = "0"` lets idle
threads sleep, as they do with xnnpack, which has threads of its own. Making the output arrays is
timed.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from edgemeter.agent.base.errors import ConfigError, MeasurementError, UnavailableError, one_line
from edgemeter.agent.contract import model_file
from edgemeter.agent.runtimes import Array, Loaded, Options, Runtime, TensorInfo
from edgemeter.agent.runtimes.adapter import (
    LibraryCandidate,
    RuntimeLibrary,
    check_inputs,
    check_options,
    chosen_setting,
    load_library,
)
from edgemeter.agent.runtimes.onnx_file import read_onnx

_CANDIDATES = (
    LibraryCandidate(
        "onnxruntime", ("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-qnn")
    ),
)
_SHORT = {
    name.lower(): f"{name}ExecutionProvider"
    for name in ("CPU", "CUDA", "Tensorrt", "Xnnpack", "ACL", "OpenVINO", "QNN")
}
_NAMES = {provider: name for name, provider in _SHORT.items()}
# Providers with threads of their own; left to itself OpenVINO takes 8, XNNPACK 1. A load_config
# could hold others.
_THREADS = {"openvino": "num_of_threads", "xnnpack": "intra_op_num_threads"}
_REFUSED = {*_THREADS.values(), "load_config"}
# Settings with which a provider computes in less than f32. Source:
# onnxruntime.ai/docs/execution-providers.
_LOWER: Mapping[str, Mapping[str, str]] = {
    "cpu": {},
    "xnnpack": {},
    "acl": {"enable_fast_math": "auto"},
    "cuda": {"use_tf32": "tf32"},
    "tensorrt": {"trt_int8_enable": "int8", "trt_fp16_enable": "f16", "trt_bf16_enable": "bf16"},
}
_KNOWN_THREADS = {*_LOWER, *_THREADS, "qnn"}
_OPTIMISATION = "graph_optimisation"
_OPTIMISATIONS = {"none": "ORT_DISABLE_ALL"} | {
    level: f"ORT_ENABLE_{level.upper()}" for level in ("basic", "extended", "layout", "all")
}
# ONNX element types with other names in numpy.
_DTYPES = {"float": "float32", "double": "float64", "string": "object"}
_TENSOR = re.compile(r"tensor\((\w+)\)")
# The text before the reason of an error: its number, the file, then the line of the C++ source with
# the function's signature.
_ERROR_HEAD = re.compile(
    r"\[ONNXRuntimeError\] : \d+ : \w+ : |Load model from .*? "
    r"failed:|\S+\.(?:cc|h):\d+ .*?\) (?=[A-Z])"
)
_OPSET = re.compile(r"Opset (\d+) is under development.*till opset (\d+)")


class OnnxRuntime(Runtime):
    """Runs an ONNX model with ONNX Runtime."""

    def __init__(self, profile_prefix: str = "") -> None:
        # The beginning of the file that ONNX Runtime's profiler writes; nothing is measured with
        # it, because it slows the model.
        self._profile_prefix = profile_prefix
        self.session: Any = None
        self._inputs: tuple[TensorInfo, ...] = ()
        self._outputs: tuple[TensorInfo, ...] = ()
        self._feeds: dict[str, Array] = {}
        self._last: list[Array] | None = None

    def load(self, model: Path, options: Options) -> Loaded:
        configuration = {
            key: value
            for key, value in options.extra.items()
            if key.startswith(("session.", "ep."))
        }
        model_file.head(model)
        library = load_library(_CANDIDATES, "onnx")
        providers = _providers(options.backend or "cpu", library)
        names = [_NAMES.get(name, name) for name in providers]
        of_providers = [key for key in options.extra if key.partition(".")[0] in names]
        check_options(
            "onnx",
            options,
            extra=(*configuration, *of_providers, _OPTIMISATION, "session.*", "ep.*"),
        )
        level = _OPTIMISATIONS[
            chosen_setting("onnx", options, _OPTIMISATION, _OPTIMISATIONS) or "all"
        ]
        settings = {name: provider_settings(name, options) for name in names}
        started_ns = time.monotonic_ns()
        session_options = library.module.SessionOptions()
        # Warnings are about leftovers of an exporter; errors come as exceptions.
        session_options.log_severity_level = 3
        session_options.graph_optimization_level = getattr(
            library.module.GraphOptimizationLevel, level
        )
        session_options.intra_op_num_threads = options.threads
        session_options.inter_op_num_threads = 1
        # XNNPACK has threads of its own, and spinning idle threads would take their cores.
        spinning = {"session.intra_op.allow_spinning": "0"} if "xnnpack" in settings else {}
        placed = {} if names == ["cpu"] else {"session.record_ep_graph_assignment_info": "1"}
        for key, value in (spinning | configuration | placed).items():
            session_options.add_session_config_entry(key, value)
        session_options.enable_profiling, session_options.profile_file_prefix = (
            bool(self._profile_prefix),
            self._profile_prefix,
        )
        precisions = [computed_precision(name, settings[name]) for name in names]
        unknown = [
            name
            for name in names
            if name not in _KNOWN_THREADS or settings[name].get("device_type") == "AUTO"
        ]
        self.session = session = _session(
            model, session_options, providers, list(settings.values()), library
        )
        load_ns = time.monotonic_ns() - started_ns
        inputs, outputs = (
            tuple(_info(entry, model) for entry in ends)
            for ends in (session.get_inputs(), session.get_outputs())
        )
        file = read_onnx(model)
        self._inputs, self._outputs = (
            file.with_quantisation(inputs),
            file.with_quantisation(outputs),
        )
        return library.loaded(
            backend=",".join(
                [*names, *[precision for precision in precisions if precision != "f32"][:1]]
            ),
            inputs=self._inputs,
            outputs=self._outputs,
            metadata=dict(session.get_modelmeta().custom_metadata_map),
            load_ns=load_ns,
            facts=_taken(
                model,
                session,
                providers,
                has_fallback=configuration.get("session.disable_cpu_ep_fallback") != "1",
            ),
            precision=file.precision,
            threads_reason=f"{unknown[0]} chooses how many it computes with, or its settings do"
            if unknown
            else None,
        )

    def check(self, model: Path, options: Options) -> None:
        model_file.head(model)
        _providers(options.backend or "cpu", load_library(_CANDIDATES, "onnx"))

    def bind(self, inputs: Sequence[Array]) -> Callable[[], object]:
        import numpy as np  # noqa: PLC0415 - a session reads this file too, and needs no NumPy

        check_inputs(inputs, self._inputs)
        # The inputs are copied to the same memory each time, after the outputs are freed, because
        # new addresses cost providers time.
        self._last, feeds = None, self._feeds
        for info, array in zip(self._inputs, inputs, strict=True):
            if info.name in feeds and feeds[info.name].shape == array.shape:
                np.copyto(feeds[info.name], array)
            else:
                # The library reads the bytes as they are.
                feeds[info.name] = array.astype(array.dtype.newbyteorder("="), order="C")
        run, names = self.session.run, [info.name for info in self._outputs]

        def call() -> None:
            self._last = None
            self._last = run(names, feeds)

        return call

    def outputs(self) -> list[Array]:
        if self._last is None:
            raise MeasurementError("ONNX Runtime has no output: run a query first")
        return [array.copy() for array in self._last]

    def close(self) -> None:
        self.session, self._last, self._feeds = None, None, {}
        self._inputs = self._outputs = ()


def _providers(backend: str, library: RuntimeLibrary) -> list[str]:
    """Return the providers, without the CPU after others: `cuda,cpu` is `cuda`.

    The CPU is the last provider in any session.
    """
    names = [
        _SHORT.get(part.lower(), part)
        for part in (part.strip() for part in backend.split(","))
        if part
    ]
    available = library.module.get_available_providers()
    absent = [name for name in names if name not in available]
    if absent or not names:
        # Azure's provider uses a service, and runs no operator of a model.
        choices = ", ".join(
            _NAMES.get(name, name) for name in available if name != "AzureExecutionProvider"
        )
        raise UnavailableError(
            f"{library.package} {library.version} has no provider "
            f"{', '.join(absent) or repr(backend)}: choose --backend {choices}, "
            "or install a build that brings it (onnxruntime-gpu, ...) in place of "
            f"{library.package}"
        )
    return names[:-1] if len(names) > 1 and names[-1] == _SHORT["cpu"] else names


def provider_settings(name: str, options: Options) -> dict[str, str]:
    """Return the settings of the provider with this short name.

    They are its threads and f32, then the user's, which must not set threads.
    """
    of_user = {
        key.removeprefix(f"{name}."): value
        for key, value in options.extra.items()
        if key.startswith(f"{name}.")
    }
    if name == "cuda":
        return {"use_tf32": "0", **of_user}
    if name not in _THREADS or "CPU" not in of_user.get("device_type", "CPU"):
        return of_user
    if refused := sorted(_REFUSED.intersection(of_user)):
        raise ConfigError(f"--threads sets the threads of {name}: leave {refused[0]} out")
    return {_THREADS[name]: str(options.threads), **of_user}


def computed_precision(name: str, settings: Mapping[str, str]) -> str:
    """Return the precision in which the provider computes floats: `f32`, `f16`, ...

    It is `auto` if the provider chooses.
    """
    if name == "openvino":
        return "f32" if settings.get("device_type", "CPU") == "CPU" else "auto"
    if name not in _LOWER:
        return "auto"
    lower = [
        computed
        for setting, computed in _LOWER[name].items()
        if settings.get(setting, "").lower() in {"1", "true"}
    ]
    # TensorRT has no setting for TF32.
    return lower[0] if lower else "tf32" if name == "tensorrt" else "f32"


def _session(
    model: Path,
    session_options: Any,
    providers: list[str],
    settings: Sequence[Mapping[str, str]],
    library: RuntimeLibrary,
) -> Any:
    """Return a session that runs on all of `providers` and never falls back to others."""
    # The library's errors have no common base class but Exception.
    failures: tuple[type[Exception], ...] = (
        RuntimeError,
        ValueError,
        *(
            kind
            for kind in vars(library.module.capi.onnxruntime_pybind11_state).values()
            if isinstance(kind, type) and issubclass(kind, Exception)
        ),
    )
    absences = tuple(
        kind for kind in failures if kind.__name__ in {"EPFail", "EngineError", "DeviceReset"}
    )
    try:
        session = library.module.InferenceSession(
            str(model),
            session_options,
            enable_fallback=0,
            providers=providers,
            provider_options=settings,
        )
    except absences as error:
        raise UnavailableError(
            f"ONNX Runtime cannot use {', '.join(providers)} here: {_reason_of(error)}; choose "
            "another backend or install what it needs"
        ) from error
    except failures as error:
        raise ConfigError(
            f"{library.package} {library.version} cannot run {str(model)!r}: {_reason_of(error)}; "
            "fetch the model again, or export it for this version (opset, IR, "
            "external data beside it)"
        ) from error
    session.disable_fallback()
    dropped = [provider for provider in providers if provider not in session.get_providers()]
    if dropped:
        raise UnavailableError(
            f"ONNX Runtime dropped {', '.join(dropped)} and would run on the CPU: install what "
            "the provider needs, or choose cpu"
        )
    return session


def _taken(
    model: Path, session: Any, providers: Sequence[str], *, has_fallback: bool
) -> dict[str, str]:
    """Return the number of operators of each provider, and those left to the CPU.

    Raises:
        UnavailableError: a provider has no operators.
    """
    if providers == [_SHORT["cpu"]]:
        return {}
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return {"fully_accelerated": "not reported" if has_fallback else "yes"}
    operators: dict[str, Counter[str]] = {name: Counter() for name in providers}
    for part in session.get_provider_graph_assignment_info():
        operators.setdefault(part.ep_name, Counter()).update(
            node.op_type for node in part.get_nodes()
        )
    idle = [name for name, kinds in operators.items() if not kinds and name != _SHORT["cpu"]]
    if idle:
        raise UnavailableError(
            f"{', '.join(idle)} takes no operator of {str(model)!r}, all of which would run "
            "elsewhere: choose "
            + (
                " or ".join(_NAMES.get(name, name) for name, kinds in operators.items() if kinds)
                or "cpu"
            )
        )
    facts = {
        f"operators_on_{_NAMES.get(name, name)}": str(kinds.total())
        for name, kinds in operators.items()
        if kinds
    }
    on_cpu = operators.get(_SHORT["cpu"])
    return facts | (
        {"left_to_cpu": ", ".join(f"{kind} {count}" for kind, count in sorted(on_cpu.items()))}
        if on_cpu
        else {}
    )


def _info(entry: Any, model: Path) -> TensorInfo:
    """Return one input or output as the model declares it.

    Names and open dimensions are strings or None in the library.
    """
    match = _TENSOR.fullmatch(entry.type)
    if match is None:
        raise ConfigError(
            f"{str(model)!r} has {entry.name!r} of type {entry.type}, not a tensor: export it "
            "without maps and sequences"
        )
    shape = tuple(size if isinstance(size, int) else None for size in entry.shape)
    return TensorInfo(entry.name, shape, _DTYPES.get(match[1], match[1]))


def _reason_of(error: Exception) -> str:
    """Return the reason of an error, without the number, file and function before it."""
    words = (
        _ERROR_HEAD.sub("", " ".join(str(error).split())).strip().rstrip(".")
        or type(error).__name__
    )
    if words == "Protobuf parsing failed":
        return "it is not an ONNX model, or a truncated one"
    opset = _OPSET.search(words)
    return one_line(
        words
        if opset is None
        else f"it needs opset {opset[1]}, this version knows up to {opset[2]}"
    )
