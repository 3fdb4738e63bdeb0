import re

import pytest

from edgemeter.agent.machine.board_limits import board_limits, has_unknown_addition, limits_named, memory_mb_per_s, plain_name
from edgemeter.agent.machine.power_range import BOARDS


def test_each_figure_has_a_source_that_names_a_document_and_a_part_of_it():
    """A bound without a page, section or table cannot be looked up, and is left out."""
    part = re.compile(r"p\. \d|section|Section|[Ss]pecification|table|appendix|Models|Processors|slide")
    for limit in board_limits():
        figures = [
            (limit.memory_gbyte_per_s, limit.memory_source), (limit.most_gop_per_s, limit.compute_source), (limit.ram_gb, limit.ram_source),
            (limit.cpu, limit.cpu.source if limit.cpu else ""),
        ]  # fmt: skip
        for figure, source in figures:
            assert bool(figure) == bool(source), limit.name
            assert not source or part.search(source), (limit.name, source)


def test_no_word_belongs_to_two_entries():
    """Else a name would have the bound that comes first."""
    words = [word for limit in board_limits() for word in limit.words]
    assert len(set(words)) == len(words)
    assert [word for word in words if plain_name(word) not in {word, f"raspberry pi {word}"}] == []


# Transfers a second x bytes of the bus, by hand.
@pytest.mark.parametrize(
    ("board", "mb_per_s"),
    [
        ("Raspberry Pi 5 Model B Rev 1.0", 4267 * 4),
        ("Raspberry Pi Compute Module 5 Rev 1.0", 4267 * 4),
        ("Raspberry Pi 4 Model B Rev 1.5", 3200 * 4),
        ("Raspberry Pi 3 Model B Plus Rev 1.3", 1066 * 4),
        ("NVIDIA Jetson Nano Developer Kit", 3200 * 8),
        ("NVIDIA Jetson Xavier NX Developer Kit", 3733 * 16),
        ("Jetson-AGX Xavier", 4266 * 32),
        ("NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super", 6400 * 16),
        ("NVIDIA Jetson Orin NX Engineering Reference Developer Kit", 6400 * 16),
        ("NVIDIA Jetson AGX Orin Developer Kit", 6400 * 32),
        ("NVIDIA Jetson AGX Thor Developer Kit", 8533 * 32),
        ("Orange Pi 5 Plus", 5500 * 8),
        ("Radxa ROCK 5 Model B", 5500 * 8),
    ],
)
def test_the_bandwidth_of_a_board_is_bus_times_rate(board, mb_per_s):
    """By the model as the firmware states it."""
    assert memory_mb_per_s(board) == pytest.approx(mb_per_s, rel=0.01)


@pytest.mark.parametrize("board", ["", "some board", "Banana Pi 5", "Raspberry Pi 1", "GH200", "Jetson Orin"])
def test_a_board_without_a_line_has_no_bandwidth(board):
    """No other board's counts for it."""
    assert memory_mb_per_s(board) is None


@pytest.mark.parametrize(
    ("device", "board", "added"),
    [
        ("Raspberry Pi 5 with AI HAT+ 2", "Raspberry Pi 5", ["AI HAT+ 2 (Hailo-10H)"]),
        ("Raspberry Pi 5 (8GB) + Hailo-8L M.2", "Raspberry Pi 5", ["Hailo-8L"]),
        ("Raspberry Pi AI HAT+ (26 TOPS)", None, ["Hailo-8"]),
        ("HAILO10H", None, ["AI HAT+ 2 (Hailo-10H)"]),
        ("RPi5", "Raspberry Pi 5", []),
        ("Pi 4 + Coral USB Accelerator", "Raspberry Pi 4", ["Coral Edge TPU"]),
        ("Raspberry Pi 500+", "Raspberry Pi 5", []),
        ("NVIDIA GeForce RTX 4050 Laptop GPU", None, ["GeForce RTX 4050 Laptop"]),
        ("Raspberry Pi 5 with AI HAT+2", "Raspberry Pi 5", ["AI HAT+ 2 (Hailo-10H)"]),
        ("Raspberry Pi 5 with AI HAT+ (13 TOPS)", "Raspberry Pi 5", ["Hailo-8L"]),
    ],
)
def test_a_device_is_recognised_with_what_is_added_to_it(device, board, added):
    """As people write it."""
    limits = limits_named(device)
    assert (limits.board.name if limits.board else None, [entry.name for entry in limits.added]) == (board, added)
    assert limits.devices == 1
    assert limits.is_complete


@pytest.mark.parametrize(
    ("device", "devices"),
    [
        ("8x H200-SXM-141GB", 8), ("H100-SXM-80GBx8", 8), ("Four Raspberry Pi 5", 4), ("2 x Jetson Orin Nano", 2), ("DGX H100", None),
        ("Raspberry Pi 5 cluster", None), ("Raspberry Pi 5 (4x Cortex-A76)", 1), ("DGX Spark", 1), ("Raspberry Pi 5, 640x640", 1),
        ("8 Raspberry Pi 5 boards", 8), ("Raspberry Pi 5 (4 nodes)", 4), ("2 DGX Spark, RPC", 2), ("two Raspberry Pi 5s", 2),
        ("RTX 4090 + RTX 3090", None), ("RTX 4090 (PCIe 4.0 x16)", 1), ("RTX 4090 x 2", 2), ("Raspberry Pi 5 with dual fans", 1),
        ("Raspberry Pi 5 with four cameras", 1), ("Raspberry Pi 5 with Hailo-10H (PCIe Gen 3 x4)", 1), ("H100-PCIe-80GBx8", 8),
        ("batch 8, Raspberry Pi 5", 1), ("Raspberry Pi 5 with 4x RTX5000 Ada", 1),
        ("JetPack 6 Jetson Orin Nano", 1), ("CUDA 12 RTX 4090", 1), ("RTX 4090 (x16)", None), ("RTX 4090 x4", 4),
    ],
)  # fmt: skip
def test_several_devices_are_counted(device, devices):
    """Their cores are no devices; of a cluster without a number it is not known."""
    assert limits_named(device).devices == devices


