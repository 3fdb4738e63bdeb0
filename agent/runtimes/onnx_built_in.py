"""ONNX Runtime's built-in providers that have threads of their own, or compute in another precision than the file's.

Source: onnxruntime.ai/docs/execution-providers (OpenVINO, XNNPACK, CUDA, TensorRT, QNN, ACL). Of these OpenVINO was run, on a CPU.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.foreign_text import decode_json

_LOAD_CONFIG = "load_config"
# By which setting a provider takes its threads; left to itself OpenVINO takes 8, XNNPACK 1.
_THREADS = {"openvino": "num_of_threads", "xnnpack": "intra_op_num_threads"}
_REFUSED = {*_THREADS.values(), "INFERENCE_NUM_THREADS"}
# Those that compute in the session's threads, or on an accelerator.
_WITHOUT_THREADS = {"cpu", "acl", "cuda", "tensorrt", "qnn", "MIGraphXExecutionProvider"}
# Settings that let a provider compute in less; each that computes in f32 without them.
_LESS = {
    "cpu": {},
    "xnnpack": {},
    "acl": {"enable_fast_math": "auto"},
    "cuda": {"use_tf32": "tf32"},
    "tensorrt": {"trt_int8_enable": "int8", "trt_fp16_enable": "f16", "trt_bf16_enable": "bf16"},
}
_YES = {"1", "true"}


def provider_settings(name: str, threads: int, of_user: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the provider of this short name: its threads and f32, then the user's.

    Raises:
        ConfigError: the user's settings hold the threads that are set here, or a load_config that is no JSON of properties by device.
    """
    if name == "cuda":
        return {"use_tf32": "0", **of_user}
    if name not in _THREADS:
        return dict(of_user)
    for settings in (of_user, *_properties(of_user.get(_LOAD_CONFIG, "{}")).values()):
        if thread_settings := sorted(_REFUSED.intersection(settings)):
            raise ConfigError(f"{name} takes its threads from --threads: leave {thread_settings[0]} out")
    # As the provider has it: of several devices too (`HETERO:GPU,CPU`).
    return {_THREADS[name]: str(threads), **of_user} if "CPU" in of_user.get("device_type", "CPU") else dict(of_user)


def _properties(load_config: str) -> dict[str, dict[str, Any]]:
    """Return the properties of each device in OpenVINO's `load_config`; raises ConfigError if they are none."""
    try:
        return decode_json(load_config, dict[str, dict[str, Any]])
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f'load_config {load_config!r}: {error}; give the properties of each device as JSON: {{"CPU": {{"NUM_STREAMS": "1"}}}}'
        ) from error


def session_configuration(names: Iterable[str]) -> dict[str, str]:
    """Return what sessions are set to for these providers: XNNPACK has threads of its own, whose cores idle ones that spin would take."""
    return {"session.intra_op.allow_spinning": "0"} if "xnnpack" in names else {}


def threads_reason(name: str, settings: Mapping[str, str]) -> str | None:
    """Return why nobody knows how many threads the provider computes with; None where that is known."""
    is_known = settings.get("device_type") != "AUTO" if name in _THREADS else name in _WITHOUT_THREADS
    return None if is_known else f"{name} chooses how many it computes with, or its settings do"


def computed_precision(name: str, settings: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> str:
    """Return what the provider computes floats in, as a backend names it: `f32`, `f16`, ...; `auto` where it chooses."""
    if name == "openvino":
        device = "unknown" if _LOAD_CONFIG in settings else settings.get("device_type", "CPU")
        on_gpu = {"FP16": "f16", "FP32": "f32"}.get(settings.get("precision", "FP16").upper(), "auto")
        return "f32" if device == "CPU" else on_gpu if device.startswith("GPU") else "auto"
    if name == "qnn":
        return "f32" if "cpu" in settings.get("backend_type", settings.get("backend_path", "htp")).lower() else "auto"
    if name not in _LESS:
        return "auto"
    lower_precisions = [computed for setting, computed in _LESS[name].items() if settings.get(setting, "").lower() in _YES]
    # TensorRT has no setting for that.
    computed = lower_precisions[0] if lower_precisions else "tf32" if name == "tensorrt" else "f32"
    return "f32" if computed == "tf32" and environment.get("NVIDIA_TF32_OVERRIDE") == "0" else computed
