"""A card that `fleet image` prepared, in an emulated board: its first result arrives by itself, and power cuts do it no harm."""

import random
import shutil
import time
from pathlib import Path

import pytest

from tests.arm64 import card, emulation
from tests.arm64.board import Board
from tests.arm64.fleet_server import FleetServer, served

pytestmark = [pytest.mark.slow, pytest.mark.arm64]

# A board takes two minutes on an idle machine, most of them to unpack wheels; on a busy one much longer.
PATIENCE_S = 2400.0
CUTS = 10
# Under emulation the first boot is over by then.
FIRST_BOOT_S = 150.0


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """What all boards share: a card as from the shop, and what the kernel starts with."""
    emulation.folder()
    folder = tmp_path_factory.mktemp("arm64")
    card.initrd(folder / "initrd")
    card.blank(folder / "blank.img")
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A fleet's server with a bundle for the board's system."""
    with served(tmp_path_factory.mktemp("server")) as running:
        running.command("bundle", "--board", "pi4", "--python", "3.13", "--out", running.folder.parent / "pi4.tar")
        yield running


def prepared(shelf: Path, server: FleetServer, device: str, folder: Path) -> Board:
    """Return a board with a card that `fleet image` prepared for `device`."""
    image = folder / f"{device}.img"
    emulation.run("cp", "--sparse=always", shelf / "blank.img", image)
    server.command("image", image, "--bundle", server.folder.parent / "pi4.tar", "--join", server.join_file(device))
    return Board(image, shelf / "initrd", folder / f"{device}.console")


def awaited(board: Board, server: FleetServer, device: str) -> bool:
    """Wait until a result of the device has arrived; return whether one has."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and board.is_on():
        if server.runs(device):
            return True
        time.sleep(2)
    return False


def test_a_card_from_fleet_image_joins_and_its_first_result_arrives_by_itself(shelf, server, tmp_path):
    """Nobody touches the board; afterwards the card holds no secret and says that it has joined."""
    token = server.join_file("pi4-01").read_text().partition('token = "')[2].partition('"')[0]
    board = prepared(shelf, server, "pi4-01", tmp_path)
    board.power_on()
    try:
        assert awaited(board, server, "pi4-01"), board.said()[-3000:]
    finally:
        board.cut()
    run = server.runs("pi4-01")[0]
    assert (run.environment.arch, run.runtime.name) == ("aarch64", "litert")
    assert "joined" in card.boot_file(board.image, "edgemeter/status.txt")
    assert "xxxxxxxx" in card.boot_file(board.image, "edgemeter/join.toml")
    assert token.encode() not in board.image.read_bytes()[: card.ROOT_OFFSET]


def test_power_cut_at_any_moment_of_the_first_boot_still_ends_in_a_join(shelf, server, tmp_path):
    """Ten cuts at random moments of one first boot, then it is left alone."""
    draw = random.Random(64)  # noqa: S311 - the same moments every time
    board = prepared(shelf, server, "pi4-02", tmp_path)
    for _ in range(CUTS):
        board.power_on()
        time.sleep(draw.uniform(10.0, FIRST_BOOT_S))
        board.cut()
    board.power_on()
    try:
        assert awaited(board, server, "pi4-02"), board.said()[-3000:]
    finally:
        board.cut()
    shutil.rmtree(tmp_path, ignore_errors=True)
