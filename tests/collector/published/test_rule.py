import pytest

from edgemeter.collector.published.rule import JudgedRow, largest, rounding, smallest
from tests.fixtures.published_rows import published_row


def facts(device="Raspberry Pi 5", **fields):
    """Return the facts of a row of a decoding rate."""
    return JudgedRow(published_row("tokens", 5.0, fields.pop("model", "Llama 3.2 3B"), device, **fields))


@pytest.mark.parametrize(
    ("value", "half"), [(19.87, 0.005), (4.6, 0.05), (7.0, 0.35), (13.0, 0.5), (100.0, 5.0), (88.026, 0.0005), (1036.0, 0.5), (0.31, 0.005)]
)
def test_a_figure_may_be_rounded_by_half_a_digit_and_never_by_more_than_5_percent(value, half):
    """So that honest rounding accuses nobody, and 100 is not 50 to 150."""
    assert rounding(value) == pytest.approx(half)


def test_a_range_counts_from_its_ends():
    """In our unit, and with their rounding."""
    row = published_row("latency", 20.0, "YOLO11n", "Raspberry Pi 5", unit="s", low=18.5, high=22.5)
    assert smallest(row) == pytest.approx(18_450)
    assert largest(row) == pytest.approx(22_550)


@pytest.mark.parametrize(
    ("fields", "users"),
    [
        ({"batch": 8}, 8), ({"concurrency": 4, "batch": 1}, 4), ({"conditions": "vLLM, batch size 16"}, 16),
        ({"conditions": "640 x 640, batch 1"}, 1),
        ({"conditions": "32 concurrent requests"}, 32), ({"conditions": "bs=2"}, 2), ({}, None),
        ({"conditions": "bsz 32"}, 32), ({"conditions": "64 sequences"}, None), ({"conditions": "32 simultaneous requests"}, 32),
        ({"conditions": "llama-server -np 32"}, 32), ({"conditions": "max_num_seqs 256"}, 256), ({"conditions": "1000 prompts"}, None),
    ],
)  # fmt: skip
def test_the_batch_is_taken_from_its_field_or_the_conditions(fields, users):
    """Not stated is None, not 1."""
    assert facts(**fields).users == users


@pytest.mark.parametrize(
    ("fields", "speculates"),
    [
        ({}, None), ({"speculative": "off"}, False), ({"speculative": "EAGLE-3"}, True), ({"conditions": "with a draft model"}, True),
        ({"conditions": "no speculative decoding"}, False), ({"model": "Qwen3-8B + Medusa"}, True),
        *(({"conditions": words}, True) for words in (
            "spec decoding with a 1B model", "ngram lookup", "prompt-lookup decoding", "multi token prediction", "assisted generation",
            "LayerSkip early exit", "1B draft", "with speculative decoding, no cache",
        )),
        *(({"conditions": words}, False) for words in ("no draft model", "without EAGLE", "speculative decoding disabled", "MTP off")),
        ({"conditions": "draft version of the page"}, None), ({"speculative": "disabled"}, False),
    ],
)  # fmt: skip
def test_speculation_is_taken_from_its_field_or_the_words(fields, speculates):
    """On, off, or not stated."""
    assert facts(**fields).speculates is speculates


@pytest.mark.parametrize(
    ("backend", "is_on_cpu"),
    [(None, None), ("cpu", True), ("CPU (4 threads)", True), ("XNNPACK", True), ("gpu", False), ("Vulkan", False), ("CPU+NPU", None)],
)
def test_the_backend_names_the_cores(backend, is_on_cpu):
    """Where both do, neither bound alone holds."""
    assert facts(backend=backend).is_on_cpu is is_on_cpu


@pytest.mark.parametrize(
    "conditions",
    [
        "continuous batching", "vllm bench throughput, 1000 prompts", "vLLM benchmark_throughput", "total throughput of 64 requests",
        "aggregate over all requests", "64 sequences",
    ],
)  # fmt: skip
def test_answers_are_decoded_together_in_many_words(conditions):
    """Where their number is not stated."""
    assert facts(conditions=conditions).is_of_many


@pytest.mark.parametrize("conditions", ["no batching", "total tokens 512", "1 requests", "without batching", "overall rate"])
def test_one_answer_at_a_time_is_none_of_many(conditions):
    """A word alone does not make a batch."""
    assert not facts(conditions=conditions).is_of_many


@pytest.mark.parametrize(
    ("device", "ram_gb"),
    [
        ("Raspberry Pi 5 8GB", 8), ("Raspberry Pi 5, 256 GB NVMe", None), ("Raspberry Pi 5 16 GB, 256 GB SSD", 16),
        ("Raspberry Pi 5 64GB", None), ("Pi 5 - 8GB (AMD RX 6700 XT) 12GB", None), ("Jetson Nano 4GB", 4),
    ],
)  # fmt: skip
def test_the_ram_of_a_name_is_one_that_it_is_sold_with(device, ram_gb):
    """And no disk's."""
    assert facts(device).named_ram_gb == ram_gb


