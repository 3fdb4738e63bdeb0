"""Plug-in execution providers of ONNX Runtime: by the name of the package that brings one, or by the path of its library."""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import msgspec

from edgemeter.agent.base.errors import ConfigError, UnavailableError, one_line
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.base.plugins import install_command
from edgemeter.agent.base.suggestions import near
from edgemeter.agent.runtimes import vulkan
from edgemeter.agent.runtimes.adapter import RuntimeLibrary
from edgemeter.agent.runtimes.onnx_errors import errors_of, reason_of

LIBRARY = "provider_library"
_DEVICES = ("cpu", "gpu", "npu")
LOAD_CONFIG, _PRECISION_HINT = "load_config", "INFERENCE_PRECISION_HINT"
# Settings by which providers take a number of threads.
_THREADS = {"threads", "num_of_threads", "intra_op_num_threads", "INFERENCE_NUM_THREADS"}


def refuse_threads(name: str, of_user: Iterable[str]) -> None:
    """Raise ConfigError if a user's settings of a provider hold threads: the record names those of `--threads`."""
    if thread_settings := sorted(_THREADS.intersection(of_user)):
        raise ConfigError(f"{name} takes its threads from --threads: leave {thread_settings[0]} out")


def chosen_by(name: str) -> str:
    """Return why the number of threads of a provider is not known, to which Edgemeter gives none."""
    return f"{name} chooses how many it computes with, or its settings do"


def _openvino(threads: int, device: str) -> dict[str, str]:
    """Return the settings of a CPU or GPU; left to itself OpenVINO takes all cores, and computes in half precision where they can."""
    settings = {_PRECISION_HINT: "f32"} | ({"INFERENCE_NUM_THREADS": str(threads)} if device == "CPU" else {})
    return {LOAD_CONFIG: json.dumps({device: settings})} if device.startswith(("CPU", "GPU")) else {}


def _openvino_precision(settings: Mapping[str, str], device: str) -> str | None:
    hint = properties(settings.get(LOAD_CONFIG, "{}")).get(device, {}).get(_PRECISION_HINT)
    return None if hint is None else str(hint).lower()


def _ggml(threads: int, _device: str) -> dict[str, str]:
    """Return the settings of ggml; left to itself it rounds weights to fp16, and takes an input for unchanged by some of its values."""
    return {"threads": str(threads), "device": "cpu", "weights": "f32", "sticky": "0"}


def _ggml_uses_gpu(settings: Mapping[str, str]) -> bool:
    return settings["device"] != "cpu"


@dataclass(frozen=True, slots=True)
class PlugInPackage:
    """A package that brings a provider; `settings` are the provider's own for a number of threads on a device by its name (`GPU.1`).

    `f32_on` are the kinds of device on which it computes in the file's precision by itself, unless `precision` returns what the settings
    state. `uses_gpu` tells whether it computes on a GPU of its own choice, whatever devices it names, `device_setting` by which setting.
    """

    module: str
    provider: str
    path_function: str = "get_library_path"
    settings: Callable[[int, str], Mapping[str, str]] = lambda _threads, _device: {}
    variables: Mapping[str, str] = field(default_factory=dict)
    f32_on: tuple[str, ...] = ("cpu",)
    precision: Callable[[Mapping[str, str], str], str | None] = lambda _settings, _device: None
    uses_gpu: Callable[[Mapping[str, str]], bool] = lambda _settings: False
    device_setting: str = ""


PACKAGES = {
    "openvino-ep": PlugInPackage(
        "onnxruntime_ep_openvino", "OpenVINOExecutionProvider", settings=_openvino, precision=_openvino_precision
    ),
    "ggml-ep": PlugInPackage(
        "onnxruntime_ggml", "ggml", "library_path",
        settings=_ggml,
        precision=lambda settings, _device: None if _ggml_uses_gpu(settings) else settings["weights"],
        uses_gpu=_ggml_uses_gpu,
        device_setting="device",
        # Else it writes a line for each step to standard output.
        variables={"ORT_GGML_LOG": "error"},
    ),
    "qnn-ep": PlugInPackage("onnxruntime_qnn", "QNNExecutionProvider"),
    "webgpu-ep": PlugInPackage("onnxruntime_ep_webgpu", "WebGpuExecutionProvider", f32_on=("cpu", "gpu"), uses_gpu=lambda _settings: True),
}  # fmt: skip
# Provider libraries that this process has registered, and the names of the providers in each.
_registered: dict[str, frozenset[str]] = {}


