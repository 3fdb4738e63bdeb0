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