def bound(device, **fields):
    """Return the bound of the memory, GB/s, or the first words of why there is none."""
    memory = facts(device, **fields).memory()
    return memory[:20] if isinstance(memory, str) else memory.value / 1000


@pytest.mark.parametrize(
    ("device", "fields", "expected"),
    [
        ("Raspberry Pi 5", {"backend": "cpu"}, 17.1),
        ("Raspberry Pi 5", {"backend": "Vulkan"}, "no bound of this boa"),
        ("Raspberry Pi 5 with eGPU", {}, "no bound of this boa"),
        ("Raspberry Pi 5 with eGPU", {"backend": "cpu"}, 17.1),
        ("Raspberry Pi 5", {"conditions": "Radeon RX 6700 over PCIe"}, "no bound of this boa"),
        ("Raspberry Pi 4 with AI HAT+ 2", {"backend": "cpu"}, 12.8),
        ("Raspberry Pi 4 with AI HAT+ 2", {"backend": "npu"}, 17.1),
        ("Raspberry Pi 4 with AI HAT+ 2", {}, 17.1),
        ("Raspberry Pi 5 with Hailo-8", {}, "no bound of this boa"),
        ("Jetson Orin Nano", {"backend": "gpu"}, 102.4),
        ("4 x Raspberry Pi 5", {}, 68.4),
        ("Raspberry Pi 5 cluster", {}, "how many devices of "),
        ("Mac mini", {}, "no bound of this boa"),
        ("Jetson Orin Nano", {"backend": "gpu", "conditions": "15 times a Pi 4 with Hailo-10H"}, 102.4),
        ("Raspberry Pi 4", {"conditions": "on the Hailo-10H"}, 17.1),
        ("Raspberry Pi 4", {"backend": "Hailo-10H"}, 17.1),
        ("NVIDIA H100", {"conditions": "TP=8"}, "how many devices of "),
        ("Raspberry Pi 5", {"conditions": "4 nodes"}, 68.4),
        ("DGX Spark", {"conditions": "2 DGX Spark, RPC"}, 602),
        ("Raspberry Pi 5", {"conditions": "llama.cpp RPC"}, "how many devices of "),
        ("Jetson AGX Orin", {"backend": "CUDA (RTX 4090)"}, 1008),
        ("Orange Pi 5 Plus", {"backend": "Hailo-10H"}, 17.1),
        ("Orange Pi 5 Plus", {"conditions": "on a Hailo-10H M.2 module", "backend": "npu"}, 44),
        ("Orange Pi 5 Plus", {"conditions": "on a Hailo-8 M.2 module"}, "no bound of this boa"),
        ("Raspberry Pi 5 with a Foo 3000", {}, "no bound of this boa"),
        ("RTX 4090 with Ryzen 9 7950X", {}, 1008),
        ("RTX 4090", {"backend": "CUDA, 2 GPUs"}, 2016),
        ("Raspberry Pi 5", {"conditions": "averaged over 10 boards"}, "how many devices of "),
        ("Raspberry Pi 5 with llama.cpp", {}, 17.1),
        ("Jetson Orin Nano", {"power_mode": "MODE_15W"}, 68.3),
        ("Jetson Orin Nano", {"conditions": "7W mode"}, 68.3),
        ("Jetson Orin Nano", {"conditions": "15 W at the wall"}, 102.4),
        ("Jetson Orin Nano 4GB", {"power_mode": "10W"}, 34.1),
    ],
)
def test_the_bound_is_that_of_the_part_that_works(device, fields, expected):
    """Of an accelerator unless the cores do; of both the larger one where that is not stated; of none where a part has none."""
    assert bound(device, **fields) == expected if isinstance(expected, str) else pytest.approx(bound(device, **fields)) == expected


def test_which_bound_is_taken_is_written_where_the_backend_is_not_stated():
    """And only there."""
    assert "largest bound of its parts" in facts("Raspberry Pi 4 with AI HAT+ 2").memory().clause
    assert "larger" not in facts("Raspberry Pi 4 with AI HAT+ 2", backend="npu").memory().clause


def test_stated_weights_win_over_those_of_the_name():
    """But not the size of a mixture's file, of which a token passes a part."""
    assert facts(weights_mb=2019.0, precision="Q4_K_M").weights().mb == 2019.0
    assert facts(model="Qwen3-30B-A3B", weights_mb=17_000.0, precision="int4").weights().mb == pytest.approx(1500)
    assert "mixture" in facts(model="Other-30B-A3B", weights_mb=17_000.0, precision="int4").weights()
    assert facts(model="Other-30B-A3B", read_parameters=3e9, precision="int4").weights().mb == pytest.approx(1500)


def test_the_size_of_the_input_is_none_of_a_camera():
    """Conditions count up to the usual size; a field of its own always."""
    assert facts(input_size="1280x720").side(640) == 960
    assert facts(input_size="320").side(640) == 320
    assert facts(conditions="camera 1920x1080, model 640 x 640").side(640) == 640
    assert facts(conditions="camera 1920x1080").side(640) is None