@dataclass(frozen=True, slots=True)
class PlugInChoice:
    """The plug-in that a backend names: `openvino-ep`, or with its kind of device `openvino-ep:npu`."""

    backend: str
    name: str
    provider: str
    device: str
    library: str
    package: PlugInPackage | None

    def devices(self, runtime_library: RuntimeLibrary) -> list[Any]:
        """Return the device (OrtEpDevice) on which the provider is to run, in a list: the first of its kind."""
        if not hasattr(runtime_library.module, "register_execution_provider_library"):
            raise UnavailableError(
                f"{runtime_library.package} {runtime_library.version} takes no plug-in providers: pip install 'onnxruntime>=1.23'"
            )
        library = _library_of(self.package) if self.package and not self.library else self.library
        providers = _register(self.provider, library, runtime_library)
        if self.provider not in providers:
            remainder = f", but of {', '.join(sorted(providers))}" if providers else ""
            raise UnavailableError(
                f"the provider library {library!r} finds no device of {self.provider} on this machine{remainder}: check the driver, "
                "and whether the provider supports this maker's processors"
            )
        devices = [device for device in runtime_library.module.get_ep_devices() if device.ep_name == self.provider]
        kinds = sorted({_kind(device) for device in devices})
        takes_any = self.package is not None and self.package.device_setting
        if self.device not in kinds and (self.device or len(kinds) > 1) and not takes_any:
            raise UnavailableError(
                f"{self.name} finds {', '.join(kinds)} here{f', no {self.device}' if self.device else ''}: choose "
                f"{' or '.join(f'--backend {self.name}:{kind}' for kind in kinds)}"
            )
        return [device for device in devices if self.device in {"", _kind(device)}][:1]

    def settings(self, threads: int, devices: list[Any], of_user: Mapping[str, str]) -> dict[str, str]:
        """Return the provider's settings: those of its package for this number of threads, then the user's, which leave the rest as it is.

        Raises:
            ConfigError: the user's load_config is no JSON of properties by device, or the user's settings hold threads.
        """
        settings = {**(self.package.settings(threads, _name(devices[0])) if self.package else {})}
        if settings:
            refuse_threads(self.name, of_user)
        if LOAD_CONFIG not in settings or LOAD_CONFIG not in of_user:
            return {**settings, **of_user}
        merged = properties(settings[LOAD_CONFIG])
        for device, of_device in properties(of_user[LOAD_CONFIG]).items():
            refuse_threads(self.name, of_device)
            merged[device] = merged.get(device, {}) | of_device
        return {**settings, **of_user, LOAD_CONFIG: json.dumps(merged)}

    @property
    def threads_reason(self) -> str | None:
        """Why nobody knows how many threads the provider computes with: what a package takes is known."""
        return None if self.package else chosen_by(self.name)

    def recorded_backend(self, devices: list[Any], settings: Mapping[str, str]) -> str:
        """Return the backend with what its first device computes in where that is not f32: `openvino-ep,f16`, `openvino-ep:npu,auto`."""
        package = self.package
        kind = "gpu" if package and package.uses_gpu(settings) else _kind(devices[0])
        set_precision = package.precision(settings, _name(devices[0])) if package else None
        computed = set_precision or ("f32" if package and kind in package.f32_on else "auto")
        return self.backend if computed == "f32" else f"{self.backend},{computed}"

    def add_to(self, session_options: Any, devices: list[Any], settings: dict[str, str], runtime_library: RuntimeLibrary) -> None:
        """Choose the provider for the sessions of these options; raises UnavailableError if it refuses a device or a setting."""
        try:
            session_options.add_provider_for_devices(devices, settings)
        except errors_of(runtime_library)[0] as error:
            raise UnavailableError(f"{self.name} refuses its devices or settings {settings}: {reason_of(error)}; change them") from error

    def facts(self, devices: list[Any], settings: Mapping[str, str]) -> dict[str, str]:
        """Return what a record holds of the provider: its devices as it describes them, or the GPUs among which it chooses."""
        if self.package and self.package.uses_gpu(settings):
            return vulkan.gpu_facts()
        words = (f"{_kind(device)} {device.ep_metadata.get('FULL_DEVICE_NAME') or device.device.vendor}" for device in devices)
        return {"provider_devices": "; ".join(dict.fromkeys(words))}

    def with_version(self, runtime_library: RuntimeLibrary, devices: list[Any]) -> RuntimeLibrary:
        """Return the library with both versions, `1.31.1+1.8.1`: the release of either may change a figure."""
        version = str(devices[0].ep_metadata.get("version", "")).partition("+")[0]
        return replace(runtime_library, version=f"{runtime_library.version}+{version}") if version else runtime_library


