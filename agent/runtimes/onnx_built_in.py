"""ONNX Runtime's built-in providers that have threads of their own, or compute in another precision than the file's.

Source: onnxruntime.ai/docs/execution-providers (OpenVINO, XNNPACK, TensorRT, QNN, ACL). Of these OpenVINO was run, on a CPU.
"""

from collections.abc import Mapping

from edgemeter.agent.runtimes.onnx_plug_in import refuse_threads

# By which setting a provider takes its threads; left to itself OpenVINO takes 8, XNNPACK 1.
_THREADS = {"openvino": "num_of_threads", "xnnpack": "intra_op_num_threads"}
# Settings that let a provider compute in less.
_LESS = {
    "tensorrt": {"trt_int8_enable": "int8", "trt_fp16_enable": "f16", "trt_bf16_enable": "bf16"},
    "acl": {"enable_fast_math": "auto"},
}
_YES = {"1", "true"}


def provider_settings(name: str, threads: int, of_user: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the provider of this short name: its threads, then the user's; raises ConfigError if these hold threads."""
    refuse_threads(name, of_user)
    is_on_cpu = name in _THREADS and of_user.get("device_type", "CPU") == "CPU"
    return {_THREADS[name]: str(threads), **of_user} if is_on_cpu else dict(of_user)


def computed_precision(name: str, settings: Mapping[str, str]) -> str:
    """Return what the provider computes floats in, as a backend names it: `f32`, `f16`, ...; `auto` where it chooses."""
    if name == "openvino":
        device = "unknown" if "load_config" in settings else settings.get("device_type", "CPU")
        on_gpu = {"FP16": "f16", "FP32": "f32"}.get(settings.get("precision", "FP16").upper(), "auto")
        return "f32" if device == "CPU" else on_gpu if device.startswith("GPU") else "auto"
    if name == "qnn":
        return "f32" if "cpu" in settings.get("backend_type", settings.get("backend_path", "htp")).lower() else "auto"
    lower_precisions = [computed for setting, computed in _LESS.get(name, {}).items() if settings.get(setting, "").lower() in _YES]
    return lower_precisions[0] if lower_precisions else "f32"
