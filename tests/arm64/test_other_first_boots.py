"""Cards of Raspberry Pi OS 12 (firstrun.sh) and of rpi-preseed in an emulated board: without cloud-init the board joins by itself too."""

import pytest

from tests.arm64 import card
from tests.arm64.joining import awaited, prepared, presence

pytestmark = [pytest.mark.nightly, pytest.mark.arm64, pytest.mark.emulated_board, pytest.mark.mosquitto]
# Power-ons until a board stays on: Raspberry Pi OS 12 resizes and restarts, runs firstrun.sh and restarts.
POWER_ONS = {"firstrun": 3, "preseed": 1}


@pytest.mark.parametrize("form", POWER_ONS)
def test_a_card_of_another_format_joins_by_itself(form, board_files, server, tmp_path):
    """Nobody touches the board; the command that started our part is gone from the card, and so is the secret."""
    device = f"pi4-{form}"
    card.blank(tmp_path / "blank.img", form)
    board = prepared(board_files, server, device, tmp_path, tmp_path / "blank.img")
    token = (server.folder.parent / "join" / f"{device}.join.toml").read_text().partition('token = "')[2].partition('"')[0]
    try:
        for _ in range(POWER_ONS[form] - 1):
            board.power_on()
            assert awaited(board, lambda: not board.is_on()) or not board.is_on(), board.said()[-3000:]
        board.power_on()
        assert awaited(board, lambda: presence(server, device) == "online"), board.said()[-3000:]
        assert awaited(board, lambda: "state:   joined" in card.boot_file(board.image, "edgemeter/status.txt")), board.said()[-3000:]
    finally:
        board.cut()
    line = card.boot_file(board.image, "cmdline.txt")
    assert ("systemd.run" in line, "init=" in line) == (False, False)
    with board.image.open("rb") as image:
        assert token.encode() not in image.read(card.ROOT_OFFSET)
