import pytest

from edgemeter.agent.machine.board_limits import board_limits, limits_named, plain_name
from tests.fixtures.rows import table_row


def test_no_word_belongs_to_two_entries():
    """With a word in two entries, a name would get the bound that comes first."""
    words = [word for limit in board_limits() for word in limit.words]
    assert len(set(words)) == len(words)
    assert [word for word in words if plain_name(word) not in {word, f"raspberry pi {word}"}] == []


def test_a_device_is_recognised_with_what_is_added_to_it():
    """Device names are recognised as people write them."""
    for device, board, added in [
        ("Raspberry Pi 5 with AI HAT+ 2", "Raspberry Pi 5", "AI HAT+ 2 (Hailo-10H)"),
        ("Raspberry Pi 5 (8GB) + Hailo-8L M.2", "Raspberry Pi 5", "Hailo-8L"),
        ("Raspberry Pi AI HAT+ (26 TOPS)", None, "Hailo-8"),
        ("RPi5", "Raspberry Pi 5", None),
        ("Pi 4 + Coral USB Accelerator", "Raspberry Pi 4", "Coral Edge TPU"),
        ("NVIDIA GeForce RTX 4050 Laptop GPU", None, "GeForce RTX 4050 Laptop"),
        ("Raspberry Pi 5 with AI HAT+ (13 TOPS)", "Raspberry Pi 5", "Hailo-8L"),
    ]:
        with table_row(device):
            limits = limits_named(device)
            assert (limits.board and limits.board.name, limits.added and limits.added.name) == (
                board,
                added,
            )
            assert limits.is_complete


def test_a_name_with_further_words_is_incomplete():
    """Several devices, or a part without known bounds, may do the work."""
    for device in (
        "Raspberry Pi 5 with AMD RX 6700 XT", "PC with RTX 4070",
        "Raspberry Pi 5 with AI accelerator", "RTX 4090 + RTX 3090", "8x H200-SXM-141GB",
        "Four Raspberry Pi 5", "Raspberry Pi 5 cluster", "RTX 4090 x 2",
        "Raspberry Pi 5 connected to a server",
    ):  # fmt: skip
        assert not limits_named(device).is_complete, device


def test_whole_numbers_are_no_bound_of_others():
    """An 8-bit accelerator has no bound in floating point, and a card has one for each type."""
    coral, card, orin = (limits_named(name).added for name in ("Coral", "RTX 4090", "H100"))
    assert [coral.gop_per_s(bits) for bits in (None, 8, 16, 32)] == [4e3, 4e3, None, None]
    assert [card.gop_per_s(bits) for bits in (None, 4.5, 6.5625, 8, 16, 32)] == [
        2643e3,
        2643e3,
        1321e3,
        1321e3,
        660.6e3,
        165.2e3,
    ]
    assert [orin.gop_per_s(bits) for bits in (4, 8, 16)] == [3958e3, 3958e3, 1979e3]


def test_a_wider_type_is_never_faster_than_a_narrower_one():
    """This holds for cores and engines: a maker's figure for 8 bits also bounds 16 bits."""
    for limit in board_limits():
        rates = [rate for bits in (4, 8, 16, 32) if (rate := limit.gop_per_s(bits)) is not None]
        assert rates == sorted(rates, reverse=True), limit.name
        if limit.cpu:
            assert limit.cpu.gop_per_s(8) >= limit.cpu.gop_per_s(16) >= limit.cpu.gop_per_s(32)
    pi5 = limits_named("Raspberry Pi 5").board
    # 4 cores x 2.4 GHz x 2 pipes x 4 lanes x 2, and x 16 bytes x 2 with dot products.
    assert pi5.cpu.gop_per_s(32) == pytest.approx(153.6)
    assert pi5.cpu.gop_per_s(8) == pytest.approx(614.4)
