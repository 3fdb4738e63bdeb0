"""Tests of a card that `fleet card` prepared, in an emulated board.

The board joins by itself and measures, and power cuts do it no harm.
"""

import os
import random
import shutil
import time

import pytest

from tools.arm64 import card
from tools.arm64.joining import awaited, prepared, presence

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.arm64,
    pytest.mark.emulated_board,
    pytest.mark.mosquitto,
]

FIRST, SECOND, BOOKWORM = "pi4-08", "pi4-29", "pi4-12"
SUITE = 'name = "first"\n[[case]]\nmodel = "edgemeter-shapes_int8.tflite"\nmode = "rapid"\n'
CUTS = int(os.environ.get("EDGEMETER_POWER_CUTS", "10"))
# Under emulation the first boot is over by then.
FIRST_BOOT_S = 150.0


def test_a_prepared_card_joins_by_itself_and_its_board_measures(board_files, server, tmp_path):
    """A prepared card joins by itself, and its board measures.

    Nobody touches the board; afterwards the card holds no secret and notes that it has joined.
    """
    board = prepared(board_files, server, FIRST, tmp_path)
    token = (
        (server.folder.parent / "join" / f"{FIRST}.join.toml")
        .read_text()
        .partition('token = "')[2]
        .partition('"')[0]
    )
    assert token in card.boot_file(board.image, "edgemeter/join.toml")
    board.power_on()
    try:
        assert awaited(board, lambda: presence(server, FIRST) == "online"), board.said()[-3000:]
        (tmp_path / "suite.toml").write_text(SUITE)
        server.command("run", tmp_path / "suite.toml", "--on", FIRST, "--detach")
        assert awaited(board, lambda: server.runs(FIRST)), board.said()[-3000:]
    finally:
        board.cut()
    run = server.runs(FIRST)[0]
    assert (run.environment.arch, run.runtime.name) == ("aarch64", "litert")
    assert "joined" in card.boot_file(board.image, "edgemeter/status.txt")
    assert "xxxxxxxx" in card.boot_file(board.image, "edgemeter/join.toml")
    with board.image.open("rb") as image:
        assert token.encode() not in image.read(card.ROOT_OFFSET)


def test_a_card_of_bookworm_joins_by_its_firstrun_script(board_files, server, tmp_path):
    """A card of Bookworm joins by its firstrun script.

    The script runs once from the kernel's line and reboots the board, which then installs and joins
    as any other.
    """
    board = prepared(board_files, server, BOOKWORM, tmp_path, card.make_bookworm)
    card.as_bookworm_does(board.image)
    board.power_on()
    assert not awaited(board, lambda: False), board.said()[-3000:]
    assert "systemd.run" not in card.boot_file(board.image, "cmdline.txt")
    board.power_on()
    try:
        assert awaited(board, lambda: presence(server, BOOKWORM) == "online"), board.said()[-3000:]
    finally:
        board.cut()
    assert "joined" in card.boot_file(board.image, "edgemeter/status.txt")


def test_power_cut_at_any_moment_of_the_first_boot_still_ends_in_a_join(
    board_files, server, tmp_path
):
    """A first boot that is cut at random moments, then left alone, still ends in a join."""
    draw = random.Random(64)  # noqa: S311 - the same moments every time
    board = prepared(board_files, server, SECOND, tmp_path)
    for _ in range(CUTS):
        board.power_on()
        time.sleep(draw.uniform(10.0, FIRST_BOOT_S))
        board.cut()
    board.power_on()
    try:
        assert awaited(board, lambda: presence(server, SECOND) == "online"), board.said()[-3000:]
    finally:
        board.cut()
    shutil.rmtree(tmp_path, ignore_errors=True)
