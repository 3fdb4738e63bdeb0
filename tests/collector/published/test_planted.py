"""Planted impossibilities are found, each by its rule; honest figures, as their sources state them, are accused by none.

The arithmetic is worked out on paper and stands here as literals.
"""

import random

import pytest

from edgemeter.collector.published.row import fault
from edgemeter.collector.published.rules import evidence_of
from tests.fixtures.published_rows import published_row

PI = "Raspberry Pi 5 8GB"
CPU = {"backend": "cpu"}


def judged(*rows):
    """Return the evidence on the first row, the others being of its case."""
    for row in rows:
        assert fault(row) is None
    assert len({row.case for row in rows}) == 1
    return evidence_of(rows[0], rows[1:])


def row_of(figure, value, model, device, **fields):
    """Return a case of one row."""
    return (published_row(figure, value, model, device, **fields),)


def several(model, device, *figures, **fields):
    """Return a case of several rows: (figure, value), or (figure, value, fields of the row)."""
    return tuple(
        published_row(figure, value, model, device, **(fields | dict(*fields_of_row))) for figure, value, *fields_of_row in figures
    )


# Name: the case, the rule that finds it, the two sides by hand.
PLANTED = {
    # 3,212,749,824 weights x 4 bits = 1,606 MB; x 20 = 32.13 GB/s; 4,266 MT/s x 4 bytes = 17.06 GB/s.
    "3B at 20 tokens/s on a HAT": (
        row_of("tokens", 20.0, "Llama 3.2 3B", "Raspberry Pi AI HAT+ 2", precision="4-bit"), "decode-above-bandwidth", 32.13, 17.1,
    ),
    # Even the lower end of the range: 18 x 1.606 = 28.9.
    "a range all above": (
        row_of("tokens", 20.0, "Llama 3.2 3B", "Raspberry Pi 5 with AI HAT+ 2", precision="int4", low=18.0, high=22.0),
        "decode-above-bandwidth", 32.13, 17.1,
    ),
    # 7,504,924,672 weights read x 4.5 bits = 4,221.5 MB; x 12 = 50.66 GB/s; LPDDR4X-4267 x 4 bytes = 17.07.
    "8B on a Pi's cores": (
        row_of("tokens", 12.0, "llama3.1:8b", PI, precision="Q4_K_M", **CPU), "decode-above-bandwidth", 50.66, 17.1,
    ),
    # 1 / 0.02 s = 50 steps/s x 2 x 3,075,098,624 bytes = 307.5 GB/s; 6,400 MT/s x 16 bytes = 102.4.
    "time per token of a 3B in half precision": (
        row_of("tpot", 20.0, "SmolLM3-3B", "Jetson Orin Nano Super 8GB", precision="fp16", backend="gpu"),
        "decode-above-bandwidth", 307.5, 102.4,
    ),
    # Eight at once: 2,000 / 8 = 250 steps/s x 4 bits x 7,110,660,096 = 888.8 GB/s; 273.
    "a batch of eight above it too": (
        row_of("tokens", 2000.0, "Mistral 7B", "Jetson AGX Thor", precision="int4", batch=8, speculative="off"),
        "decode-above-bandwidth", 888.8, 273.0,
    ),
    # 8,713 tokens/s x 2 x 6,979,588,096 = 121.6 Top/s; 4 cores x 3.24 GHz x 64 = 829 Gop/s.
    "a prompt faster than the cores": (
        row_of("prefill-tokens", 8713.0, "Llama 3.1 8B", PI, precision="Q4_0", **CPU), "prefill-above-compute", 121_626, 829.4,
    ),
    # 28.6 Gop x 2,000 = 57.2 Top/s; 26 Top/s x 2.25 = 58.5 would be Winograd's: 2,100 x 28.6 = 60.06.
    "YOLOv8s at 2,100 a second on 26 TOPS": (
        row_of("throughput", 2100.5, "YOLOv8s", "Hailo-8", precision="INT8", input_size="640x640", unit="FPS"),
        "work-above-compute", 60_074, 26_000,
    ),
    # 6.02 W / 30.39 tokens/s = 198 mJ.
    "a tenth of the energy": (
        several("a 1B", "Raspberry Pi 5", ("energy-output-token", 0.0207), ("power", 6.02), ("tokens", 30.39), **CPU),
        "energy-below-power", 20.7, 198.1,
    ),
    # 6,370 W for 6.37: 40 W x 1.4 at the wall = 56.
    "milliwatts called watts": (row_of("power", 6370.0, "Qwen2.5-1.5B", "Raspberry Pi 5"), "power-outside-board", 6370, 56),
    # 0.27 mJ x 11.4 a second = 3.1 mW at the input of a board that draws 1 W at least.
    "microwatt-hours called milliwatt-hours": (
        several("YOLO11n", "Raspberry Pi 5", ("energy", 0.27, {"scope": "board-input"}), ("throughput", 11.4)),
        "power-outside-board", 0.0031, 1.0,
    ),
    "AP over four images": (row_of("accuracy", 61.0, "YOLO11n", PI, images=4), "too-few-items", 4, 100),
    "p99 of fifty": (row_of("latency-p99", 120.0, "YOLO11n", PI, count=50), "unsupported-percentile", 50, 662),
    "p99 below the median": (
        several("YOLO11n", PI, ("latency", 90.0, {"statistic": "median"}), ("latency-p99", 85.2, {"count": 5000})),
        "percentiles-cross", 90, 85.2,
    ),
    # 0.5 GB module with 3 GB in use.
    "more memory than there is": (row_of("memory", 9800.0, "YOLOv8x", PI), "memory-beyond-ram", 9800, 8590),
    "an accuracy of 139%": (row_of("accuracy", 139.5, "ResNet50", PI, images=5000, accuracy_metric="top-1"), "outside-metric", 1.395, 1.0),
    # 1 / 50 ms = 20 tokens/s of one user.
    "a rate that its own time contradicts": (
        several("Phi-4-mini", "Jetson Orin Nano", ("tokens", 160.0), ("tpot", 50.0), batch=1, speculative="off"),
        "tokens-faster-than-their-time", 160, 20,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_impossibility_is_found(name):
    """By the rule that is meant, with both sides as worked out by hand, in one sentence."""
    rows, rule, value, limit = PLANTED[name]
    evidence = {entry.rule: entry for entry in judged(*rows)}
    assert evidence[rule].state == "impossible", evidence
    assert evidence[rule].value == pytest.approx(value, rel=0.01)
    assert evidence[rule].limit == pytest.approx(limit, rel=0.01)
    assert "\n" not in evidence[rule].sentence


PI_26484 = {"runtime": "llama.cpp", "software": "d73c1d6", "threads": 4, "clock_hz": 2.4e9, "backend": "cpu", "output_tokens": 256}


def _pi_26484(quantisation, tokens_per_s, power_w, joule):
    figures = (("energy-output-token", joule), ("tokens", tokens_per_s), ("power", power_w, {"scope": "soc-rails"}))
    return several("model of the thread", "Raspberry Pi 5", *figures, precision=quantisation, **PI_26484)


HONEST = {
    **{
        f"llama.cpp#26484 {row[0]}": _pi_26484(*row)
        for row in (
            ("Q2_K", 30.39, 6.02, 0.2065), ("Q3_K_M", 28.39, 5.66, 0.2120), ("Q4_K_M", 25.77, 6.37, 0.2585),
            ("Q5_K_M", 23.23, 6.68, 0.2994), ("Q8_0", 19.87, 5.55, 0.2924),
        )
    },
    "Geerling, llama3.2:3b on a Pi 5": several(
        "llama3.2:3b", PI, ("tokens", 4.61), ("power", 13.9, {"statistic": "max", "scope": "wall-ac"}), precision="Q4_K_M", **CPU
    ),
    "Geerling, llama2:13b": row_of("tokens", 1.36, "llama2:13b", "Pi 5 - 16GB", precision="Q4_0", **CPU),
    "Geerling, a card on a CM5": row_of(
        "tokens", 338.55, "tinyllama-1.1b-1t-openorca.Q4_K_M.gguf", "Raspberry Pi CM5 16GB", backend="Vulkan", runtime="llama.cpp"
    ),
    "LiteRT-LM, Gemma on a Pi 5": several(
        "Gemma-4-E2B", "Raspberry Pi 5 16GB", ("tokens", 8.0), ("prefill-tokens", 133.0), ("ttft", 7800.0), ("memory", 1546.0),
        precision="mixed 2/4/8 bit", prompt_tokens=1024, **CPU,
    ),
    "LiteRT-LM, its first token": several(
        "Gemma-4-E2B", "Raspberry Pi 5 16GB", ("ttft", 7800.0), ("prefill-tokens", 133.0), ("tokens", 8.0), prompt_tokens=1024, **CPU
    ),
    "arXiv 2603.23640, Hailo-10H": several(
        "Qwen2.5-1.5B", "Hailo-10H", ("tokens", 6.9), ("power", 2.0), precision="4 bit"
    ),
    "arXiv 2603.23640, RTX 4050": several(
        "Qwen2.5-1.5B", "NVIDIA GeForce RTX 4050 Laptop", ("tokens", 131.7), ("power", 34.1), precision="4 bit"
    ),
    "NVIDIA, Orin Nano Super 3B": row_of("tokens", 43.07, "Llama 3.2 3B", "Jetson Orin Nano Super", precision="INT4", runtime="MLC"),
    "NVIDIA, Orin Nano Super 8B": row_of("tokens", 19.14, "Llama 3.1 8B", "Jetson Orin Nano Super", precision="INT4", runtime="MLC"),
    "NVIDIA, Orin Nano Super Gemma": row_of("tokens", 34.97, "Gemma 2 2B", "Jetson Orin Nano Super", precision="INT4", runtime="MLC"),
    "TensorRT Edge-LLM on Thor": row_of("tokens", 170.4, "Qwen3-1.7B", "Jetson AGX Thor", precision="NVFP4", batch=1),
    "TensorRT Edge-LLM on Thor, eight": row_of("tokens", 798.8, "Qwen3-1.7B", "Jetson AGX Thor", precision="NVFP4", batch=8),
    # 370 tokens in 13.9 ms: 26,619 tokens/s.
    "TensorRT Edge-LLM on Thor, prompt": row_of("ttft", 13.9, "Qwen3-1.7B", "Jetson AGX Thor", precision="NVFP4", prompt_tokens=370),
    "rknn-llm, RK3588": several(
        "Qwen2.5-1.5B", "RK3588", ("tokens", 16.69), ("ttft", 378.0), precision="w8a8", prompt_tokens=128, backend="npu"
    ),
    **{
        f"Geerling, {model} on {device}": several(
            model, device, ("tokens", rate), ("power", watts, {"statistic": "max", "scope": "wall-ac"}), backend="GPU", precision="Q4_K_M"
        )
        for model, device, rate, watts in (
            ("llama3.2:3b", "Intel 265K Custom PC (Nvidia RTX 4090)", 334.67, 261.9),
            ("llama3.2:3b", "Pi CM5 - 16GB (Nvidia RTX 4090)", 235.61, 290.2),
            ("llama3.2:3b", "Raspberry Pi 5 with RTX 4090", 235.61, 290.2),
            ("llama3.2:3b", "Dell Pro Max with GB10 (Nvidia Spark)", 97.93, 128.5),
            ("llama3.2:3b", "Pi 5 - 8GB (AMD RX 6700 XT) 12GB", 49.01, 94.0),
            ("llama3.2:3b", "Pi 5 - 8GB (AMD Pro W7700)", 56.14, 145.0),
            ("deepseek-r1:14b", "Dell Pro Max with GB10 (Nvidia Spark)", 23.92, 138.4),
            ("gpt-oss:20b", "Intel 265K Custom PC (Nvidia RTX 4090)", 279.65, 509.1),
        )
    },
    **{
        f"rknn-llm, {model} {precision} on {device}": several(
            model, device, ("tokens", rate), ("ttft", ttft_ms), ("memory", memory_mb), precision=precision, prompt_tokens=128
        )
        for model, device, precision, ttft_ms, rate, memory_mb in (
            ("Qwen2 0.5B", "RK3588", "w8a8", 145.90, 41.58, 669.56), ("Qwen3 0.6B", "RK3588", "w8a8", 199.09, 32.91, 791.11),
            ("TinyLLAMA 1.1B", "RK3576", "w4a16", 543.68, 19.71, 601.09), ("Gemma2 2B", "RK3576", "w4a16_g128", 1312.15, 8.27, 1629.59),
            ("DeepSeekOCR 3B(A570M)", "RK3588", "w8a8", 701.21, 31.60, 3066.66), ("Gemma4 E2B", "RK3588", "w8a8", 599.06, 11.12, 2498.70),
        )
    },
    **{
        f"NVIDIA, Orin Nano Super {model}": row_of("tokens", rate, model, "Jetson Orin Nano Super 8GB", precision="INT4")
        for model, rate in (("Qwen2.5 7B", 21.75), ("Gemma 2 9B", 9.21), ("Phi 3.5 mini", 38.1), ("SmolLM2 1.7B", 64.5))
    },
    "vLLM on AGX Orin, 35B-A3B": several(
        "Qwen3.5-35B-A3B-GPTQ-Int4", "Jetson AGX Orin 64GB", ("tokens", 31.4), ("prefill-tokens", 2001.0), backend="gpu"
    ),
    # A prompt from a cache: 75 ms where TensorRT took 420.
    "hokwangchoi, vLLM's first token": several(
        "Qwen3-1.7B", "Jetson Orin Nano 8GB", ("ttft", 75.0), ("prefill-tokens", 2100.0), prompt_tokens=1000, backend="gpu"
    ),
    "Ultralytics, NCNN on a Pi 5": row_of("latency", 88.026, "YOLO11n", "Raspberry Pi 5", unit="ms/im", conditions="640 x 640", **CPU),
    "Ultralytics, OpenVINO on a Pi 5": row_of("latency", 81.192, "YOLO11n", "Raspberry Pi 5", unit="ms/im", conditions="imgsz=640"),
    "Ultralytics, TensorRT on AGX Orin": row_of("latency", 2.45, "YOLO11n", "Jetson AGX Orin", precision="INT8", input_size="640"),
    "Hailo's zoo, eight at once": several(
        "yolov8n", "Hailo-8", ("throughput", 1036.0, {"unit": "FPS"}), ("latency", 6.0), batch=8, precision="int8", gop=8.7
    ),
    "Hailo's zoo, CenterNet": row_of("throughput", 177.0, "centernet_resnet18", "HAILO8L", unit="FPS", batch=8, gop=31.2),
    "RKNN's zoo": row_of("throughput", 73.5, "yolov8n", "RK3588 (single core)", unit="FPS", precision="INT8", input_size="640x640"),
    "Coral, MobileNet": row_of("latency", 2.4, "MobileNet v1", "Coral Dev Board", precision="int8"),
    "arXiv 2409.16808, SSD in mWh": several(
        "SSD MobileNet v1", "Jetson Orin Nano", ("energy", 0.01, {"unit": "mWh", "scope": "board-input"}), ("latency", 16.0)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_row_is_not_accused(name):
    """No figure of the case is called impossible."""
    rows = HONEST[name]
    for row in rows:
        evidence = evidence_of(row, [companion for companion in rows if companion is not row])
        assert [entry for entry in evidence if entry.state == "impossible"] == []


@pytest.mark.parametrize(
    ("name", "required"),
    [
        # 3,212,749,824 x 4.5 / 8 = 1,807 MB x 4.61.
        ("Geerling, llama3.2:3b on a Pi 5", 8.331),
        # 1,543,714,304 / 2 = 771.9 MB x 6.9, and x 131.7.
        ("arXiv 2603.23640, Hailo-10H", 5.326),
        ("arXiv 2603.23640, RTX 4050", 101.65),
        # 1,606 MB x 43.07.
        ("NVIDIA, Orin Nano Super 3B", 69.19),
        # 1,720,574,976 / 2 = 860.3 MB x 798.8 / 8.
        ("TensorRT Edge-LLM on Thor, eight", 85.90),
    ],
)
def test_an_honest_rate_is_plausible_with_its_arithmetic(name, required):
    """The bandwidth that it needs is worked out, and held."""
    evidence = {entry.rule: entry for entry in judged(*HONEST[name])}["decode-above-bandwidth"]
    assert evidence.state == "plausible"
    assert evidence.value == pytest.approx(required, rel=0.001)


# Bandwidth, GB/s; weights that a token reads, 10^9; bits of a weight as files have them: none of it from the tables that judge.
_BOARDS = {"Raspberry Pi 5": 17.07, "Raspberry Pi 4 Model B": 12.8, "Jetson Orin Nano Super": 102.4, "Jetson AGX Orin": 204.8, "RK3588": 44}
_MODELS = {
    "Llama 3.2 1B": 1.236, "Llama-3.2-3B-Instruct": 3.213, "qwen2.5:0.5b": 0.494, "Mistral-7B-v0.3": 7.114, "Gemma-3-1B-it": 1.0,
    "Phi-4-mini": 3.836,
}  # fmt: skip
_RAM = {"Raspberry Pi 5": 16, "Raspberry Pi 4 Model B": 8, "Jetson Orin Nano Super": 8, "Jetson AGX Orin": 64, "RK3588": 32}  # GB.
_FILES = {"Q4_K_M": 4.894, "Q8_0": 8.5, "int4": 4.13, "Q3_K_M": 3.996, "fp16": 16.0, "w8a8": 8.02, "Q4_0": 4.55, "mixed 4/8 bit": 4.9}


def test_no_rate_that_the_memory_gives_is_accused():
    """Made-up runs at up to all of the bandwidth, rounded to two digits or more, some as time per token, in batches, or with guesses."""
    draw = random.Random(39)  # noqa: S311
    for _ in range(3000):
        device, model, precision = draw.choice([*_BOARDS]), draw.choice([*_MODELS]), draw.choice([*_FILES])
        if _MODELS[model] * _FILES[precision] / 8 > _RAM[device]:
            continue
        users, guessed = draw.choice([1, 1, 1, 2, 2 if "Pi" in device else 8]), draw.choice([None, None, 2.4])
        steps_per_s = _BOARDS[device] * draw.uniform(0.3, 1.0) / (_MODELS[model] * _FILES[precision] / 8)
        rate = steps_per_s * users * (guessed or 1)
        fields = {"precision": precision, "backend": draw.choice([None, "cpu" if "Pi" in device else "gpu"])}
        fields |= draw.choice([{"batch": users}, {"concurrency": users}, {"conditions": f"batch size {users}"}]) if users > 1 else {}
        fields |= {"speculative": "draft"} if guessed else {}
        digits = draw.choice([2, 3, 4])
        figures = (
            [("tokens", float(f"{rate:.{digits}g}"))]
            if draw.random() < 0.7 or users > 1
            else [("tpot", float(f"{1000 / rate:.{digits}g}"))]
        )
        rows = several(model, device, *figures, *([("step-tokens", guessed)] if guessed and draw.random() < 0.5 else []), **fields)
        accused = [entry for entry in judged(*rows) if entry.state == "impossible"]
        assert accused == [], (accused, rows[0])


# What the cores, or the engine, do in 16 bit, 10^9 operations/s, dense.
_PEAK = {"Raspberry Pi 5": 300, "Raspberry Pi 4 Model B": 110, "Jetson Orin Nano Super": 17_000, "Jetson AGX Orin": 42_000, "RK3588": 1500}


def test_no_first_token_that_the_parts_give_is_accused():
    """Made-up prompts of any length: bound by the one reading of the weights, or by the operations; half of them as a rate."""
    draw = random.Random(41)  # noqa: S311
    for _ in range(2000):
        device, model, precision = draw.choice([*_BOARDS]), draw.choice([*_MODELS]), draw.choice([*_FILES])
        weights, tokens = _MODELS[model], draw.choice([1, 8, 64, 512, 4096])
        if weights * _FILES[precision] / 8 > _RAM[device]:
            continue
        read = weights * _FILES[precision] / 8 / _BOARDS[device]
        seconds = max(read, tokens * 2 * weights / _PEAK[device]) / draw.uniform(0.3, 1.0)
        figure = draw.choice([("ttft", float(f"{1000 * seconds:.3g}")), ("prefill-tokens", float(f"{tokens / seconds:.3g}"))])
        fields = {"precision": precision, "prompt_tokens": tokens, "backend": draw.choice([None, "cpu" if "Pi" in device else "gpu"])}
        accused = [entry for entry in judged(*row_of(*figure, model, device, **fields)) if entry.state == "impossible"]
        assert accused == [], accused


def test_a_rate_well_beyond_the_memory_is_found():
    """One user, no guesses, 1.6 times what the memory gives: the bits of files are up to a fifth above those that are sure."""
    draw = random.Random(40)  # noqa: S311
    for _ in range(1000):
        device, model, precision = draw.choice([*_BOARDS]), draw.choice([*_MODELS]), draw.choice([*_FILES])
        rate = _BOARDS[device] * draw.uniform(1.6, 30) / (_MODELS[model] * _FILES[precision] / 8)
        rows = row_of("tokens", float(f"{rate:.3g}"), model, device, precision=precision, backend="cpu" if "Pi" in device else "gpu")
        assert "impossible" in {entry.state for entry in judged(*rows)}, rows[0]
