"""ONNX Runtime: ONNX models (.onnx, .ort) on the CPU, or on what an execution provider reaches.

Library: `pip install 'edgemeter[onnx]'`, or a vendor's build that brings its providers (onnxruntime-gpu, onnxruntime-openvino). Its
telemetry is switched off, unless ORT_DISABLE_TELEMETRY says otherwise.
Backend: execution providers in order of preference, comma-separated, by full name or as cpu, cuda, tensorrt, xnnpack, acl, openvino, qnn;
`cpu` when none is given. One that is absent or drops out is an error.
Settings: `session.*` and `ep.*` are passed on as session configuration: `session.intra_op.allow_spinning = "0"` (so with xnnpack) lets
idle threads sleep, `session.disable_cpu_ep_fallback = "1"` refuses a model of which any operator would stay on the CPU.
`graph_optimisation` is `none`, `basic`, `extended`, `layout` or `all` (the default).
A provider's options stand behind its short name: `tensorrt.trt_fp16_enable = "1"`, `openvino.device_type = "GPU"`; threads come from
`--threads`. What it computes in, if not f32, is in the record's backend: `tensorrt,tf32` (unless NVIDIA_TF32_OVERRIDE=0 is in the
environment; `cuda` takes `cuda.use_tf32 = "1"`), `qnn,auto`. Which operators went where is recorded (1.24 and newer); a provider that
takes none is an error.
What is timed is `InferenceSession.run` on arrays that lie ready: it makes its output arrays, and copies to and from an accelerator.
Tested with onnxruntime 1.31.1 on the CPU.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgemeter.agent.base.errors import ConfigError, MeasurementError, UnavailableError, one_line
from edgemeter.agent.contract import model_file
from edgemeter.agent.runtimes import Array, Loaded, Options, TensorInfo, onnx_built_in, onnx_file
from edgemeter.agent.runtimes.adapter import LibraryCandidate, RuntimeLibrary, check_inputs, check_options, chosen_setting, load_library

_CANDIDATES = (LibraryCandidate("onnxruntime", ("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-qnn")),)
_SHORT = {name.lower(): f"{name}ExecutionProvider" for name in ("CPU", "CUDA", "Tensorrt", "Xnnpack", "ACL", "OpenVINO", "QNN")}
# What brings a provider that the usual build lacks.
_BUILDS = {
    f"{name}ExecutionProvider": f"onnxruntime-{build}"
    for name, build in (("CUDA", "gpu"), ("Tensorrt", "gpu"), ("OpenVINO", "openvino"), ("QNN", "qnn"), ("MIGraphX", "migraphx"))
}
_ERRORS_ONLY = 3
_CONFIGURATION = ("session.", "ep.")
_NO_FALLBACK = "session.disable_cpu_ep_fallback"
_OPTIMISATION = "graph_optimisation"
_OPTIMISATIONS = {"none": "ORT_DISABLE_ALL"} | {level: f"ORT_ENABLE_{level.upper()}" for level in ("basic", "extended", "layout", "all")}
# ONNX element types that numpy calls otherwise.
_DTYPES = {"float": "float32", "double": "float64", "string": "object"}
_TENSOR = re.compile(r"tensor\((\w+)\)")
# What precedes the text of an error: its number, the file, then the place in the C++ source with the function's signature.
_ERROR_HEAD = re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : |Load model from .*? failed:|\S+\.(?:cc|h):\d+ .*?\) (?=[A-Z])")
_OPSET = re.compile(r"Opset (\d+) is under development.*till opset (\d+)")


class OnnxRuntime:
    """Runs an ONNX model with ONNX Runtime."""

    def __init__(self, profile_prefix: str | None = None) -> None:
        # Where ONNX Runtime's own profiler is to write; it slows the model, so that nothing is measured with it on.
        self._profile_prefix = profile_prefix
        self._session: Any = None
        self._inputs: tuple[TensorInfo, ...] = ()
        self._outputs: tuple[TensorInfo, ...] = ()
        self._feeds: dict[str, Array] = {}
        self._last: list[Array] | None = None
        self._failures: tuple[type[Exception], ...] = ()

    def load(self, model: Path, options: Options) -> Loaded:
        """Import the library and make a session of the model; see `Runtime.load`."""
        configuration = {key: value for key, value in options.extra.items() if key.startswith(_CONFIGURATION)}
        names = {name: _short(name) for name in _asked(options.backend or "cpu")}
        of_providers = {key: value for key, value in options.extra.items() if key.partition(".")[0] in names.values()}
        check_options("onnx", options, extra=(*configuration, *of_providers, _OPTIMISATION))
        level = _OPTIMISATIONS[chosen_setting("onnx", options, _OPTIMISATION, _OPTIMISATIONS) or "all"]
        model_file.head(model)
        runtime_library = load_library(_CANDIDATES, "onnx")
        _check_present(list(names), options.backend or "cpu", runtime_library)
        of_user = [
            {key.partition(".")[2]: value for key, value in of_providers.items() if key.startswith(f"{name}.")} for name in names.values()
        ]
        started_ns = time.monotonic_ns()
        session_options = _session_options(
            options.threads, onnx_built_in.session_configuration(names.values()) | configuration, level, runtime_library
        )
        if list(names) != [_SHORT["cpu"]]:
            session_options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        if self._profile_prefix is not None:
            session_options.enable_profiling = True
            session_options.profile_file_prefix = self._profile_prefix
        settings = [
            onnx_built_in.provider_settings(name, options.threads, part) for name, part in zip(names.values(), of_user, strict=True)
        ]
        computed = map(onnx_built_in.computed_precision, names.values(), settings)
        backend = ",".join([*names.values(), *[precision for precision in computed if precision != "f32"][:1]])
        session = _session(model, session_options, list(names), settings, runtime_library)
        load_ns = time.monotonic_ns() - started_ns
        self._session, self._failures = session, _errors_of(runtime_library)[0]
        inputs, outputs = (tuple(_info(entry, model) for entry in ends) for ends in (session.get_inputs(), session.get_outputs()))
        self._inputs = onnx_file.with_quantisation(inputs, model)
        self._outputs = onnx_file.with_quantisation(outputs, model)
        return runtime_library.loaded(
            backend=backend,
            inputs=self._inputs,
            outputs=self._outputs,
            metadata=dict(session.get_modelmeta().custom_metadata_map),
            load_ns=load_ns,
            facts=_taken(model, session, names, has_fallback=configuration.get(_NO_FALLBACK) != "1"),
            precision=onnx_file.precision(model),
            threads_reason=next(filter(None, map(onnx_built_in.threads_reason, names.values(), settings)), None),
        )

    def check(self, model: Path, options: Options) -> None:
        """Raise if this build lacks a provider. See `Checks.check`."""
        model_file.head(model)
        _check_present(_asked(options.backend or "cpu"), options.backend or "cpu", load_library(_CANDIDATES, "onnx"))

    def bind(self, inputs: Sequence[Array]) -> Callable[[], object]:
        """Copy the inputs; return `InferenceSession.run` on the copies."""
        check_inputs(inputs, self._inputs)
        # Always to the same memory, and when the outputs are gone: providers pay for new addresses, as no loop on one input does.
        self._last, feeds = None, self._feeds
        for info, array in zip(self._inputs, inputs, strict=True):
            if info.name in feeds and feeds[info.name].shape == array.shape:
                np.copyto(feeds[info.name], array)
            else:
                # In this machine's byte order, whatever that of the array: the library reads the bytes as they are.
                feeds[info.name] = array.astype(array.dtype.newbyteorder("="), order="C")
        names = [info.name for info in self._outputs]
        run, failures = self._session.run, self._failures

        def call() -> None:
            self._last = None
            try:
                self._last = run(names, feeds)
            except failures as error:
                raise MeasurementError(f"ONNX Runtime failed on a query: {_reason_of(error)}; choose another backend or input") from error

        return call

    def outputs(self) -> list[Array]:
        """Return copies of what the last call gave."""
        if self._last is None:
            raise MeasurementError("ONNX Runtime has no output: run a query first")
        return [array.copy() for array in self._last]

    def end_profiling(self) -> str:
        """Return the path of the profile that was written: the session was made with a `profile_prefix`."""
        path: str = self._session.end_profiling()
        return path

    def close(self) -> None:
        """Let the session go; its memory and threads go with it."""
        self._session = None
        self._last, self._feeds = None, {}
        self._inputs = self._outputs = ()


def _asked(backend: str) -> list[str]:
    """Return the providers, without the CPU behind them: it comes last in any session, so that `cuda,cpu` is `cuda`."""
    names = [_SHORT.get(part.lower(), part) for part in (part.strip() for part in backend.split(",")) if part]
    return names[:-1] if len(names) > 1 and names[-1] == _SHORT["cpu"] else names


def _check_present(requested: list[str], backend: str, runtime_library: RuntimeLibrary) -> None:
    available = runtime_library.module.get_available_providers()
    absent = [provider for provider in requested if provider not in available]
    if absent or not requested:
        packages = " or ".join(dict.fromkeys(_BUILDS[provider] for provider in absent if provider in _BUILDS)) or "a build that brings it"
        # It sends to a service, and takes no operator of a model.
        choices = ", ".join(_short(provider) for provider in available if provider != "AzureExecutionProvider")
        raise UnavailableError(
            f"{runtime_library.package} {runtime_library.version} has no provider {', '.join(absent) or repr(backend)}: "
            f"choose --backend {choices}, or install {packages} in place of {runtime_library.package}"
        )


def _session_options(threads: int, configuration: dict[str, str], level: str, runtime_library: RuntimeLibrary) -> Any:
    session_options = runtime_library.module.SessionOptions()
    # Its warnings are about what an exporter left in the file, coloured and on standard error; what stops a model comes as an exception.
    session_options.log_severity_level = _ERRORS_ONLY
    session_options.graph_optimization_level = getattr(
        runtime_library.module.GraphOptimizationLevel, level, session_options.graph_optimization_level
    )
    session_options.intra_op_num_threads = threads
    session_options.inter_op_num_threads = 1
    session_options.execution_mode = runtime_library.module.ExecutionMode.ORT_SEQUENTIAL
    for key, value in configuration.items():
        session_options.add_session_config_entry(key, value)
    return session_options


def _session(
    model: Path, session_options: Any, providers: list[str], settings: Sequence[Mapping[str, str]], runtime_library: RuntimeLibrary
) -> Any:
    """Return a session that runs on all of `providers` and never falls back to others."""
    failures, absences = _errors_of(runtime_library)
    try:
        session = runtime_library.module.InferenceSession(
            str(model), session_options, enable_fallback=0, providers=providers, provider_options=settings
        )
    except absences as error:
        raise UnavailableError(
            f"ONNX Runtime cannot use {', '.join(providers)} here: {_reason_of(error)}; choose another backend or install what it needs"
        ) from error
    except failures as error:
        raise ConfigError(
            f"{runtime_library.package} {runtime_library.version} cannot run {str(model)!r}: {_reason_of(error)}; "
            "fetch the model again, or export it for this version (opset, IR, external data beside it)"
        ) from error
    session.disable_fallback()
    dropped = [provider for provider in providers if provider not in session.get_providers()]
    if dropped:
        raise UnavailableError(
            f"ONNX Runtime dropped {', '.join(dropped)} and would run on the CPU: install what the provider needs, or choose cpu"
        )
    return session


def _taken(model: Path, session: Any, names: Mapping[str, str], *, has_fallback: bool) -> dict[str, str]:
    """Return how many operators each provider took and which stayed on the CPU; nothing on the CPU alone.

    Raises:
        UnavailableError: a provider takes no operator of the model.
    """
    if list(names) == [_SHORT["cpu"]]:
        return {}
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return {"fully_accelerated": "not reported" if has_fallback else "yes"}
    operators: dict[str, Counter[str]] = {name: Counter() for name in names}
    for part in session.get_provider_graph_assignment_info():
        operators.setdefault(part.ep_name, Counter()).update(node.op_type for node in part.get_nodes())
    idle = [name for name, kinds in operators.items() if not kinds and name != _SHORT["cpu"]]
    if idle:
        raise UnavailableError(
            f"{', '.join(idle)} takes no operator of {str(model)!r}, all of which would run elsewhere: choose "
            f"{' or '.join(names.get(name, _short(name)) for name, kinds in operators.items() if kinds) or 'cpu'}"
        )
    facts = {f"operators_on_{names.get(name, _short(name))}": str(kinds.total()) for name, kinds in operators.items() if kinds}
    on_cpu = operators.get(_SHORT["cpu"])
    return facts | ({"left_to_cpu": ", ".join(f"{kind} {count}" for kind, count in sorted(on_cpu.items()))} if on_cpu else {})


def _short(provider: str) -> str:
    return next((short for short, full in _SHORT.items() if full == provider), provider)


def _info(entry: Any, model: Path) -> TensorInfo:
    """Return one input or output as the model declares it; names and open dimensions are strings or None in the library."""
    match = _TENSOR.fullmatch(entry.type)
    if match is None:
        raise ConfigError(f"{str(model)!r} has {entry.name!r} of type {entry.type}, not a tensor: export it without maps and sequences")
    shape = tuple(size if isinstance(size, int) else None for size in entry.shape)
    return TensorInfo(entry.name, shape, _DTYPES.get(match[1], match[1]))


def _errors_of(runtime_library: RuntimeLibrary) -> tuple[tuple[type[Exception], ...], tuple[type[Exception], ...]]:
    """Return the library's errors about a model, and those about a provider; its own classes have no common one below Exception."""
    state = runtime_library.module.capi.onnxruntime_pybind11_state
    kinds = [kind for kind in vars(state).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    absences = tuple(kind for kind in kinds if kind.__name__ in {"EPFail", "EngineError", "DeviceReset"})
    return (*kinds, RuntimeError, ValueError), absences


def _reason_of(error: Exception) -> str:
    """Return what the library says of an error, without the number, file and function that precede it."""
    words = _ERROR_HEAD.sub("", " ".join(str(error).split())).strip().rstrip(".") or type(error).__name__
    if words == "Protobuf parsing failed":
        return "it is not an ONNX model, or a truncated one"
    opset = _OPSET.search(words)
    return one_line(words if opset is None else f"it needs opset {opset[1]}, this version knows up to {opset[2]}")