@pytest.mark.parametrize(
    "device",
    [
        "Raspberry Pi 5 with AMD RX 6700 XT", "Raspberry Pi 5 + eGPU", "PC with RTX 4070", "Hailo-15H", "Pi 5, GTX 10",
        "Raspberry Pi 5 with RTX4090", "Raspberry Pi 5, RTX5000 Ada", "Raspberry Pi 5 (GTX1660)", "Raspberry Pi 5 / GeForce 3080",
        "Raspberry Pi 5, V100", "Raspberry Pi 5, Instinct MI50", "Raspberry Pi 5, W7700", "Raspberry Pi 5, 7900 XTX", "Pi 5, 6700 XT",
        "Raspberry Pi 5, external GPU", "RK3588, RK1828",
    ],
)  # fmt: skip
def test_an_accelerator_without_bounds_makes_a_device_incomplete(device):
    """Its memory, not the board's, may do the work."""
    assert not limits_named(device).is_complete


@pytest.mark.parametrize(
    ("device", "is_unknown"),
    [
        ("Raspberry Pi 5 with a Foo 3000", True), ("RK3588 + Bar module", True),
        ("Raspberry Pi 5 and Baz", True), ("Raspberry Pi 5 with a 4090", True), ("Raspberry Pi 5 + LLM module", True),
        ("Raspberry Pi 5 connected to a server", True),
        ("Orange Pi 5 Plus 16GB", False), ("RK3588 & NPU stick", True),
        ("Raspberry Pi 5 with active cooler, 8 GB RAM and NVMe SSD", False), ("Raspberry Pi 3 Model B+ Rev 1.3", False),
        ("Raspberry Pi 5 with AI HAT+ 2 and a camera", False), ("Dell Pro Max with GB10 (Nvidia Spark)", False), ("ROCK 5B+ 16GB", False),
        ("Raspberry Pi 5 + Hailo-8L M.2", False), ("RK3588", False), ("Raspberry Pi 5 with Hailo-8 M.2 AI accelerator", False),
        ("Raspberry Pi 5 with AI HAT+ (26 TOPS)", False),
        ("Raspberry Pi 5 with llama.cpp", False), ("Raspberry Pi 5 with AI accelerator", True), ("Raspberry Pi 5 with NPU", True),
    ],
)  # fmt: skip
def test_what_is_added_and_not_on_record_may_do_the_work(device, is_unknown):
    """Unless it is what any board has: a fan, RAM, a disk."""
    assert has_unknown_addition(device) is is_unknown


def test_whole_numbers_are_no_bound_of_others():
    """An accelerator for 8 bit has none in floating point; a card has one by type."""
    coral, card, orin = (limits_named(name).added[0] for name in ("Coral", "RTX 4090", "H100"))
    assert [coral.gop_per_s(bits) for bits in (None, 8, 16, 32)] == [4e3, 4e3, None, None]
    assert [card.gop_per_s(bits) for bits in (None, 4.5, 6.5625, 8, 16, 32)] == [2643e3, 2643e3, 1321e3, 1321e3, 660.6e3, 165.2e3]
    assert [orin.gop_per_s(bits) for bits in (4, 8, 16)] == [3958e3, 3958e3, 1979e3]


# 2 x 2,133 MHz x 16 bytes = 68.3, half of it on 64 bit; 6,400 MT/s x 8 bytes = 51.2.
@pytest.mark.parametrize(
    ("ram_gb", "mode", "gbyte_per_s"),
    [(None, "", 102.4), (8, "", 102.4), (8, "25w", 102.4), (8, "15w", 68.3), (None, "7w", 68.3), (4, "", 51.2), (4, "10w", 34.1)],
)
def test_the_memory_of_a_module_is_that_of_its_ram_and_mode(ram_gb, mode, gbyte_per_s):
    """The largest where neither is stated."""
    assert limits_named("Jetson Orin Nano").board.memory_at(ram_gb, mode)[0] == gbyte_per_s


def test_a_wider_type_is_never_faster_than_a_narrower_one():
    """Cores and engines; what a maker states for 8 bit bounds 16 bit too."""
    for limit in board_limits():
        rates = [rate for bits in (4, 8, 16, 32) if (rate := limit.gop_per_s(bits)) is not None]
        assert rates == sorted(rates, reverse=True), limit.name
        if limit.cpu:
            assert limit.cpu.gop_per_s(8) >= limit.cpu.gop_per_s(16) >= limit.cpu.gop_per_s(32)
    pi5 = limits_named("Raspberry Pi 5").board
    # 4 cores x 2.4 GHz x 2 pipes x 4 lanes x 2, and x 16 bytes x 2 with dot products.
    assert pi5.cpu.gop_per_s(32) == pytest.approx(153.6)
    assert pi5.cpu.gop_per_s(8) == pytest.approx(614.4)


def test_boards_whose_power_is_bounded_are_known_here():
    """But for the oldest, which run no model of these."""
    missing = [word for word, _ in BOARDS if limits_named(word.replace("raspberry pi compute module", "compute module 5")).board is None]
    assert missing == ["raspberry pi zero", "raspberry pi pico", "raspberry pi", "jetson-agx", "jetson tx", "phanbell", "coral dev board"]