def choose(backend: str, settings: Mapping[str, str]) -> PlugInChoice | None:
    """Return the plug-in that a backend names, None where it names a provider of ONNX Runtime's own build.

    Raises:
        ConfigError: the kind of device is none, or the package takes it by a setting.
        UnavailableError: the package that brings it is not installed.
    """
    name, _, device = backend.removesuffix(",cpu").partition(":")
    named, library = PACKAGES.get(name), settings.get(LIBRARY, "")
    package = named or next((package for package in PACKAGES.values() if package.provider == name), None) if library else named
    if package is None and not library:
        return None
    if device and device not in _DEVICES:
        raise ConfigError(f"backend {backend!r} has no device {device!r}: {near(device, _DEVICES)}")
    label = name if named else name.removesuffix("ExecutionProvider").lower()
    if device and package and package.device_setting:
        setting = f"{label}.{package.device_setting} = {device!r}"
        raise ConfigError(f"backend {backend!r}: {label} takes its device by a setting: choose --backend {name}, with {setting}")
    if package and not library and find_spec(package.module) is None:
        raise UnavailableError(f"no {package.module} is installed, which brings {name}; to install it: {install_command(name)}")
    provider = package.provider if package else name
    if passed_by := next((key for key in settings if key.startswith(f"ep.{provider.lower()}.")), None):
        raise ConfigError(f"{passed_by} would be overwritten: set {label}.{passed_by.rpartition('.')[2]}")
    return PlugInChoice(f"{label}:{device}" if device else label, label, provider, device, library, package)


def _library_of(package: PlugInPackage) -> str:
    for variable, value in package.variables.items():
        os.environ.setdefault(variable, value)
    try:
        return str(getattr(import_module(package.module), package.path_function)())
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise UnavailableError(f"{package.module} is here but gives no provider library: {one_line(error)}; install it again") from error


def _register(provider: str, library: str, runtime_library: RuntimeLibrary) -> frozenset[str]:
    """Register a provider library, once in a process; return the names of the providers that it finds devices of."""
    if library not in _registered:
        before = {device.ep_name for device in runtime_library.module.get_ep_devices()}
        try:
            # Some name their provider as they are registered.
            runtime_library.module.register_execution_provider_library(provider, library)
        except errors_of(runtime_library)[0] as error:
            raise UnavailableError(
                f"ONNX Runtime cannot register the provider library {library!r}: {reason_of(error)}; give the .so of a plug-in provider"
            ) from error
        _registered[library] = frozenset(device.ep_name for device in runtime_library.module.get_ep_devices()) - before
    return _registered[library]


def properties(load_config: str) -> dict[str, dict[str, Any]]:
    """Return the properties of each device in OpenVINO's `load_config`; raises ConfigError if they are none."""
    try:
        return decode_json(load_config, dict[str, dict[str, Any]])
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f'load_config {load_config!r}: {error}; give the properties of each device as JSON: {{"CPU": {{"NUM_STREAMS": "1"}}}}'
        ) from error


def _name(device: Any) -> str:
    """Return the device's name as OpenVINO has it, by which it takes properties: `GPU`, or `GPU.1` of several."""
    return str(device.ep_metadata.get("ov_device") or _kind(device).upper())


def _kind(device: Any) -> str:
    return str(device.device.type.name).lower()
