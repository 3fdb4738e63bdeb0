"""Facts about names: what people write in many ways is one model, and what looks alike is not."""

import pytest

from edgemeter.collector.published.name_matching import (
    device_name,
    is_one_precision,
    model_name,
    power_mode_in,
    power_mode_name,
    runtime_name,
)

MODELS = (
    ("YOLO11n", "yolo11n_fp32.onnx", "YOLOv11n 640"),
    ("Llama 3.2 3B", "llama3.2:3b", "meta-llama/Llama-3.2-3B-Instruct-Q4_K_M.gguf", "Llama 3.2 3B Q4"),
    ("MobileNetV2", "mobilenet_v2_1.0_224_quant_edgetpu.tflite", "mobilenet-v2"),
    ("Qwen2.5-VL-3B", "qwen2.5vl:3b"),
    ("deepseek-r1:1.5b", "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"),
    ("deepseek-r1:70b", "DeepSeek-R1-Distill-Llama-70B"),
    ("Qwen2.5 7B", "Qwen/Qwen2.5-7B-Instruct-GGUF", "Qwen2.5-7B-Instruct-AWQ", "Qwen2.5-7B-Instruct-GPTQ-Int4"),
    ("tinyllama", "TinyLlama-1.1B-Chat-v1.0"),
    ("yolov8n", "yolov8n_openvino_model", "yolov8n_ncnn_model/"),
)
DEVICES = (
    ("Raspberry Pi 5", "Raspberry Pi 5 Model B Rev 1.0", "RPi5 8GB", "Pi 5 (16 GB)"),
    ("Jetson Orin Nano Super", "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit", "Orin Nano 8 GB"),
    ("Jetson AGX Orin 64GB", "NVIDIA Jetson AGX Orin Developer Kit"),
    ("Jetson Thor", "NVIDIA Jetson AGX Thor Developer Kit"),
    ("Jetson Orin AGX", "Jetson AGX Orin", "AGX Orin 64 GB (30W)"),
    ("RTX 4060 Ti", "RTX4060Ti 16GB", "GeForce RTX 4060 Ti"),
    ("NVIDIA H100 PCIe", "H100 SXM5 80GB", "H100 NVL"),
    ("Raspberry Pi 3", "Raspberry Pi 3 Model B Plus Rev 1.3", "RPi 3B"),
    ("Raspberry Pi AI HAT+ 2", "Hailo-10H", "Raspberry Pi 5 with AI HAT+ 2"),
)
APART = ("Raspberry Pi 4", "Orange Pi 5", "Raspberry Pi 5 + Hailo-8L", "Raspberry Pi AI HAT+ 2", "Jetson Nano", "Jetson Orin NX")


@pytest.mark.parametrize("names", MODELS)
def test_a_model_is_itself_by_any_spelling(names):
    """Files, tags of a registry and titles of pages."""
    assert len({model_name(name).name for name in names}) == 1


def test_another_size_or_version_is_another_model():
    """A family without a size is none of its members, and two numbers never run together."""
    names = ["yolo11n", "yolo11s", "yolov8n", "llama3.2:1b", "llama3.2:3b", "llama3.2", "Llama 3 23B", "smollm-135m", "smollm2-135m"]
    names += [
        "deepseek-r1:7b",
        "DeepSeek-R1-Distill-Llama-8B",
        "whisper",
        "whisper-base",
        "ViT-B/16",
        "ViT-B/32",
        "mobilenet",
        "mobilenet_edgetpu",
    ]
    assert len({model_name(name).name for name in names}) == len(names)


def test_a_name_states_precision_and_input():
    """They are conditions, not the model."""
    name = model_name("YOLOv8n INT8 640")
    assert (name.name, name.precision, name.input_size) == ("yolov8n", "int8", "640")
    assert model_name("Llama-3.2-3B-Instruct-Q4_K_M.gguf").precision == "q4_k_m"


@pytest.mark.parametrize("names", DEVICES)
def test_a_board_is_itself_by_any_spelling(names):
    """Whatever memory, revision or mode the name states."""
    assert len({device_name(name).name for name in names}) == 1


def test_what_is_added_to_a_board_makes_another_device():
    """A figure of an accelerator is none of the board's processor."""
    names = {device_name(name).name for name in (*APART, "Raspberry Pi 5", "Jetson Orin Nano")}
    assert len(names) == len(APART) + 2
    assert device_name("Raspberry Pi 5 16 GB").memory_gb == 16


@pytest.mark.parametrize(
    ("first", "second", "is_one"),
    [
        ("INT8", "int8", True), ("w8a8", "int8", True), ("float32", "fp32", True), ("F16", "bf16", True), ("Q4", "q4_k_m", None),
        ("4 bit", "q4_k_m", None), ("fp8", "int8", False), ("Q4_0", "Q4_K_M", False), ("int8", "fp32", False), ("NVFP4", "int4", False),
    ],
)  # fmt: skip
def test_precisions_are_one_class_or_as_many_bits_or_another(first, second, is_one):
    """None: as far as the names say."""
    assert is_one_precision(first, second) is is_one
    assert is_one_precision(second, first) is is_one


def test_runtimes_and_power_modes_have_many_spellings():
    """Versions are no part of the name."""
    assert {runtime_name(name) for name in ("ONNX Runtime 1.22", "onnx", "onnxruntime")} == {"onnx"}
    assert {runtime_name(name) for name in ("TFLite", "LiteRT 2.1", "ai-edge-litert")} == {"litert"}
    assert runtime_name("llama.cpp b4585") == runtime_name("llama")
    assert power_mode_name("MODE_25W") == power_mode_name("25 W")


def test_a_power_mode_is_read_where_it_is_one():
    """In the name of a Jetson, or as a mode; what a board draws, or a supply gives, is none."""
    assert power_mode_in("Jetson Orin Nano (7W)", "") == "7 W"
    assert power_mode_in("a board", "in the 15W mode") == power_mode_in("a board", "MODE_15W") == "15 W"
    assert power_mode_in("Jetson Orin Nano", "MAXN_SUPER") == "MAXN_SUPER"
    assert power_mode_in("Raspberry Pi 5 (27 W supply)", "draws 5 W") is None
