"""ONNX Runtime's built-in providers that have threads of their own, or compute in another precision than the file's.

Source: onnxruntime.ai/docs/execution-providers (OpenVINO, XNNPACK, CUDA, TensorRT, QNN, ACL). Of these OpenVINO was run, on a CPU.
"""

import os
from collections.abc import Iterable, Mapping

from edgemeter.agent.runtimes.onnx_plug_in import LOAD_CONFIG, chosen_by, properties, refuse_threads

# By which setting a provider takes its threads; left to itself OpenVINO takes 8, XNNPACK 1.
_THREADS = {"openvino": "num_of_threads", "xnnpack": "intra_op_num_threads"}
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
    for settings in (of_user, *properties(of_user.get(LOAD_CONFIG, "{}")).values()):
        refuse_threads(name, settings)
    # As the provider has it: of several devices too (`HETERO:GPU,CPU`).
    return {_THREADS[name]: str(threads), **of_user} if "CPU" in of_user.get("device_type", "CPU") else dict(of_user)


def session_configuration(names: Iterable[str]) -> dict[str, str]:
    """Return what sessions are set to for these providers: XNNPACK has threads of its own, whose cores idle ones that spin would take."""
    return {"session.intra_op.allow_spinning": "0"} if "xnnpack" in names else {}


def threads_reason(name: str, settings: Mapping[str, str]) -> str | None:
    """Return why nobody knows how many threads the provider computes with; None where that is known."""
    is_known = settings.get("device_type") != "AUTO" if name in _THREADS else name in _WITHOUT_THREADS
    return None if is_known else chosen_by(name)


def computed_precision(name: str, settings: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> str:
    """Return what the provider computes floats in, as a backend names it: `f32`, `f16`, ...; `auto` where it chooses."""
    if name == "openvino":
        device = "unknown" if "load_config" in settings else settings.get("device_type", "CPU")
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
